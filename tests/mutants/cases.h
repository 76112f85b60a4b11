#pragma once

namespace storytape {

// Puts the gradient checks of cases.cc on the registry's list.
void register_mutant_cases();

}  // namespace storytape
