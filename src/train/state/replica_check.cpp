#include "train/state/replica_check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "ringtrain/base/hash.hpp"

namespace ringtrain::train {
namespace {

std::string to_text(const std::vector<std::uint64_t>& hashes) {
  std::string text;
  for (const std::uint64_t hash : hashes) text.append("\n").append(hex(hash));
  return text;
}

RankHashes hashes_from_text(const std::string& text) {
  std::istringstream lines(text);
  RankHashes rank;
  std::getline(lines, rank.host);
  for (std::string line; std::getline(lines, line);) rank.hashes.push_back(line);
  return rank;
}

// Of ranks that are as many the first ones.
const RankHashes& of_most(const std::vector<RankHashes>& ranks) {
  const auto alike = [&](const RankHashes& rank) {
    return std::ranges::count(ranks, rank.hashes, &RankHashes::hashes);
  };
  return *std::ranges::max_element(ranks, {}, alike);
}

}  // namespace

std::string diverged_ranks(const std::vector<std::string>& names,
                           const std::vector<RankHashes>& ranks) {
  std::string lines;
  if (ranks.empty()) return lines;
  const RankHashes& right = of_most(ranks);
  const auto number = &right - ranks.data();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::vector<std::size_t> differing;
    for (std::size_t t = 0; t < names.size(); ++t)
      if (ranks[r].hashes[t] != right.hashes[t]) differing.push_back(t);
    if (differing.empty()) continue;
    lines += fmt::format("\n  rank {} on {} has other values than rank {} on {} in {}", r,
                         ranks[r].host, number, right.host, names[differing.front()]);
    if (differing.size() > 1)
      lines += fmt::format(" and {} more of {} tensors", differing.size() - 1, names.size());
  }
  return lines;
}

ReplicaCheck::ReplicaCheck(const TrainingState& state, const allreduce::MpiSession& session,
                           std::uint64_t every, std::uint64_t first_step)
    : state_(state),
      session_(session),
      every_(session.size() > 1 ? every : 0),
      equal_at_(first_step) {}

bool ReplicaCheck::due(std::uint64_t step, bool last) const {
  return every_ > 0 && step != equal_at_ && (last || step % every_ == 0);
}

void ReplicaCheck::offer(std::uint64_t step, bool last, const std::function<void()>& distrust) {
  if (due(step, last)) check(step, distrust);
}

void ReplicaCheck::check(std::uint64_t step, const std::function<void()>& distrust) {
  const std::string hashes = to_text(state_.hashes());
  if (!session_.all_equal(hex(hash_text(hashes)))) {
    distrust();
    fail(step, hashes);
  }
  equal_at_ = step;
}

void ReplicaCheck::fail(std::uint64_t step, const std::string& hashes) const {
  std::vector<RankHashes> ranks;
  for (const std::string& text : session_.gather(session_.host() + hashes))
    ranks.push_back(hashes_from_text(text));
  std::vector<std::string> names;
  for (const io::TensorPlace& place : state_.layout().tensors) names.push_back(place.info.name);
  session_.fail_together(
      fmt::format("after step {} the ranks no longer train the same numbers:{}\n  they were equal "
                  "after step {}: go on from a checkpoint of that step or before (--resume FILE; "
                  "auto would take a later one); memory or a processor that errs can be the reason",
                  step, diverged_ranks(names, ranks), equal_at_),
      Exit::internal);
}

}  // namespace ringtrain::train
