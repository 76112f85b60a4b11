#include "train/tokenizer_hf.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "train/bpe_alphabet.h"
#include "train/tokenizer_refuse.h"
#include "train/tokenizer_specials.h"

namespace storytape {
namespace {

using Json = nlohmann::json;

std::string in_quotes(const std::string& text) {
  return "\"" + printable(text, 60) + "\"";
}

class HfReader {
 public:
  HfReader(const Json& file, const std::string& what) : file_(file), what_(what) {}

  TokenizerParts read() {
    if (!file_.is_object()) refuse("is {}, wanted a tokenizer.json: an object", file_.type_name());
    check_top();
    check_model();
    check_steps();
    read_vocab();
    read_added_tokens();
    decode_tokens();
    read_merges();
    std::sort(parts_.specials.begin(), parts_.specials.end());
    return std::move(parts_);
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    refuse_file(what_, format, std::forward<Args>(args)...);
  }

  // A member that may be absent; null then.
  static const Json& member(const Json& object, const char* name) {
    static const Json null;
    const auto found = object.find(name);
    return found == object.end() ? null : *found;
  }

  // A switch that must be off.
  void refuse_true(const Json& object, const std::string& path, const char* name, const char* meaning) const {
    const Json& value = member(object, name);
    if (value == false) return;
    if (value == true) refuse("{}.{} is true: {}, which Storytape does not have", path, name, meaning);
    refuse("{}.{} is {}, wanted true or false", path, name, object.contains(name) ? shown(value) : "missing");
  }

  // A step by its type, or by those of its parts.
  static std::string step_name(const Json& step, const char* list) {
    if (!step.is_object() || !member(step, "type").is_string()) return shown(step);
    const Json& steps = member(step, list);
    std::string type = in_quotes(step["type"].get<std::string>());
    if (!steps.is_array()) return type;
    std::string names;
    for (const Json& part : steps) names += (names.empty() ? "" : ", ") + step_name(part, list);
    return printable(type + " of " + names, 120);
  }

  // The step with the given type, alone or as the only one of a sequence.
  const Json* only_step(const Json& step, const char* list, const char* type) const {
    if (!step.is_object()) return nullptr;
    const Json& name = member(step, "type");
    if (name == type) return &step;
    const Json& steps = member(step, list);
    if (name != "Sequence" || !steps.is_array() || steps.size() != 1) return nullptr;
    return only_step(steps[0], list, type);
  }

  void check_top() const {
    static const std::set<std::string> kKnown = {"version",        "truncation", "padding",
                                                 "added_tokens",   "normalizer", "pre_tokenizer",
                                                 "post_processor", "decoder",    "model"};
    for (const auto& [name, value] : file_.items()) {
      if (!kKnown.contains(name) && !value.is_null()) {
        refuse("has the member {}, which tokenizer.json does not have", in_quotes(name));
      }
    }
    const Json& version = member(file_, "version");
    if (file_.contains("version") && version != "1.0")
      refuse("version is {}, wanted \"1.0\"", shown(version));
    if (!member(file_, "truncation").is_null()) {
      refuse("truncation is not null: texts would be cut, which Storytape does not do");
    }
    if (!member(file_, "padding").is_null()) {
      refuse("padding is not null: texts would be filled up, which Storytape does not do");
    }
  }

  void check_model() const {
    if (member(file_, "model").is_null()) refuse("model is missing: not a tokenizer.json");
    const Json& model = file_["model"];
    if (!model.is_object()) refuse("model is {}, wanted an object", model.type_name());
    const Json& type = member(model, "type");
    if (!type.is_null() && type != "BPE") refuse("model.type is {}, wanted \"BPE\"", shown(type));
    if (!member(model, "byte_fallback").is_null()) {
      refuse_true(model, "model", "byte_fallback", "needs characters with byte fallback");
    }
    if (!member(model, "ignore_merges").is_null()) {
      refuse_true(model, "model", "ignore_merges", "texts that are one token are not merged");
    }
    const Json& dropout = member(model, "dropout");
    if (!dropout.is_null() && !(dropout.is_number() && dropout == 0)) {
      refuse("model.dropout is {}: encoding at random, which Storytape does not have", shown(dropout));
    }
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& mark = member(model, name);
      if (!mark.is_null() && !is_empty_text(mark)) {
        refuse("model.{} is {}: needs marks at words, which Storytape does not have", name, shown(mark));
      }
    }
    const Json& unknown = member(model, "unk_token");
    if (!unknown.is_null() && !unknown.is_string())
      refuse("model.unk_token is {}, wanted a string", shown(unknown));
  }

  void check_steps() const {
    const Json& normalizer = member(file_, "normalizer");
    if (!normalizer.is_null()) {
      refuse("normalizer is {}: the text would be changed, which Storytape does not do",
             step_name(normalizer, "normalizers"));
    }
    const Json& pre = member(file_, "pre_tokenizer");
    const Json* byte_level = only_step(pre, "pretokenizers", "ByteLevel");
    if (!byte_level) {
      const std::string name = step_name(pre, "pretokenizers");
      if (name.find("Split") != name.npos) {
        refuse("needs a splitting regex (pre_tokenizer is {}), which Storytape does not have", name);
      }
      refuse("pre_tokenizer is {}, wanted \"ByteLevel\" alone, with use_regex false", name);
    }
    const Json& use_regex = member(*byte_level, "use_regex");
    if (use_regex.is_null() || use_regex == true) {
      refuse("needs a splitting regex (pre_tokenizer.use_regex is {}), which Storytape does not have",
             use_regex.is_null() ? "absent, which means true" : "true");
    }
    refuse_true(*byte_level, "pre_tokenizer", "use_regex", "");
    refuse_true(*byte_level, "pre_tokenizer", "add_prefix_space", "a space is put before the text");
    if (!adds_nothing(member(file_, "post_processor"))) {
      refuse("post_processor is {}: tokens would be added, which Storytape does not do",
             step_name(member(file_, "post_processor"), "processors"));
    }
    const Json& decoder = member(file_, "decoder");
    if (!decoder.is_null() && !only_step(decoder, "decoders", "ByteLevel")) {
      refuse("decoder is {}, wanted \"ByteLevel\"", step_name(decoder, "decoders"));
    }
  }

  // True for post-processors that leave the ids as they are.
  bool adds_nothing(const Json& step) const {
    if (step.is_null()) return true;
    if (!step.is_object()) return false;
    if (member(step, "type") == "ByteLevel") return true;
    if (member(step, "type") == "TemplateProcessing") {
      const Json& single = member(step, "single");
      return single.is_array() && single.size() == 1 && single[0].is_object() &&
             single[0].contains("Sequence");
    }
    const Json& steps = member(step, "processors");
    if (member(step, "type") != "Sequence" || !steps.is_array()) return false;
    return std::all_of(steps.begin(), steps.end(), [&](const Json& s) { return adds_nothing(s); });
  }

  // An id below `end`, or nothing.
  static std::optional<int32_t> id_below(const Json& value, size_t end) {
    if (!value.is_number_integer() || value < 0 || value >= end) return std::nullopt;
    return value.get<int32_t>();
  }

  void read_vocab() {
    const Json& vocab = member(file_["model"], "vocab");
    if (vocab.is_null()) refuse("model.vocab is missing");
    if (!vocab.is_object()) refuse("model.vocab is {}, wanted an object", vocab.type_name());
    if (vocab.empty()) refuse("model.vocab has no tokens");
    names_.resize(vocab.size());
    std::vector<bool> taken(vocab.size(), false);
    for (const auto& [name, value] : vocab.items()) {
      const std::optional<int32_t> id = id_below(value, vocab.size());
      if (!id) {
        refuse("model.vocab gives {} the id {}, wanted 0 to {} without a hole, as there are {} tokens",
               in_quotes(name), shown(value), vocab.size() - 1, vocab.size());
      }
      if (taken[*id])
        refuse("model.vocab gives the id {} to {} and {}", *id, in_quotes(names_[*id]), in_quotes(name));
      taken[*id] = true;
      names_[*id] = name;
      ids_[name] = *id;
    }
  }

  void read_added_tokens() {
    special_.assign(names_.size(), false);
    const Json& added = member(file_, "added_tokens");
    if (!file_.contains("added_tokens")) return;
    if (!added.is_array()) refuse("added_tokens is {}, wanted an array", added.type_name());
    std::vector<std::string> texts;
    std::set<bool> normalized;
    for (size_t i = 0; i < added.size(); ++i) {
      const std::string path = fmt::format("added_tokens[{}]", i);
      const Json& token = added[i];
      if (!token.is_object()) refuse("{} is {}, wanted an object", path, token.type_name());
      const Json& content = member(token, "content");
      if (!content.is_string() || is_empty_text(content)) {
        refuse("{}.content is {}, wanted a text", path, shown(content));
      }
      texts.push_back(content.get<std::string>());
      add_special(path, texts.back(), member(token, "id"));
      if (member(token, "special") != true) {
        refuse("{}.special is {}: {} would be parsed in every text, which Storytape does not do", path,
               shown(member(token, "special")), in_quotes(texts.back()));
      }
      refuse_true(token, path, "lstrip", "spaces before the token are swallowed");
      refuse_true(token, path, "rstrip", "spaces after the token are swallowed");
      refuse_true(token, path, "single_word", "the token is found between words only");
      normalized.insert(member(token, "normalized") == true);
    }
    // Hugging Face looks for the normalized ones second; that is the same unless they can overlap.
    if (normalized.size() == 2 && specials_can_overlap(texts)) {
      refuse("added_tokens differ in normalized and can overlap, which Storytape does not have");
    }
  }

  // The specials that the vocabulary lacks get the ids after it, in their order.
  void add_special(const std::string& path, const std::string& text, const Json& id) {
    const auto known = ids_.find(text);
    const auto wanted = known == ids_.end() ? static_cast<int32_t>(names_.size()) : known->second;
    if (!id.is_number_integer() || id != wanted) {
      refuse("{}.id is {}, but {} {} {}", path, shown(id), in_quotes(text),
             known == ids_.end() ? "is not in model.vocab and comes as number" : "has in model.vocab the id",
             wanted);
    }
    if (known == ids_.end()) {
      ids_[text] = wanted;
      names_.push_back(text);
      special_.push_back(false);
    }
    if (special_[wanted]) refuse("{}.content is {}, as in an earlier one", path, in_quotes(text));
    special_[wanted] = true;
    parts_.specials.push_back(wanted);
  }

  void decode_tokens() {
    std::array<bool, 256> has_letter{};
    for (size_t id = 0; id < names_.size(); ++id) {
      if (special_[id]) {
        parts_.tokens.push_back(names_[id]);
        continue;
      }
      std::optional<std::string> bytes = letters_to_bytes(names_[id]);
      if (!bytes || bytes->empty()) {
        refuse("model.vocab has the token {}, wanted letters that stand for bytes", in_quotes(names_[id]));
      }
      if (bytes->size() == 1) has_letter[static_cast<uint8_t>((*bytes)[0])] = true;
      parts_.tokens.push_back(std::move(*bytes));
    }
    for (int byte = 0; byte < 256; ++byte) {
      if (has_letter[byte]) continue;
      const Json& unknown = member(file_["model"], "unk_token");
      const std::string instead =
          unknown.is_null() ? "" : fmt::format(" (it would become model.unk_token {})", shown(unknown));
      refuse("model.vocab has no letter for the byte 0x{:02X}{}, wanted one for each of the 256", byte,
             instead);
    }
  }

  // The ordinary token of that name.
  int32_t part_id(size_t merge, const std::string& name) const {
    const auto found = ids_.find(name);
    if (found == ids_.end())
      refuse("model.merges[{}] names {}, which is not in model.vocab", merge, in_quotes(name));
    if (special_[found->second])
      refuse("model.merges[{}] names the special token {}", merge, in_quotes(name));
    return found->second;
  }

  void read_merges() {
    const Json& merges = member(file_["model"], "merges");
    if (merges.is_null()) refuse("model.merges is missing");
    if (!merges.is_array()) refuse("model.merges is {}, wanted an array", merges.type_name());
    std::map<std::pair<int32_t, int32_t>, size_t> first;
    for (size_t i = 0; i < merges.size(); ++i) {
      if (merges[i].type() != merges[0].type()) {
        refuse("model.merges[{}] is {} where the ones before are {}", i, merges[i].type_name(),
               merges[0].type_name());
      }
      const auto pair = split(merges[i], i);
      if (!pair) continue;
      const int32_t left = part_id(i, pair->first), right = part_id(i, pair->second);
      parts_.merges.push_back({left, right, part_id(i, pair->first + pair->second)});
      const auto [earlier, is_new] = first.emplace(std::pair(left, right), i);
      if (!is_new) refuse("model.merges[{}] is the same rule as model.merges[{}]", i, earlier->second);
    }
  }

  // ["a", "b"], or "a b" in older files; nothing for the line that merges.txt begins with.
  std::optional<std::pair<std::string, std::string>> split(const Json& merge, size_t i) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
    }
    if (merge.is_string()) {
      const auto line = merge.get<std::string>();
      if (line.starts_with("#version")) return std::nullopt;
      const size_t space = line.find(' ');
      if (space != std::string::npos && line.find(' ', space + 1) == std::string::npos) {
        return std::pair(line.substr(0, space), line.substr(space + 1));
      }
    }
    refuse("model.merges[{}] is {}, wanted two tokens", i, shown(merge));
  }

  const Json& file_;
  const std::string& what_;
  TokenizerParts parts_;
  std::vector<std::string> names_;      // by id, as the file writes them
  std::map<std::string, int32_t> ids_;  // by name
  std::vector<bool> special_;           // by id
};

}  // namespace

TokenizerParts parse_hf_tokenizer(const Json& file, const std::string& what) {
  return HfReader(file, what).read();
}

}  // namespace storytape
