// Runs the golden data for the byte-level BPE tokenizer.
#pragma once

#include <filesystem>
#include <vector>

#include "train/verify.h"

namespace storytape {

// One row for each case of FOLDER/index.json, whose format is "golden-tokenizer 1", in these sections:
//   constants  the special tokens and the order of the bytes are ours
//   training   each run gives the same merges, in the same order, and the same size
//   tokenizer  both files read as the same tokenizer; it is what training gave; written, it has the library's
//   bytes corpora    count, digest, first and last ids of whole files, and back to their bytes encodings  the
//   ids of each text in each mode, and back to its bytes decodings  bytes, text and streamed chunks, with and
//   without specials; ids outside the vocabulary are refused files      read with the ids that the catalogue
//   states, or refused with one line; what is read survives being
//              written and read again
// Throws if there is no readable catalogue of this format; whatever is wrong with one case is in its row.
std::vector<VerifyRow> verify_tokenizer(const std::filesystem::path& folder);

}  // namespace storytape
