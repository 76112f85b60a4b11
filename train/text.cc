#include "train/text.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <optional>
#include <stdexcept>

#include "tensor/error.h"
#include "train/files.h"
#include "train/tokenizer_utf8.h"

namespace storytape {
namespace {

namespace fs = std::filesystem;

// Names are shown whole; only what could break the line is escaped.
std::string shown(const fs::path& path) {
  return printable(path.native(), path.native().size());
}

class Inflater {
 public:
  Inflater() {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  z_stream stream{};
};

std::string unpack_members(std::string_view packed, const fs::path& path) {
  constexpr size_t kPiece = size_t{1} << 18;
  std::string text;
  std::string piece(kPiece, '\0');
  Inflater inflater;
  z_stream& z = inflater.stream;
  size_t used = 0;
  for (;;) {
    if (z.avail_in == 0) {
      const size_t taken = std::min(packed.size() - used, kPiece);
      z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + used));
      z.avail_in = static_cast<uInt>(taken);
      used += taken;
    }
    z.next_out = reinterpret_cast<Bytef*>(piece.data());
    z.avail_out = kPiece;
    const int status = inflate(&z, Z_NO_FLUSH);
    text.append(piece, 0, kPiece - z.avail_out);
    if (status == Z_STREAM_END) {
      const std::string_view rest = packed.substr(used - z.avail_in);
      // Tapes and disks pad with zeros; gzip passes over them too.
      if (rest.find_first_not_of('\0') == std::string_view::npos) return text;
      inflateReset(&z);
    } else if (status == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (status == Z_OK || status == Z_BUF_ERROR) {
      const bool all_read = z.avail_in == 0 && used == packed.size();
      if (all_read && z.avail_out > 0) fail("cannot read {}: the gzip data is cut short", shown(path));
    } else {
      fail("cannot read {}: damaged gzip data ({})", shown(path), z.msg ? z.msg : "unknown fault");
    }
  }
}

std::string unpack(std::string_view packed, const fs::path& path) {
  try {
    return unpack_members(packed, path);
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  fail("cannot read {}: its unpacked text does not fit into memory", shown(path));
}

bool starts_with_bytes(std::string_view text, std::string_view bytes) {
  return text.substr(0, bytes.size()) == bytes;
}

void refuse_binary(std::string_view text, const fs::path& path) {
  constexpr size_t kLooked = size_t{1} << 16;
  const size_t nul = text.substr(0, kLooked).find('\0');
  if (nul == std::string_view::npos) return;
  if (starts_with_bytes(text, "\xFF\xFE") || starts_with_bytes(text, "\xFE\xFF")) {
    fail("cannot use {} as text: it is UTF-16, wanted UTF-8", shown(path));
  }
  fail("cannot use {} as text: its byte {} is NUL, so it looks like binary data", shown(path), nul);
}

std::string load_one(const fs::path& path, const TextOptions& options) {
  std::string text = read_file(path);
  if (text.empty()) fail("cannot use {} as text: the file is empty", shown(path));
  const bool gzip = starts_with_bytes(text, "\x1F\x8B");
  if (path.extension() == ".gz") {
    if (!gzip) fail("cannot read {}: it is named .gz but holds no gzip data", shown(path));
    text = unpack(text, path);
    if (text.empty()) fail("cannot use {} as text: it is empty when unpacked", shown(path));
  } else if (gzip && !options.allow_nul) {
    fail("cannot use {} as text: it is gzip data; name it .gz to have it unpacked", shown(path));
  }
  if (!options.allow_nul) refuse_binary(text, path);
  return text;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

// The place after the line end (LF or CRLF) at `at`, if there is one.
size_t after_line_end(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at);
  if (starts_with_bytes(rest, "\n")) return at + 1;
  if (starts_with_bytes(rest, "\r\n")) return at + 2;
  return at;
}

std::string_view without_separator(std::string_view story) {
  return story.ends_with(kStorySeparator) ? story.substr(0, story.size() - kStorySeparator.size()) : story;
}

uint64_t count(std::string_view text, std::string_view part) {
  uint64_t n = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

uint64_t count_invalid_parts(std::string_view text) {
  constexpr size_t kPiece = size_t{1} << 16;
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  Utf8Stream stream;
  uint64_t replaced = 0;
  for (size_t at = 0; at < text.size(); at += kPiece) {
    replaced += count(stream.push(text.substr(at, kPiece)), kReplacement);
  }
  replaced += count(stream.finish(), kReplacement);
  return replaced - count(text, kReplacement);
}

}  // namespace

std::string load_text(const std::vector<fs::path>& paths, const TextOptions& options) {
  if (paths.empty()) fail_usage("no data files were given, wanted at least one");
  std::string text = load_one(paths[0], options);
  for (size_t i = 1; i < paths.size(); ++i) text += load_one(paths[i], options);
  return text;
}

size_t story_end(std::string_view text, size_t begin) {
  const size_t at = text.find(kStorySeparator, begin);
  return at == std::string_view::npos ? text.size() : at + kStorySeparator.size();
}

TextSplit split_stories(std::string_view text, double held_out_share) {
  if (!(held_out_share > 0 && held_out_share < 1)) {
    fail_usage("held-out share is {}, wanted more than 0 and less than 1", held_out_share);
  }
  const double wanted = static_cast<double>(text.size()) * (1 - held_out_share);
  const auto distance = [&](size_t cut) { return std::abs(static_cast<double>(cut) - wanted); };
  uint64_t stories = 0;
  std::optional<size_t> best;
  // A place between stories becomes a cut when a story follows.
  std::optional<size_t> candidate;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = story_end(text, begin);
    if (!is_blank(without_separator(text.substr(begin, end - begin)))) {
      ++stories;
      if (candidate && (!best || distance(*candidate) < distance(*best))) best = candidate;
      candidate = after_line_end(text, end);
    }
    begin = end;
  }
  if (!best) {
    fail(
        "cannot hold out a part of the text: it has {} {} (divided by {}), wanted at least 2; give the "
        "held-out text "
        "as a file of its own",
        stories, stories == 1 ? "story" : "stories", kStorySeparator);
  }
  return {text.substr(0, *best), text.substr(*best)};
}

TextInfo describe_text(std::string_view text) {
  TextInfo info;
  info.bytes = text.size();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = story_end(text, begin);
    const std::string_view piece = text.substr(begin, end - begin);
    const std::string_view story = without_separator(piece);
    if (story.size() < piece.size()) ++info.separators;
    if (!is_blank(story)) {
      ++info.stories;
      info.longest_story = std::max<uint64_t>(info.longest_story, story.size());
    }
    begin = end;
  }
  info.invalid_parts = count_invalid_parts(text);
  info.crlf_lines = count(text, "\r\n");
  info.byte_order_mark = starts_with_bytes(text, "\xEF\xBB\xBF");
  return info;
}

}  // namespace storytape
