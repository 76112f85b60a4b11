// The reading half of Hugging Face's tokenizer.json (tokenizer_json.h has the contract).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "train/tokenizer.h"

namespace storytape {

TokenizerParts parse_hf_tokenizer(const nlohmann::json& file, const std::string& what);

}  // namespace storytape
