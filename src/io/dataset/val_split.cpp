#include "io/dataset/val_split.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ringtrain/base/hash.hpp"

namespace ringtrain::io {

std::vector<bool> drawn_for_evaluation(const std::vector<std::string>& names,
                                       const std::string& label, const ValSplit& split) {
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  for (std::size_t i = 0; i < names.size(); ++i)
    order.emplace_back(hash_text(label + "/" + names[i], split.seed), i);
  std::ranges::sort(order);
  auto count = static_cast<std::size_t>(std::lround(split.share * double(names.size())));
  if (split.share > 0 && names.size() > 1)
    count = std::clamp<std::size_t>(count, 1, names.size() - 1);
  std::vector<bool> drawn(names.size(), false);
  for (std::size_t i = 0; i < count; ++i) drawn[order[i].second] = true;
  return drawn;
}

}  // namespace ringtrain::io
