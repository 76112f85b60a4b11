// The plots of the embedded corpus. Each casts who and what it needs and tells one story: somebody wants or
// loses or fears something, something turns, and it ends. What a sentence says of a person or a thing stays
// true to the end.
#pragma once

#include <span>

#include "train/corpus_story.h"

namespace storytape {

using Plot = void (*)(StoryWriter& w);

std::span<const Plot> friend_plots();
std::span<const Plot> home_plots();
std::span<const Plot> world_plots();
std::span<const Plot> growing_plots();

}  // namespace storytape
