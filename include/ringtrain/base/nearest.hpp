#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// The candidate with the fewest edits from `word` (Levenshtein's distance); one that `word`
/// abbreviates comes first. There is at least one candidate.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace ringtrain
