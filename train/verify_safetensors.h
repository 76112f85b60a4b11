// Runs the golden data for safetensors readers and writers.
#pragma once

#include <filesystem>
#include <vector>

#include "train/verify.h"

namespace storytape {

// One row for each case of FOLDER/index.json, whose format is "golden-safetensors 1", in the catalogue's
// sections:
//   valid    the file reads as the catalogue says (metadata, dtypes, shapes, offsets, bytes, values), is
//   refused when
//            cut anywhere or one byte longer (files below 3,000 bytes), and survives being written and read
//            again
//   invalid  the file is refused with one line
//   odd      refused, accepted or either, as the case says; what is accepted reads as the catalogue says
// Throws if there is no readable catalogue of this format; whatever is wrong with one case is in its row.
std::vector<VerifyRow> verify_safetensors(const std::filesystem::path& folder);

}  // namespace storytape
