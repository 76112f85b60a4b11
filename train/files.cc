#include "train/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "tensor/error.h"

namespace storytape {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporaryTag = ".tmp-";
constexpr size_t kLongestPath = 4096;

std::string shown(const fs::path& path) {
  return printable(path.native(), kLongestPath);
}

[[noreturn]] void fail_errno(std::string_view action, const fs::path& path, int error) {
  fail("cannot {} {}: {}", action, shown(path), std::generic_category().message(error));
}

// Not open, with errno set, if the system refuses.
FileDescriptor open_file(const fs::path& path, int flags) {
  constexpr mode_t kPermissions = 0666;  // less the user's mask
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, kPermissions);
  } while (descriptor < 0 && errno == EINTR);
  return FileDescriptor(descriptor);
}

// Fills `out` from the place on as far as the file goes; returns the number of bytes.
size_t read_upto(int descriptor, const fs::path& path, uint64_t offset, void* out, size_t bytes) {
  constexpr size_t kLargestRead = size_t{1} << 30;  // the system reads less than 2^31 at once
  size_t filled = 0;
  while (filled < bytes) {
    const size_t wanted = std::min(bytes - filled, kLargestRead);
    const ssize_t got =
        ::pread(descriptor, static_cast<char*>(out) + filled, wanted, static_cast<off_t>(offset + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("read", path, errno);
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  return filled;
}

void read_exactly(int descriptor, const fs::path& path, uint64_t offset, void* out, size_t bytes) {
  if (const size_t got = read_upto(descriptor, path, offset, out, bytes); got != bytes)
    fail("cannot read {}: expected at least {} bytes, found {}; the file was cut after it was opened",
         shown(path), offset + bytes, offset + got);
}

// Writes everything or returns the error number.
int write_all(int descriptor, const void* data, size_t bytes) {
  constexpr size_t kLargestWrite = size_t{1} << 30;  // the system writes less than 2^31 at once
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor, next, std::min(bytes, kLargestWrite));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return EIO;
    next += written;
    bytes -= static_cast<size_t>(written);
  }
  return 0;
}

// Pipes and some devices can't be synced; there is nothing to lose there.
int sync(int descriptor) {
  int result = 0;
  do {
    result = ::fsync(descriptor);
  } while (result != 0 && errno == EINTR);
  return result == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

fs::path folder_of(const fs::path& path) {
  const fs::path folder = path.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

// The file that a write through `path` reaches: the end of a chain of links, whether or not it exists.
fs::path follow_links(const fs::path& path) {
  constexpr int kMostLinks = 40;  // as the system itself has it
  fs::path target = path;
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(target, error)); ++i) {
    const fs::path next = fs::read_symlink(target, error);
    if (error) fail_errno("write", path, error.value());
    target = folder_of(target) / next;
  }
  return target;
}

fs::path temporary_for(const fs::path& target) {
  constexpr size_t kLongestName = 200;  // leaves room for the tag below the usual limit of 255
  const std::string name = target.filename().string().substr(0, kLongestName);
  return folder_of(target) / ("." + name + std::string(kTemporaryTag) + std::to_string(::getpid()));
}

bool is_temporary_name(const std::string& name) {
  const size_t tag = name.rfind(kTemporaryTag);
  if (name.empty() || name[0] != '.' || tag == name.npos) return false;
  const std::string_view process = std::string_view(name).substr(tag + kTemporaryTag.size());
  return !process.empty() && process.find_first_not_of("0123456789") == process.npos;
}

// Removes the temporary unless the rename has taken it away.
class TemporaryGuard {
 public:
  explicit TemporaryGuard(const fs::path& path) : path_(path) {}
  TemporaryGuard(const TemporaryGuard&) = delete;
  TemporaryGuard& operator=(const TemporaryGuard&) = delete;
  ~TemporaryGuard() {
    if (active_) ::unlink(path_.c_str());
  }
  void release() { active_ = false; }

 private:
  const fs::path& path_;
  bool active_ = true;
};

// Hands the pieces of `produce` to the descriptor. `path`: the name for messages.
void write_pieces(int descriptor, const fs::path& path,
                  const std::function<void(const WritePiece&)>& produce) {
  produce([&](const void* data, size_t bytes) {
    if (const int error = write_all(descriptor, data, bytes)) fail_errno("write", path, error);
  });
  if (const int error = sync(descriptor)) fail_errno("write", path, error);
}

void sync_folder(const fs::path& path) {
  const FileDescriptor folder = open_file(folder_of(path), O_RDONLY | O_DIRECTORY);
  if (!folder.is_open() && errno == EACCES) return;  // a folder that may be written but not read
  if (!folder.is_open()) fail_errno("sync the folder of", path, errno);
  if (const int error = sync(folder.get())) fail_errno("sync the folder of", path, error);
}

// Length of the UTF-8 character at the start of the text, 0 if there is none (RFC 3629).
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool overlong = lead == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = lead == 0xED && byte(1) > 0x9F;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool overlong = lead == 0xF0 && byte(1) < 0x90;
    const bool beyond = lead == 0xF4 && byte(1) > 0x8F;
    return continues(1) && continues(2) && continues(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string printable(std::string_view text, size_t limit) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    if (i >= limit) return result + "...";
    const size_t length = utf8_length(text.substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080..U+009F are control characters too, and U+2028, U+2029 end a line.
    const std::string_view character = text.substr(i, std::max<size_t>(length, 1));
    const bool control = byte < 0x20 || byte == 0x7F ||
                         (byte == 0xC2 && length == 2 && character[1] < '\xA0') || character == "\u2028" ||
                         character == "\u2029";
    if (length > 0 && !control) {
      result += character;
    } else {
      for (const char c : character) result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    i += character.size();
  }
  return result;
}

std::string read_file(const fs::path& path) {
  const FileDescriptor file = open_file(path, O_RDONLY);
  if (!file.is_open()) fail_errno("read", path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_errno("read", path, errno);
  if (S_ISDIR(status.st_mode)) fail_errno("read", path, EISDIR);

  constexpr size_t kPiece = size_t{1} << 16;
  std::string bytes;
  try {
    // One byte more than the file has shows its end without another growth.
    bytes.resize(S_ISREG(status.st_mode) ? static_cast<size_t>(status.st_size) + 1 : kPiece);
    size_t filled = 0;
    for (;;) {
      if (filled == bytes.size()) bytes.resize(bytes.size() + std::max(kPiece, bytes.size() / 2));
      const ssize_t got = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_errno("read", path, errno);
      if (got == 0) break;
      filled += static_cast<size_t>(got);
    }
    bytes.resize(filled);
  } catch (const std::bad_alloc&) {
    fail_errno("read", path, ENOMEM);
  } catch (const std::length_error&) {
    fail_errno("read", path, ENOMEM);
  }
  return bytes;
}

void write_file_atomic(const fs::path& path, std::string_view bytes) {
  write_file_atomic(path, [bytes](const WritePiece& write) { write(bytes.data(), bytes.size()); });
}

void write_file_atomic(const fs::path& path, const std::function<void(const WritePiece&)>& produce) {
  const fs::path target = follow_links(path);
  if (!target.has_filename()) fail_errno("write", path, path.empty() ? ENOENT : EISDIR);
  std::optional<mode_t> permissions;
  struct stat status {};
  if (::stat(target.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) fail_errno("write", path, EISDIR);
    if (::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0) fail_errno("write", path, errno);
    if (!S_ISREG(status.st_mode)) {
      FileDescriptor device = open_file(target, O_WRONLY);
      if (!device.is_open()) fail_errno("write", path, errno);
      write_pieces(device.get(), path, produce);
      if (const int error = device.close()) fail_errno("write", path, error);
      return;
    }
    permissions = status.st_mode & 07777u;
  } else if (errno != ENOENT) {
    fail_errno("write", path, errno);
  }

  const fs::path temporary = temporary_for(target);
  ::unlink(temporary.c_str());  // left by a killed process that had this number
  FileDescriptor file = open_file(temporary, O_WRONLY | O_CREAT | O_EXCL);
  if (!file.is_open()) fail_errno("write", path, errno);
  TemporaryGuard guard(temporary);
  // The lock lasts as long as the descriptor: it tells a writer at work from the leftover of a killed one.
  ::flock(file.get(), LOCK_EX | LOCK_NB);
  if (permissions && ::fchmod(file.get(), *permissions) != 0) fail_errno("write", path, errno);
  write_pieces(file.get(), path, produce);
  if (::rename(temporary.c_str(), target.c_str()) != 0) fail_errno("write", path, errno);
  guard.release();
  if (const int error = file.close()) fail_errno("write", path, error);
  sync_folder(target);
}

void remove_leftover_temporaries(const fs::path& folder) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error == std::errc::no_such_file_or_directory) return;
  if (error) fail_errno("list", folder, error.value());
  std::vector<fs::path> found;
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    if (is_temporary_name(entries->path().filename().string()) &&
        fs::is_regular_file(entries->symlink_status(error)))
      found.push_back(entries->path());
  }
  if (error) fail_errno("list", folder, error.value());
  for (const fs::path& path : found) {
    const FileDescriptor file = open_file(path, O_RDONLY);
    if (file.is_open() && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) continue;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail_errno("remove", path, errno);
  }
}

void ignore_file_size_signal() {
  std::signal(SIGXFSZ, SIG_IGN);
}

int FileDescriptor::close() noexcept {
  if (!is_open()) return 0;
  const int result = ::close(std::exchange(value_, -1));
  return result == 0 || errno == EINTR ? 0 : errno;
}

InputFile::InputFile(const fs::path& path) : path_(path), file_(open_file(path, O_RDONLY)) {
  if (!file_.is_open()) fail_errno("read", path, errno);
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) fail_errno("read", path, errno);
  if (S_ISDIR(status.st_mode)) fail_errno("read", path, EISDIR);
  if (!S_ISREG(status.st_mode)) fail("cannot read {}: not a regular file", shown(path));
  size_ = static_cast<uint64_t>(status.st_size);
}

void InputFile::read_at(uint64_t offset, void* out, size_t bytes) const {
  read_exactly(file_.get(), path_, offset, out, bytes);
}

AppendFile::AppendFile(const fs::path& path)
    : path_(path), file_(open_file(path, O_RDWR | O_CREAT | O_APPEND)) {
  if (!file_.is_open()) fail_errno("open", path, errno);
}

uint64_t AppendFile::size() const {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) fail_errno("read the size of", path_, errno);
  return static_cast<uint64_t>(status.st_size);
}

void AppendFile::write_line(std::string_view line) {
  if (line.find('\n') != line.npos) fail("a line for {} holds a newline: {}", shown(path_), printable(line));
  const uint64_t before = size();
  std::string whole(line);
  whole += '\n';
  if (const int error = write_all(file_.get(), whole.data(), whole.size())) {
    // Half a line would spoil the next one. Where even this fails, drop_half_line mends it later.
    [[maybe_unused]] const int ignored = ::ftruncate(file_.get(), static_cast<off_t>(before));
    fail_errno("write", path_, error);
  }
}

void AppendFile::flush() {
  if (const int error = sync(file_.get())) fail_errno("write", path_, error);
}

void AppendFile::truncate_to(uint64_t bytes) {
  if (const uint64_t now = size(); bytes > now)
    fail("cannot cut {} to {} bytes: it has only {}", shown(path_), bytes, now);
  if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) fail_errno("cut", path_, errno);
}

uint64_t AppendFile::drop_half_line() {
  const uint64_t before = size();
  std::vector<char> piece(size_t{1} << 16);
  uint64_t keep = before;
  while (keep > 0) {  // backwards to the last newline
    const uint64_t start = keep > piece.size() ? keep - piece.size() : 0;
    const auto wanted = static_cast<size_t>(keep - start);
    read_exactly(file_.get(), path_, start, piece.data(), wanted);
    const std::string_view text(piece.data(), wanted);
    const size_t newline = text.rfind('\n');
    keep = newline == text.npos ? start : start + newline + 1;
    if (newline != text.npos) break;
  }
  if (keep != before) truncate_to(keep);
  return before - keep;
}

}  // namespace storytape
