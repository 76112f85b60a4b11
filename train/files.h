// Files that are either whole or untouched, and text that may stand in a message.
//
// Every error is one line, "cannot DO PATH: REASON", with the reason of the system. A write beyond a limit
// set with `ulimit -f` raises SIGXFSZ, which ends a process by default; a library installs no handlers, so a
// program calls ignore_file_size_signal() once at its start and then gets an error like any other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace storytape {

// The text on one line: control characters and bytes that are no UTF-8 become \xNN; what goes beyond `limit`
// bytes is cut and marked "...".
std::string printable(std::string_view text, size_t limit = 200);

// The bytes of a file as they are. Throws if it is missing, a directory, not permitted or larger than memory.
std::string read_file(const std::filesystem::path& path);

// Appends a piece of a file that is being written. Throws if the piece can't be written whole.
using WritePiece = std::function<void(const void* data, size_t bytes)>;

// Replaces a file at once: the bytes go to `.NAME.tmp-PID` in the same folder, which is synced and then
// renamed over the file; the folder is synced too. After an error, and after a kill at any moment, the old
// file is untouched; an error removes the temporary, a kill may leave it (see remove_leftover_temporaries). A
// link is followed, permissions are kept, a file without write permission is refused, and what is no regular
// file (/dev/stdout) is written directly. REQUIRES: no two threads write the same path at once.
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

// The same with the content handed over in pieces; `produce` calls what it is given once for each piece. An
// exception from `produce` counts as an error and passes through.
void write_file_atomic(const std::filesystem::path& path,
                       const std::function<void(const WritePiece&)>& produce);

// Removes what killed writers left behind in the folder, and nothing that a living process is writing. A
// folder that doesn't exist holds none.
void remove_leftover_temporaries(const std::filesystem::path& folder);

// Makes a write beyond `ulimit -f` an error (EFBIG) for the whole process, where the system's default is to
// end it.
void ignore_file_size_signal();

// Owns an open file of the system.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int value) : value_(value) {}
  FileDescriptor(FileDescriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      value_ = std::exchange(other.value_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { close(); }

  bool is_open() const { return value_ >= 0; }
  int get() const { return value_; }
  // Returns 0 or the error number: a late write error can surface here.
  int close() noexcept;

 private:
  int value_ = -1;
};

// A file read at any place, by any number of threads at once. It is read, not mapped: when another program
// makes the file shorter, that is an error and not a signal.
class InputFile {
 public:
  InputFile() = default;
  // Throws if the file is missing, not permitted or no regular file.
  explicit InputFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  // Bytes in the file when it was opened.
  uint64_t size() const { return size_; }
  // Throws if the file ends before offset + bytes.
  void read_at(uint64_t offset, void* out, size_t bytes) const;

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  uint64_t size_ = 0;
};

// A log of lines that only grows, for one writer. A line is in the file whole, or the call throws and takes
// back what was written of it; only a kill can leave half a line.
class AppendFile {
 public:
  AppendFile() = default;
  // Opens the file, creating it if there is none.
  explicit AppendFile(const std::filesystem::path& path);

  bool is_open() const { return file_.is_open(); }
  const std::filesystem::path& path() const { return path_; }

  // Writes the line and a newline. REQUIRES: the line holds no newline.
  void write_line(std::string_view line);
  // Returns when everything written is on the disk.
  void flush();
  // Bytes in the file now.
  uint64_t size() const;
  // Drops everything from byte `bytes` on. Throws if the file is shorter.
  void truncate_to(uint64_t bytes);
  // Drops what stands after the last newline, as a kill leaves it. Returns the number of bytes dropped.
  uint64_t drop_half_line();

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

}  // namespace storytape
