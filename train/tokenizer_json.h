// The two file forms of a byte-level BPE tokenizer.
//
// Hugging Face's tokenizer.json is read if its ids depend on nothing but bytes, merges and special tokens.
// What needs more is refused, by the name of the member: a splitting pattern (pre_tokenizer.use_regex, which
// is on where it is absent), a space put in front, a normalizer, truncation, padding, a post-processor that
// adds tokens, dropout, byte fallback, ignore_merges, word prefixes and suffixes, another model, bytes
// without a token, ids with holes, special tokens that swallow spaces or are parsed always.
//
// The course's form: {"format": "g2c.bpe", "version": 2, "special_tokens": [...], "merges": [[a, b, new],
// ...]}: bytes are 0..255, then the special tokens, then the merges, whose parts are bytes or earlier merges.
// Version 1 has no special tokens.
#pragma once

#include <string>
#include <string_view>

#include "train/tokenizer.h"

namespace storytape {

// Reads either form; `what` names the file in errors. Throws one line "WHAT: MEMBER ...".
TokenizerParts parse_tokenizer(std::string_view text, const std::string& what);

// The Hugging Face form, laid out as that library lays it out. Throws if two tokens would be written alike.
std::string format_tokenizer(const TokenizerParts& parts);

}  // namespace storytape
