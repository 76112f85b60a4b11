#include "train/tokenizer_json.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "train/bpe_alphabet.h"
#include "train/json.h"
#include "train/tokenizer_hf.h"
#include "train/tokenizer_refuse.h"

namespace storytape {
namespace {

using Json = nlohmann::json;

std::vector<std::string> read_g2c_specials(const Json& file, int64_t version, const std::string& what) {
  const auto found = file.find("special_tokens");
  if (version == 1) {
    if (found != file.end() && !found->empty()) {
      refuse_file(what, "special_tokens is given, but version 1 has none");
    }
    return {};
  }
  if (found == file.end() || !found->is_array()) refuse_file(what, "special_tokens is missing or no array");
  std::vector<std::string> specials;
  for (const Json& token : *found) {
    const size_t i = specials.size();
    if (!token.is_string() || is_empty_text(token)) {
      refuse_file(what, "special_tokens[{}] is {}, wanted a text", i, shown(token));
    }
    const auto text = token.get<std::string>();
    if (std::find(specials.begin(), specials.end(), text) != specials.end()) {
      refuse_file(what, "special_tokens[{}] is {}, as an earlier one", i, shown(token));
    }
    specials.push_back(text);
  }
  return specials;
}

TokenizerParts parse_g2c_tokenizer(const Json& file, const std::string& what) {
  if (!file.contains("format")) refuse_file(what, "format is missing, wanted \"g2c.bpe\"");
  if (file["format"] != "g2c.bpe") {
    refuse_file(what, "format is {}, wanted \"g2c.bpe\"", shown(file["format"]));
  }
  const Json version = file.value("version", Json());
  if (!version.is_number_integer() || (version != 1 && version != 2)) {
    refuse_file(what, "version is {}, wanted 1 or 2", shown(version));
  }
  const std::vector<std::string> specials = read_g2c_specials(file, version.get<int64_t>(), what);
  const auto first = static_cast<int32_t>(256 + specials.size());

  const auto list = file.find("merges");
  if (list == file.end() || !list->is_array()) refuse_file(what, "merges is missing or no array");
  std::vector<BpeMerge> merges;
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (const Json& merge : *list) {
    const size_t i = merges.size();
    const auto next = first + static_cast<int32_t>(i);
    const auto is_part = [&](const Json& id) {
      return id.is_number_integer() && id >= 0 && id < next && (id < 256 || id >= first);
    };
    if (!merge.is_array() || merge.size() != 3) {
      refuse_file(what, "merges[{}] is {}, wanted [left, right, new]", i, shown(merge));
    }
    if (!merge[2].is_number_integer() || merge[2] != next) {
      refuse_file(what, "merges[{}] makes the id {}, wanted {}", i, shown(merge[2]), next);
    }
    if (!is_part(merge[0]) || !is_part(merge[1])) {
      refuse_file(what, "merges[{}] is {}, wanted bytes or earlier merges as parts", i, shown(merge));
    }
    merges.push_back({merge[0].get<int32_t>(), merge[1].get<int32_t>(), next});
    if (!pairs.emplace(merges.back().left, merges.back().right).second) {
      refuse_file(what, "merges[{}] is {}, a pair that is merged earlier", i, shown(merge));
    }
  }
  try {
    return parts_from_merges(merges, specials);
  } catch (const Error& error) {
    refuse_file(what, "merges: {}", error.what());
  }
}

std::string json_string(const std::string& text) {
  if (replace_invalid_utf8(text) != text) {
    fail("tokenizer.json can't hold this tokenizer: the special token {} is no UTF-8", printable(text, 60));
  }
  return Json(text).dump();
}

}  // namespace

TokenizerParts parse_tokenizer(std::string_view text, const std::string& what) {
  const Json file = parse_json(text, what);
  // These stand at the top of the course's form only.
  const bool is_g2c = file.is_object() && !file.contains("model") &&
                      (file.contains("format") || file.contains("merges") || file.contains("special_tokens"));
  return is_g2c ? parse_g2c_tokenizer(file, what) : parse_hf_tokenizer(file, what);
}

std::string format_tokenizer(const TokenizerParts& parts) {
  std::vector<int32_t> specials = parts.specials;
  std::sort(specials.begin(), specials.end());
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    const bool special = std::binary_search(specials.begin(), specials.end(), static_cast<int32_t>(id));
    names.push_back(json_string(special ? parts.tokens[id] : bytes_to_letters(parts.tokens[id])));
    if (!seen.insert(names.back()).second) {
      fail("tokenizer.json can't hold this tokenizer: the token {} has the same text {} as another", id,
           printable(names.back(), 60));
    }
  }

  std::string out = R"({
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [)";
  for (size_t i = 0; i < specials.size(); ++i) {
    out += fmt::format(R"({}
    {{
      "id": {},
      "content": {},
      "single_word": false,
      "lstrip": false,
      "rstrip": false,
      "normalized": false,
      "special": true
    }})",
                       i == 0 ? "" : ",", specials[i], names[specials[i]]);
  }
  out += specials.empty() ? "]," : "\n  ],";
  out += R"(
  "normalizer": null,
  "pre_tokenizer": {
    "type": "ByteLevel",
    "add_prefix_space": false,
    "trim_offsets": true,
    "use_regex": false
  },
  "post_processor": null,
  "decoder": {
    "type": "ByteLevel",
    "add_prefix_space": true,
    "trim_offsets": true,
    "use_regex": true
  },
  "model": {
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": false,
    "vocab": {)";
  for (size_t id = 0; id < names.size(); ++id) {
    out += fmt::format("{}\n      {}: {}", id == 0 ? "" : ",", names[id], id);
  }
  out += "\n    },\n    \"merges\": [";
  for (size_t i = 0; i < parts.merges.size(); ++i) {
    out += fmt::format("{}\n      [\n        {},\n        {}\n      ]", i == 0 ? "" : ",",
                       names[parts.merges[i].left], names[parts.merges[i].right]);
  }
  out += parts.merges.empty() ? "]\n" : "\n    ]\n";
  return out + "  }\n}";
}

}  // namespace storytape
