#include "train/performance/link_speeds.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace ringtrain::train {

// On links that no step waits for, other work on the hosts makes more of a difference.
std::string compare_links(const LinkSpeeds& l) {
  constexpr double slower = 0.85, part_of_step = 0.1, mb = 1e6;
  constexpr std::size_t most_named = 3;
  const std::size_t links = l.now.size();
  const auto from_to = [&](std::size_t link) {
    return fmt::format("from {} to {}", l.hosts[link], l.hosts[(link + 1) % links]);
  };
  std::vector<std::size_t> slow, others;
  for (std::size_t k = 0; k < links; ++k) {
    const bool counts = l.step_bytes / l.now[k] > part_of_step * l.step_s;
    (counts && l.now[k] < slower * l.start[k] ? slow : others).push_back(k);
  }
  const auto speed = [&](std::size_t link) { return l.now[link]; };
  if (slow.empty()) {
    const std::size_t least = std::ranges::min(others, {}, speed);
    return fmt::format(
        "no link between hosts explains it: the slowest, {}, carries {:.3g} MB/s, {:.3g} at the "
        "start, and so a step's sums in {:.1f} of {:.1f} ms; what to do: {}",
        from_to(least), l.now[least] / mb, l.start[least] / mb, 1e3 * l.step_bytes / l.now[least],
        1e3 * l.step_s,
        "look at the links between the hosts (ethtool, ethtool -S); --timeline shows who waits for "
        "whom");
  }
  std::ranges::sort(slow, {}, speed);
  std::vector<std::string> texts;
  for (const std::size_t k : slow)
    if (texts.size() < most_named)
      texts.push_back(fmt::format("{} {:.3g} MB/s, {:.3g} at the start", from_to(k), l.now[k] / mb,
                                  l.start[k] / mb));
  if (slow.size() > texts.size())
    texts.push_back(fmt::format("{} more", slow.size() - texts.size()));
  if (!others.empty())
    texts.push_back(fmt::format("{} of {} hold up no step", others.size(), links));
  return fmt::format(
      "{}; what to do: see what else {} sends and {} receives, and look at their "
      "network cards, cables and switch ports (ethtool, ethtool -S)",
      fmt::join(texts, "; "), l.hosts[slow.front()], l.hosts[(slow.front() + 1) % links]);
}

}  // namespace ringtrain::train
