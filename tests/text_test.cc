#include "train/text.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <clocale>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/random.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/shared.h"
#include "tests/temporary_folder.h"

namespace storytape {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TemporaryFolder;

void write(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string pack(std::string_view text) {
  constexpr int kGzip = MAX_WBITS + 16;
  z_stream z{};
  REQUIRE(deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
  packed.resize(z.total_out);
  deflateEnd(&z);
  return packed;
}

std::string random_bytes(size_t n) {
  Random random(5);
  std::string bytes;
  for (size_t i = 0; i < n; ++i) bytes += static_cast<char>(random.below(256));
  return bytes;
}

// What load_text makes of a file with these bytes.
std::string loaded(std::string_view bytes, const std::string& name = "data.txt",
                   const TextOptions& options = {}) {
  const TemporaryFolder folder;
  write(folder / name, bytes);
  return load_text({folder / name}, options);
}

// The message with which load_text refuses it; the folder's name is cut off.
std::string refusal(std::string_view bytes, const std::string& name) {
  const TemporaryFolder folder;
  write(folder / name, bytes);
  std::string message = message_of([&] { load_text({folder / name}); });
  const std::string path = (folder / name).string();
  if (const size_t at = message.find(path); at != std::string::npos) message.replace(at, path.size(), name);
  CHECK(message.find('\n') == std::string::npos);
  return message;
}

}  // namespace

TEST_CASE("B072 white space, BOM, CRLF and missing newlines are kept byte for byte") {
  for (const std::string text :
       {"  leading and trailing  ", "\ttabs\t", "a\r\nb\r\n", "lone\rCR", "\xEF\xBB\xBFwith a BOM",
        "no final newline", "\n\n\n", " ", "non-breaking\xC2\xA0space", "a\n<|endoftext|>\r\n \r\nb",
        "a\n<|endoftext|>\n\n \nb\n<|endoftext|>"}) {
    CAPTURE(text);
    CHECK(loaded(text) == text);
    CHECK(loaded(pack(text), "data.txt.gz") == text);
    CHECK(describe_text(text).bytes == text.size());
  }
}

TEST_CASE("B072 the locale changes nothing") {
  const std::string text = "caf\xC3\xA9 \xE2\x80\x9Cquoted\xE2\x80\x9D\xA0\n<|endoftext|>\n";
  const std::string before = std::setlocale(LC_ALL, nullptr);
  for (const char* locale : {"C", "C.UTF-8", "POSIX"}) {
    if (std::setlocale(LC_ALL, locale) == nullptr) continue;
    CHECK(loaded(text) == text);
  }
  std::setlocale(LC_ALL, before.c_str());
}

TEST_CASE("B071 bytes that are no UTF-8 are kept") {
  std::string all;
  for (int byte = 1; byte < 256; ++byte) all += static_cast<char>(byte);
  for (const std::string& text :
       {std::string("\xE2\x80"), std::string("\xC0\x80"), std::string("\xFF\xFE"), std::string("\x80\xBF"),
        std::string("\xED\xA0\x80"), std::string("cut \xF0\x9F\x98"), all}) {
    CHECK(loaded(text) == text);
  }
  const std::string noise = random_bytes(1'000'000);
  const TextOptions options{.allow_nul = true};
  CHECK(loaded(noise, "data.txt", options) == noise);
  CHECK(loaded(pack(noise), "data.gz", options) == noise);
}

TEST_CASE("B072 NUL in the first 64 KB is refused as binary, and kept when it is allowed") {
  const std::string text("a\0b", 3);
  CHECK(refusal(text, "data.txt") ==
        "cannot use data.txt as text: its byte 1 is NUL, so it looks like binary data");
  CHECK(loaded(text, "data.txt", {.allow_nul = true}) == text);
  CHECK(refusal(pack(text), "data.gz") ==
        "cannot use data.gz as text: its byte 1 is NUL, so it looks like binary data");

  std::string late(1 << 16, 'x');
  late += '\0';
  CHECK(loaded(late) == late);
  late.erase(0, 1);
  CHECK(refusal(late, "data.txt") ==
        "cannot use data.txt as text: its byte 65535 is NUL, so it looks like binary data");
  CHECK(refusal(std::string("\xFF\xFEO\0n\0", 6), "data.txt") ==
        "cannot use data.txt as text: it is UTF-16, wanted UTF-8");
}

TEST_CASE("several files are joined as they are") {
  const TemporaryFolder folder;
  // A shard may end anywhere, even within a separator.
  write(folder / "1.txt", "One.\n<|endof");
  write(folder / "2.gz", pack("text|>\nTwo.\n<|endoftext|>\nThr"));
  write(folder / "3.txt", "ee.");
  const std::string text = load_text({folder / "1.txt", folder / "2.gz", folder / "3.txt"});
  CHECK(text == "One.\n<|endoftext|>\nTwo.\n<|endoftext|>\nThree.");
  CHECK(describe_text(text).stories == 3);
}

TEST_CASE("a .gz may hold several members and zeros after them") {
  const std::string packed = pack("One.\n") + pack("") + pack("Two.\n");
  CHECK(loaded(packed, "data.gz") == "One.\nTwo.\n");
  CHECK(loaded(packed + std::string(512, '\0'), "data.gz") == "One.\nTwo.\n");
  const std::string large = random_bytes(3'000'000);
  CHECK(loaded(pack(large) + pack(large), "data.gz", {.allow_nul = true}) == large + large);
}

TEST_CASE("a truncated .gz is refused wherever it is cut") {
  const std::string packed = pack("Once upon a time, there was a fox.\n") + pack("The end.\n");
  const size_t first = pack("Once upon a time, there was a fox.\n").size();
  for (size_t size = 2; size < packed.size(); ++size) {
    if (size == first) continue;  // whole members
    CAPTURE(size);
    CHECK(refusal(packed.substr(0, size), "data.gz") == "cannot read data.gz: the gzip data is cut short");
  }
}

TEST_CASE("a damaged .gz is refused") {
  const std::string packed = pack(random_bytes(2000));
  Random random(9);
  for (int i = 0; i < 200; ++i) {
    std::string damaged = packed;
    const size_t at = 18 + random.below(damaged.size() - 18);
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << random.below(8)));
    CAPTURE(at);
    const std::string message = refusal(damaged, "data.gz");
    CHECK(message.starts_with("cannot read data.gz: "));
    CHECK(message.find("gzip data") != std::string::npos);
  }
  CHECK(refusal(packed + "junk", "data.gz").starts_with("cannot read data.gz: damaged gzip data"));
  CHECK(refusal("plain text", "data.gz") == "cannot read data.gz: it is named .gz but holds no gzip data");
  CHECK(refusal(pack("x"), "data.txt") ==
        "cannot use data.txt as text: it is gzip data; name it .gz to have it unpacked");
}

TEST_CASE("B077 what is no data file is refused by its name, also as one of several") {
  const TemporaryFolder folder;
  write(folder / "good.txt", "One.\n");
  write(folder / "empty.txt", "");
  write(folder / "empty.gz", pack(""));
  fs::create_directory(folder / "folder");
  const auto refused = [&](const std::string& name) {
    const fs::path path = folder / name;
    const std::string alone = message_of([&] { load_text({path}); });
    CHECK(message_of([&] { load_text({folder / "good.txt", path, folder / "good.txt"}); }) == alone);
    CHECK(alone.find(path.string()) != std::string::npos);
    CHECK(alone.find('\n') == std::string::npos);
    return alone;
  };
  CHECK(refused("missing.txt").find("No such file") != std::string::npos);
  CHECK(refused("folder").find("Is a directory") != std::string::npos);
  CHECK(refused("empty.txt").ends_with("the file is empty"));
  CHECK(refused("empty.gz").ends_with("it is empty when unpacked"));
  if (geteuid() != 0) {
    write(folder / "secret.txt", "x");
    REQUIRE(chmod((folder / "secret.txt").c_str(), 0) == 0);
    CHECK(refused("secret.txt").find("Permission denied") != std::string::npos);
  }
  CHECK(message_of([] { load_text({}); }) == "no data files were given, wanted at least one");
  CHECK_THROWS_AS(load_text({}), UsageError);
}

TEST_CASE("B063 /dev/null is an empty file") {
  CHECK(message_of([] { load_text({"/dev/null"}); }) == "cannot use /dev/null as text: the file is empty");
}

TEST_CASE("a file name can't break the message's line") {
  CHECK(message_of([] { load_text({"no\nsuch"}); }).find('\n') == std::string::npos);
}

TEST_CASE("stories end at separators, wherever they stand") {
  const std::string text = "a<|endoftext|>b\n<|endoftext|>\n<|endoftext|><|endoftext|> <|endoftext >";
  std::vector<std::string> stories;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = story_end(text, begin);
    stories.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  CHECK(stories == std::vector<std::string>{"a<|endoftext|>", "b\n<|endoftext|>", "\n<|endoftext|>",
                                            "<|endoftext|>", " <|endoftext >"});
}

TEST_CASE("a text is described") {
  const TextInfo info =
      describe_text("\xEF\xBB\xBFOne.\r\n<|endoftext|>\r\n \r\n<|endoftext|>\nTw\xFF\xC3o.\xEF\xBF\xBD\n");
  CHECK(info.bytes == 51);
  CHECK(info.stories == 2);
  CHECK(info.separators == 2);
  CHECK(info.longest_story == 11);
  CHECK(info.invalid_parts == 2);
  CHECK(info.crlf_lines == 3);
  CHECK(info.byte_order_mark);
  const TextInfo none = describe_text("");
  CHECK(none.stories == 0);
  CHECK(none.separators == 0);
  CHECK(!none.byte_order_mark);
}

TEST_CASE("a text is split between stories at about 5%") {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += fmt::format("Story number {:04}.\n<|endoftext|>\n", i);
  const TextSplit split = split_stories(text);
  CHECK(std::string(split.train) + std::string(split.held_out) == text);
  CHECK(split.held_out.starts_with("Story number 0950."));
  CHECK(split.train.ends_with("Story number 0949.\n<|endoftext|>\n"));
  CHECK(split_stories(text, 0.5).held_out.starts_with("Story number 0500."));
  CHECK(split_stories(text, 0.9999).held_out.starts_with("Story number 0001."));
  CHECK(split_stories(text, 1e-9).held_out.starts_with("Story number 0999."));
}

TEST_CASE("a split needs a story on both sides") {
  const auto split = [](std::string_view text) {
    const TextSplit parts = split_stories(text);
    return std::pair(std::string(parts.train), std::string(parts.held_out));
  };
  CHECK(split("a<|endoftext|>b") == std::pair<std::string, std::string>("a<|endoftext|>", "b"));
  CHECK(split("a\n<|endoftext|>\nb") == std::pair<std::string, std::string>("a\n<|endoftext|>\n", "b"));
  CHECK(split("a\r\n<|endoftext|>\r\nb") ==
        std::pair<std::string, std::string>("a\r\n<|endoftext|>\r\n", "b"));
  // Blank pieces are no stories.
  CHECK(split("a\n<|endoftext|>\n \n<|endoftext|>\nb\n<|endoftext|>\n \n") ==
        std::pair<std::string, std::string>("a\n<|endoftext|>\n", " \n<|endoftext|>\nb\n<|endoftext|>\n \n"));
  for (const char* text :
       {"a", "a\n<|endoftext|>\n", "<|endoftext|>\n<|endoftext|>a", "a<|endoftext|> \n\t<|endoftext|>\r\n"}) {
    CAPTURE(text);
    CHECK(message_of([&] { split_stories(text); }) ==
          "cannot hold out a part of the text: it has 1 story (divided by <|endoftext|>), wanted at least 2; "
          "give the "
          "held-out text as a file of its own");
  }
  CHECK(message_of([] { split_stories(""); }).find("has 0 stories") != std::string::npos);
}

TEST_CASE("B074 a held-out share of 0 or 1 is refused") {
  for (const double share : {0.0, 1.0, -0.1, 1.5, std::nan(""), HUGE_VAL}) {
    CAPTURE(share);
    CHECK_THROWS_AS(split_stories("a<|endoftext|>b", share), UsageError);
  }
}

TEST_CASE("real TinyStories loads and splits") {
  STORYTAPE_NEED_SHARED(shared);
  const std::string text = load_text({shared / "data/tinystories/train.txt"});
  const TextInfo info = describe_text(text);
  CHECK(info.bytes == 9'103'744);
  CHECK(info.stories == 10'794);
  CHECK(info.invalid_parts == 0);
  const TextSplit split = split_stories(text);
  const double share = static_cast<double>(split.held_out.size()) / static_cast<double>(text.size());
  CHECK(share == Approx(0.05).margin(0.0005));
  CHECK(describe_text(split.train).stories + describe_text(split.held_out).stories == 10'794);
}

}  // namespace storytape
