#include "ringtrain/base/nearest.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ringtrain {
namespace {

// Levenshtein's distance, one row of the table at a time.
std::size_t edits(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i] != to[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const auto distance = [&](const std::string& candidate) {
    return candidate.starts_with(word) ? 0 : edits(word.substr(0, 64), candidate);
  };
  return *std::ranges::min_element(candidates, {}, distance);
}

}  // namespace ringtrain
