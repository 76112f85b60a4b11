// Files and SHA-256.
#include "train/files.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"
#include "train/sha256.h"

namespace storytape {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TemporaryFolder;

void put(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

size_t entries(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// Has a limit on the size of files while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ignore_file_size_signal();
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limited{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_{};
};

// Is no longer root while it lives, since permissions don't bind root.
class PlainUser {
 public:
  PlainUser() {
    constexpr uid_t kNobody = 65534;
    if (was_root_) became_plain_ = seteuid(kNobody) == 0;
  }
  ~PlainUser() {
    if (was_root_ && became_plain_ && seteuid(0) != 0) std::abort();
  }
  bool is_plain() const { return !was_root_ || became_plain_; }

 private:
  bool was_root_ = geteuid() == 0;
  bool became_plain_ = false;
};

TEST_CASE("read_file gives every byte as it is") {
  const TemporaryFolder folder;
  std::string bytes;
  for (int i = 0; i < 300'000; ++i) bytes += static_cast<char>(i * 7 + i / 256);
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{65'535}, size_t{65'536}, size_t{65'537}, bytes.size()}) {
    put(folder / "file", bytes.substr(0, size));
    CHECK(read_file(folder / "file") == bytes.substr(0, size));
  }
  CHECK(read_file("/dev/null").empty());
}

TEST_CASE("read_file names the path and the reason") {
  const TemporaryFolder folder;
  CHECK(message_of([&] { read_file(folder / "absent"); }) ==
        "cannot read " + (folder / "absent").string() + ": No such file or directory");
  CHECK(message_of([&] { read_file(folder.path()); }) ==
        "cannot read " + folder.path().string() + ": Is a directory");
  CHECK(message_of([] { read_file("two\nlines"); }) ==
        "cannot read two\\x0alines: No such file or directory");

  put(folder / "secret", "x");
  fs::permissions(folder.path(), fs::perms::all);
  fs::permissions(folder / "secret", fs::perms::none);
  const PlainUser user;
  if (!user.is_plain()) {
    WARN("skipped: root can't become another user here");
    return;
  }
  CHECK(message_of([&] { read_file(folder / "secret"); }) ==
        "cannot read " + (folder / "secret").string() + ": Permission denied");
}

TEST_CASE("an atomic write replaces the content, keeps permissions and follows links") {
  const TemporaryFolder folder;
  write_file_atomic(folder / "a", "first");
  CHECK(read_file(folder / "a") == "first");
  fs::permissions(folder / "a", fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
  write_file_atomic(folder / "a", std::string("\0second", 7));
  CHECK(read_file(folder / "a") == std::string("\0second", 7));
  CHECK(fs::status(folder / "a").permissions() ==
        (fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read));

  fs::create_symlink("a", folder / "link");
  write_file_atomic(folder / "link", [](const WritePiece& write) {
    write("in ", 3);
    write(nullptr, 0);
    write("pieces", 6);
  });
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(read_file(folder / "a") == "in pieces");
  fs::create_symlink("new", folder / "dangling");
  write_file_atomic(folder / "dangling", "made");
  CHECK(read_file(folder / "new") == "made");
  CHECK(entries(folder.path()) == 4);

  const std::string long_name(255, 'n');
  write_file_atomic(folder / long_name, "long");
  CHECK(read_file(folder / long_name) == "long");
}

TEST_CASE("B090 a write that doesn't fit leaves the old file and no temporary") {
  const TemporaryFolder folder;
  const fs::path path = folder / "file";
  write_file_atomic(path, "old");
  const std::string large(100'000, 'x');
  std::string message;
  {
    const FileSizeLimit limit(4096);
    message = message_of([&] { write_file_atomic(path, large); });
  }
  CHECK(message == "cannot write " + path.string() + ": File too large");
  CHECK(read_file(path) == "old");
  CHECK(entries(folder.path()) == 1);

  CHECK_THROWS_AS(write_file_atomic(path,
                                    [](const WritePiece& write) {
                                      write("half", 4);
                                      throw std::out_of_range("the producer's own");
                                    }),
                  std::out_of_range);
  CHECK(read_file(path) == "old");
  CHECK(entries(folder.path()) == 1);
}

TEST_CASE("B090 a full device is an error and stays a device") {
  CHECK(message_of([] { write_file_atomic("/dev/full", "x"); }) ==
        "cannot write /dev/full: No space left on device");
  CHECK(fs::is_character_file("/dev/full"));
  AppendFile log("/dev/full");
  CHECK(message_of([&] { log.write_line("x"); }) == "cannot write /dev/full: No space left on device");
}

TEST_CASE("B089 a target that can't be written is refused by name and stays") {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  CHECK(message_of([&] { write_file_atomic(folder.path(), "x"); }) ==
        "cannot write " + folder.path().string() + ": Is a directory");
  CHECK(message_of([&] { write_file_atomic(folder / "gone/file", "x"); }) ==
        "cannot write " + (folder / "gone/file").string() + ": No such file or directory");
  CHECK(message_of([] { write_file_atomic("", "x"); }) == "cannot write : No such file or directory");

  put(folder / "fixed", "old");
  fs::permissions(folder / "fixed", fs::perms::owner_read | fs::perms::others_read);
  std::string message;
  {
    const PlainUser user;
    if (!user.is_plain()) {
      WARN("skipped: root can't become another user here");
      return;
    }
    message = message_of([&] { write_file_atomic(folder / "fixed", "new"); });
  }
  CHECK(message == "cannot write " + (folder / "fixed").string() + ": Permission denied");
  CHECK(read_file(folder / "fixed") == "old");
}

TEST_CASE("B089 a kill at any moment leaves one whole file, and what is left over is cleaned") {
  const TemporaryFolder folder;
  const fs::path path = folder / "file";
  constexpr size_t kBytes = 200'000;
  write_file_atomic(path, std::string(kBytes, 'a'));
  size_t leftovers = 0;
  for (int round = 0; round < 30; ++round) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      try {
        for (int i = 0;; ++i) {
          const std::string piece(1000, static_cast<char>('a' + i % 26));
          write_file_atomic(path, [&](const WritePiece& write) {
            for (size_t done = 0; done < kBytes; done += piece.size()) write(piece.data(), piece.size());
          });
        }
      } catch (...) {
        _exit(1);
      }
    }
    usleep(static_cast<useconds_t>(500 + 733 * round));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    const std::string bytes = read_file(path);
    REQUIRE(bytes.size() == kBytes);
    REQUIRE(std::count(bytes.begin(), bytes.end(), bytes[0]) == static_cast<std::ptrdiff_t>(kBytes));
    leftovers += entries(folder.path()) - 1;
    remove_leftover_temporaries(folder.path());
    REQUIRE(entries(folder.path()) == 1);
  }
  INFO("temporaries left by the kills: " << leftovers);
}

TEST_CASE("only leftovers of dead writers are removed") {
  const TemporaryFolder folder;
  for (const char* name : {"file", ".file.tmp-", ".file.tmp-12x", "file.tmp-12", ".hidden"})
    put(folder / name, "keep");
  fs::create_directory(folder / ".folder.tmp-1");
  put(folder / ".file.tmp-12", "leftover");
  put(folder / ".a.tmp-3.tmp-45", "leftover");
  size_t during = 0;
  write_file_atomic(folder / "new", [&](const WritePiece& write) {
    write("x", 1);
    remove_leftover_temporaries(folder.path());  // as another program would, next to this one at work
    during = entries(folder.path());
  });
  CHECK(during == 7);  // the six that stay, and the temporary in use
  CHECK(read_file(folder / "new") == "x");
  CHECK(entries(folder.path()) == 7);
  CHECK_FALSE(fs::exists(folder / ".file.tmp-12"));
  CHECK_NOTHROW(remove_leftover_temporaries(folder / "absent"));
  CHECK(message_of([&] { remove_leftover_temporaries(folder / "file"); }) ==
        "cannot list " + (folder / "file").string() + ": Not a directory");
}

TEST_CASE("a log grows by whole lines and is mended after a kill") {
  const TemporaryFolder folder;
  const fs::path path = folder / "log";
  {
    AppendFile log(path);
    log.write_line("one");
    log.write_line("");
    CHECK(log.size() == 5);
  }
  put(path, read_file(path) + "thr");
  AppendFile log;
  CHECK_FALSE(log.is_open());
  log = AppendFile(path);
  CHECK(log.drop_half_line() == 3);
  CHECK(log.drop_half_line() == 0);
  log.write_line("three");
  log.flush();
  CHECK(read_file(path) == "one\n\nthree\n");
  log.truncate_to(4);
  CHECK(read_file(path) == "one\n");
  CHECK(message_of([&] { log.truncate_to(5); }) ==
        "cannot cut " + path.string() + " to 5 bytes: it has only 4");
  CHECK(message_of([&] { log.write_line("a\nb"); }) ==
        "a line for " + path.string() + " holds a newline: a\\x0ab");

  put(path, std::string(200'000, 'x'));  // no newline at all, longer than a piece of the search
  CHECK(log.drop_half_line() == 200'000);
  put(path, "a\n" + std::string(200'000, 'x'));
  CHECK(log.drop_half_line() == 200'000);
  CHECK(read_file(path) == "a\n");
  CHECK(message_of([&] { AppendFile nowhere(folder / "gone/log"); }) ==
        "cannot open " + (folder / "gone/log").string() + ": No such file or directory");
}

TEST_CASE("B090 a log line that doesn't fit is taken back") {
  const TemporaryFolder folder;
  AppendFile log(folder / "log");
  log.write_line("whole");
  std::string message;
  {
    const FileSizeLimit limit(100);
    message = message_of([&] { log.write_line(std::string(200, 'x')); });
  }
  CHECK(message == "cannot write " + (folder / "log").string() + ": File too large");
  CHECK(read_file(folder / "log") == "whole\n");
}

TEST_CASE("B075 an input file is read beyond 4 GiB") {
  const TemporaryFolder folder;
  const fs::path path = folder / "large";
  constexpr uint64_t kSize = 5'000'000'000;
  put(path, "start");
  if (truncate(path.c_str(), static_cast<off_t>(kSize)) != 0) {
    WARN("skipped: no sparse files here");
    return;
  }
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(kSize - 3));
    file.write("end", 3);
  }
  const InputFile file(path);
  CHECK(file.size() == kSize);
  char bytes[3] = {};
  file.read_at(kSize - 3, bytes, 3);
  CHECK(std::string(bytes, 3) == "end");
  CHECK(message_of([&] { file.read_at(kSize - 2, bytes, 3); }) ==
        "cannot read " + path.string() + ": expected at least 5000000001 bytes, found 5000000000; " +
            "the file was cut after it was opened");
  CHECK(message_of([] { InputFile device("/dev/zero"); }) == "cannot read /dev/zero: not a regular file");
  CHECK(message_of([&] { InputFile directory(folder.path()); }) ==
        "cannot read " + folder.path().string() + ": Is a directory");
}

TEST_CASE("printable text is one line of UTF-8") {
  CHECK(printable("plain \u00e9\u4e2d\U0001f600") == "plain \u00e9\u4e2d\U0001f600");
  CHECK(printable("a\nb\x7f\xff\xc0\x80\xed\xa0\x80") == "a\\x0ab\\x7f\\xff\\xc0\\x80\\xed\\xa0\\x80");
  CHECK(printable("\u0085\u2028\xf4\x90\x80\x80\xe4\xb8") ==
        "\\xc2\\x85\\xe2\\x80\\xa8\\xf4\\x90\\x80\\x80\\xe4\\xb8");
  CHECK(printable("abcdef", 6) == "abcdef");
  CHECK(printable("abcdefg", 6) == "abcdef...");
}

TEST_CASE("SHA-256 gives the standard's digests") {
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  Sha256 million;
  const std::string piece(1000, 'a');
  for (int i = 0; i < 1000; ++i) million.update(piece.data(), piece.size());
  CHECK(million.hex() == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 doesn't depend on where the bytes are cut") {
  std::string bytes;
  for (int i = 0; i < 200; ++i) bytes += static_cast<char>(i * 31);
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const std::string whole = sha256_hex(bytes.substr(0, size));
    for (const size_t cut : {size_t{1}, size_t{7}, size_t{55}, size_t{64}, size_t{65}}) {
      Sha256 hash;
      for (size_t i = 0; i < size; i += cut) {
        hash.update(bytes.data() + i, std::min(cut, size - i));
        hash.hex();  // looking on the way changes nothing
      }
      REQUIRE(hash.hex() == whole);
    }
  }
}

}  // namespace
}  // namespace storytape
