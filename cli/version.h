#pragma once

#include "cli/command.h"

namespace storytape::cli {

void print_version(const Global& global);

}  // namespace storytape::cli
