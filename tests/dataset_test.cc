#include "train/dataset.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tensor/random.h"
#include "tests/catch.h"
#include "tests/error_message.h"
#include "tests/shared.h"
#include "tests/temporary_folder.h"
#include "train/corpus.h"
#include "train/files.h"
#include "train/sha256.h"
#include "train/text.h"
#include "train/token_cache.h"

namespace storytape {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TemporaryFolder;

// Bytes, eight specials, and a few merges that cross spaces and newlines.
Tokenizer small_tokenizer() {
  return Tokenizer::from_merges(std::vector<BpeMerge>{{'h', 'e', 264},
                                                      {' ', 't', 265},
                                                      {265, 264, 266},
                                                      {'.', '\n', 267},
                                                      {'\n', '\n', 268},
                                                      {'t', 'h', 269}});
}

TokenStream numbered(size_t n) {
  TokenStream stream(1 << 20);
  std::vector<int32_t> ids(n);
  std::iota(ids.begin(), ids.end(), 0);
  stream.append(ids);
  return stream;
}

std::vector<int32_t> ids_of(const TokenStream& stream) {
  std::vector<int32_t> ids(stream.size());
  stream.copy(0, ids);
  return ids;
}

void write(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string round_trip(const std::string& text, const Tokenizer& tokenizer) {
  ThreadPool pool(2);
  return tokenizer.decode(ids_of(encode_text(text, tokenizer, pool)));
}

}  // namespace

TEST_CASE("B075 ids of vocabularies around 16 bits are kept") {
  for (const size_t vocab : {256ul, 32'768ul, 32'769ul, 65'535ul, 65'536ul, 65'537ul, 1'000'000ul}) {
    CAPTURE(vocab);
    TokenStream stream(vocab);
    CHECK(stream.wide_ids() == (vocab > 65'536));
    std::vector<int32_t> ids;
    for (const size_t id : {0ul, 1ul, 255ul, 32'767ul, 32'768ul, 65'534ul, 65'535ul, 65'536ul, 999'999ul}) {
      if (id < vocab) ids.push_back(static_cast<int32_t>(id));
    }
    ids.push_back(static_cast<int32_t>(vocab - 1));
    stream.append(ids);
    CHECK(ids_of(stream) == ids);
    CHECK(stream[ids.size() - 1] == static_cast<int32_t>(vocab - 1));
    const std::vector<int32_t> too_large{static_cast<int32_t>(vocab)}, negative{-1};
    CHECK(message_of([&] { stream.append(too_large); }) ==
          fmt::format("token id {} does not fit a vocabulary of {} tokens", vocab, vocab));
    CHECK(message_of([&] { stream.append(negative); }).starts_with("token id -1 "));
    CHECK(ids_of(stream) == ids);
    TokenStream again(vocab);
    again.assign_raw(stream.raw());
    CHECK(again == stream);
  }
  CHECK_THROWS_AS(TokenStream(size_t{1} << 31), Error);
}

TEST_CASE("B075 window starts beyond 4 billion tokens are drawn") {
  const uint64_t windows = 5'000'000'000;
  size_t beyond = 0;
  for (uint32_t i = 0; i < 1000; ++i) {
    const size_t start = WindowSampler::start(1, 0, i, windows);
    REQUIRE(start < windows);
    beyond += start > 0xFFFFFFFF;
  }
  CHECK(beyond > 90);
  CHECK(beyond < 200);
}

TEST_CASE("B069 only separators in data become ids, and every text comes back exactly") {
  const Tokenizer tokenizer = small_tokenizer();
  ThreadPool pool(2);
  const int32_t end = tokenizer.end_of_text();
  const auto separators = [&](std::string_view text) {
    const std::vector<int32_t> ids = ids_of(encode_text(text, tokenizer, pool));
    return std::count(ids.begin(), ids.end(), end);
  };
  CHECK(separators("a\n<|endoftext|>\nb\n<|endoftext|>\n") == 2);
  CHECK(separators("glued<|endoftext|>word<|endoftext|><|endoftext|>") == 3);
  CHECK(separators("half <|endof text|> <|endoftext|") == 0);
  CHECK(separators("split <|endof\ntext|>") == 0);
  CHECK(tokenizer.encode("<|endoftext|>", Specials::kPlain).size() > 1);
  for (const std::string text :
       {"a\n<|endoftext|>\n \n\nb\r\n<|endoftext|>\r\n", "<|endof<|endoftext|>text|>", "<|endoftext|"}) {
    CHECK(round_trip(text, tokenizer) == text);
    CHECK(tokenizer.decode(tokenizer.encode(text, Specials::kPlain)) == text);
  }
}

TEST_CASE("B071 any bytes come back exactly") {
  const Tokenizer tokenizer = small_tokenizer();
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  Random random(1);
  std::string noise;
  for (int i = 0; i < 1'000'000; ++i) noise += static_cast<char>(random.below(256));
  for (const std::string& text :
       {all, noise, std::string("\xE2\x80"), std::string("\xED\xA0\x80"), std::string("\xF0\x9F\x98")}) {
    CHECK(round_trip(text, tokenizer) == text);
  }
}

TEST_CASE("a text cut at its separators gives the ids of the whole, for any number of threads") {
  const Tokenizer tokenizer = small_tokenizer();
  std::string text = make_corpus(1, 3'000'000);
  text.resize(text.size() - 20);  // the last separator is broken
  text += "\r\n \r\n\xFF";
  const std::vector<int32_t> whole = tokenizer.encode(text, Specials::kParsed);
  for (const size_t threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    std::vector<uint64_t> done;
    uint64_t all_bytes = 0;
    const TokenStream stream = encode_text(text, tokenizer, pool, [&](uint64_t now, uint64_t all) {
      done.push_back(now);
      all_bytes = all;
    });
    CHECK(ids_of(stream) == whole);
    CHECK(!stream.wide_ids());
    CHECK(done.back() == text.size());
    CHECK(all_bytes == text.size());
    CHECK(std::is_sorted(done.begin(), done.end()));
  }
}

TEST_CASE("a text is not cut where another special token could cross a separator") {
  const std::vector<std::string> specials = {"<|endoftext|>", "text|>\nOnce"};
  const Tokenizer tokenizer = Tokenizer::from_merges({}, specials);
  const Tokenizer without = Tokenizer::from_merges({}, std::vector<std::string>{"<|end|>"});
  const std::string text = make_corpus(1, 1'000'000);
  ThreadPool pool(2);
  for (const Tokenizer& each : {tokenizer, without}) {
    CHECK(ids_of(encode_text(text, each, pool)) == each.encode(text, Specials::kParsed));
  }
}

TEST_CASE("bytes of tokens are bytes of the true text") {
  const Tokenizer tokenizer = small_tokenizer();
  ThreadPool pool(1);
  const std::string text = "the\n\n<|endoftext|>\r\n the.\n\xFF";
  const TokenStream stream = encode_text(text, tokenizer, pool);
  CHECK(text_bytes(stream, tokenizer, 0, stream.size()) == text.size());
  for (size_t i = 0; i <= stream.size(); ++i) {
    CHECK(text_bytes(stream, tokenizer, 0, i) + text_bytes(stream, tokenizer, i, stream.size()) ==
          text.size());
  }
  const EvalWindows windows(stream, 4);
  CHECK(windows.targets() == stream.size() - 1);
  CHECK(windows.target_bytes(tokenizer) == text.size() - tokenizer.token_bytes(stream[0]).size());
}

TEST_CASE("B074 context + 1 tokens give one window and fewer an error with both numbers") {
  constexpr size_t kContext = 8;
  for (const size_t tokens : {0, 1, 7, 8}) {
    CAPTURE(tokens);
    const TokenStream stream = numbered(tokens);
    CHECK(
        message_of([&] { WindowSampler(stream, kContext, 1); }) ==
        fmt::format("the training text has {} tokens, wanted at least 9 for a window of context 8", tokens));
  }
  for (const size_t tokens : {9, 10}) {
    const TokenStream stream = numbered(tokens);
    const WindowSampler sampler(stream, kContext, 1);
    CHECK(sampler.windows() == tokens - kContext);
    std::vector<int32_t> x(kContext), y(kContext);
    std::map<int32_t, int> starts;
    for (uint32_t i = 0; i < 100; ++i) {  // a batch larger than the number of windows
      sampler.window(3, i, x, y);
      ++starts[x[0]];
      for (size_t t = 0; t < kContext; ++t) {
        REQUIRE(x[t] == x[0] + static_cast<int32_t>(t));
        REQUIRE(y[t] == x[t] + 1);
      }
    }
    CHECK(starts.size() == tokens - kContext);
  }
  const TokenStream stream = numbered(100);
  CHECK_THROWS_AS(WindowSampler(stream, 0, 1), Error);
  CHECK_THROWS_AS(WindowSampler(stream, std::numeric_limits<size_t>::max(), 1), Error);
  std::vector<int32_t> short_one(3);
  CHECK_THROWS_AS(WindowSampler(stream, 4, 1).window(0, 0, short_one, short_one), Error);
}

TEST_CASE("windows are a pure function of seed, step and index, and uniform") {
  const TokenStream stream = numbered(1010);
  const WindowSampler sampler(stream, 10, 42);
  const WindowSampler again(stream, 10, 42), other(stream, 10, 43);
  size_t differ = 0, steps_differ = 0;
  std::vector<int> hits(1000);
  for (uint64_t step = 0; step < 1000; ++step) {
    for (uint32_t index = 0; index < 100; ++index) {
      const size_t start = sampler.start(step, index);
      ++hits[start];
      differ += start != other.start(step, index);
      steps_differ += start != sampler.start(step + 1, index);
    }
  }
  for (const auto& [step, index] : {std::pair<uint64_t, uint32_t>{0, 0}, {999, 99}, {7, 3}}) {
    CHECK(sampler.start(step, index) == again.start(step, index));
  }
  CHECK(differ > 99'000);
  CHECK(steps_differ > 99'000);
  // 100 draws expected for each place; chi-squared with 999 degrees of freedom stays below 1143 with p =
  // 0.999.
  double chi2 = 0;
  for (const int n : hits) chi2 += (n - 100.0) * (n - 100.0) / 100.0;
  CHECK(chi2 < 1143);
  CHECK(chi2 > 863);
}

TEST_CASE("evaluation windows score every token but the first exactly once") {
  for (const size_t tokens : {2, 3, 8, 9, 10, 17, 18, 100}) {
    for (const size_t context : {1, 2, 8, 200}) {
      CAPTURE(tokens, context);
      const TokenStream stream = numbered(tokens);
      const EvalWindows windows(stream, context);
      std::vector<int> scored(tokens);
      for (size_t i = 0; i < windows.size(); ++i) {
        const EvalWindows::Window w = windows[i];
        REQUIRE(w.targets >= 1);
        REQUIRE(w.targets <= context);
        std::vector<int32_t> x(w.targets), y(w.targets);
        windows.window(i, x, y);
        for (size_t t = 0; t < w.targets; ++t) {
          REQUIRE(y[t] == x[t] + 1);
          ++scored[static_cast<size_t>(y[t])];
        }
      }
      CHECK(scored[0] == 0);
      CHECK(std::count(scored.begin() + 1, scored.end(), 1) == static_cast<std::ptrdiff_t>(tokens - 1));
      CHECK(windows.targets() == tokens - 1);
      CHECK_THROWS_AS(windows[windows.size()], Error);
    }
  }
}

TEST_CASE("B074 held-out text of fewer than two tokens is an error") {
  for (const size_t tokens : {0, 1}) {
    const TokenStream stream = numbered(tokens);
    CHECK(message_of([&] {
            EvalWindows(stream, 8);
          }).starts_with(fmt::format("the held-out text has {} token", tokens)));
  }
}

TEST_CASE("a token cache spares the second encoding") {
  const TemporaryFolder folder;
  const Tokenizer tokenizer = small_tokenizer();
  ThreadPool pool(2);
  const std::string text = make_corpus(1, 100'000);
  size_t encoded = 0;
  std::vector<std::string> notices;
  const auto tokens = [&](std::string_view of) {
    return cached_encode_text(
        of, tokenizer, pool, folder / "cache/tokens", [&](const std::string& n) { notices.push_back(n); },
        [&](uint64_t, uint64_t) { ++encoded; });
  };
  const TokenStream first = tokens(text);
  CHECK(encoded > 0);
  encoded = 0;
  CHECK(tokens(text) == first);
  CHECK(encoded == 0);
  CHECK(tokens(text + "!").size() > first.size());
  CHECK(encoded > 0);
  CHECK(notices.empty());
  CHECK(ids_of(first) == tokenizer.encode(text, Specials::kParsed));

  const Tokenizer other = Tokenizer::from_merges({});
  const TokenStream bytes = cached_encode_text(text, other, pool, folder / "cache/tokens");
  CHECK(bytes.size() > first.size());
  CHECK(std::distance(fs::directory_iterator(folder / "cache/tokens"), {}) == 3);
  CHECK(cached_encode_text(text, tokenizer, pool, {}) == first);
}

TEST_CASE("a token cache that is damaged anywhere is made anew with a notice") {
  const TemporaryFolder folder;
  const Tokenizer tokenizer = small_tokenizer();
  ThreadPool pool(1);
  const std::string text = "the end.\n<|endoftext|>\n";
  const TokenStream tokens = cached_encode_text(text, tokenizer, pool, folder.path());
  const TokenCache cache(folder.path(), text, tokenizer);
  const std::string whole = read_file(cache.path());
  REQUIRE(whole.size() == 160 + 2 * tokens.size() + 64);

  const auto refused = [&](const std::string& damaged) {
    write(cache.path(), damaged);
    std::string notice;
    const bool read = cache.read([&](const std::string& n) { notice = n; }).has_value();
    CHECK(!read);
    CHECK(notice.starts_with("the token cache " + cache.path().string() + " is made anew: "));
    CHECK(notice.find('\n') == std::string::npos);
  };
  for (size_t at = 0; at < whole.size(); ++at) {
    CAPTURE(at);
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    refused(damaged);
  }
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    refused(whole.substr(0, size));
  }
  refused(whole + "x");
  refused(std::string(1000, '\xFF'));
  // A count whose bytes would wrap.
  std::string huge = whole;
  huge.replace(24, 8, std::string(7, '\0') + "\x80");
  refused(huge);

  std::string notice;
  CHECK(cached_encode_text(text, tokenizer, pool, folder.path(), [&](const std::string& n) { notice = n; }) ==
        tokens);
  CHECK(!notice.empty());
  CHECK(read_file(cache.path()) == whole);
}

TEST_CASE("a token cache of ids outside the vocabulary is made anew") {
  const TemporaryFolder folder;
  const Tokenizer tokenizer = small_tokenizer();
  ThreadPool pool(1);
  const std::string text = "the end";
  const TokenStream tokens = cached_encode_text(text, tokenizer, pool, folder.path());
  const TokenCache cache(folder.path(), text, tokenizer);
  std::string file = read_file(cache.path());
  file.replace(160, 2, "\xFF\xFF");
  file.replace(file.size() - 64, 64, sha256_hex(file.substr(0, file.size() - 64)));
  write(cache.path(), file);
  std::string notice;
  CHECK(cached_encode_text(text, tokenizer, pool, folder.path(), [&](const std::string& n) { notice = n; }) ==
        tokens);
  CHECK(notice.find("token id 65535") != std::string::npos);
}

TEST_CASE("B077 a token cache that can't be written is an error that names it") {
  const TemporaryFolder folder;
  const Tokenizer tokenizer = small_tokenizer();
  ThreadPool pool(2);
  write(folder / "file", "x");
  const std::string no_folder =
      message_of([&] { cached_encode_text("the", tokenizer, pool, folder / "file/cache"); });
  CHECK(no_folder.find((folder / "file/cache").string()) != std::string::npos);

  // A full disk, as a limit on the size of files.
  ignore_file_size_signal();
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit tight = before;
  tight.rlim_cur = 50'000;
  const std::string text = make_corpus(1, 200'000);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const std::string full = message_of([&] { cached_encode_text(text, tokenizer, pool, folder / "full"); });
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(full.find((folder / "full").string()) != std::string::npos);
  CHECK(fs::is_empty(folder / "full"));
}

TEST_CASE("B068 one enormous story is encoded in linear time") {
  const Tokenizer tokenizer = small_tokenizer();
  ThreadPool pool(2);
  const auto seconds = [&](size_t bytes) {
    const std::string text(bytes, 'h');
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      CHECK(encode_text(text, tokenizer, pool).size() == bytes);
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best;
  };
  CHECK(seconds(4'000'000) < 4 * 2.5 * seconds(1'000'000) + 0.05);
}

TEST_CASE("a real text gives the ids of the golden tokenizer") {
  STORYTAPE_NEED_SHARED(shared);
  const Tokenizer tokenizer = Tokenizer::load(shared / "golden-tokenizer/storylm-4096.tokenizer.json");
  ThreadPool pool(2);
  const std::string text = load_text({shared / "data/tinystories/valid.txt"});
  const TokenStream stream = encode_text(text, tokenizer, pool);
  CHECK(stream.size() == 81'582);
  CHECK(text_bytes(stream, tokenizer, 0, stream.size()) == 440'183);
  const std::span<const std::byte> raw = stream.raw();
  CHECK(sha256_hex({reinterpret_cast<const char*>(raw.data()), raw.size()}).starts_with("44113478f5340ea6"));
}

}  // namespace storytape
