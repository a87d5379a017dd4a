#include "train/loop/unreadable_samples.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "train/loop/trainer.hpp"

namespace ringtrain::train {
namespace {

constexpr std::uint64_t most_told = 10;

// The numbers of all ranks, on all ranks.
std::vector<std::uint64_t> union_of(const std::vector<std::uint64_t>& mine,
                                    const allreduce::MpiSession& session) {
  std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof mine[0]);
  std::string all;
  for (const std::string& of_rank : session.gather(bytes)) all += of_rank;
  all = session.broadcast(all);
  std::vector<std::uint64_t> samples(all.size() / sizeof mine[0]);
  if (!samples.empty()) std::memcpy(samples.data(), all.data(), all.size());
  return samples;
}

}  // namespace

Error unreadable_data(const io::Dataset& data, std::uint64_t unreadable, std::string_view example,
                      const allreduce::MpiSession& session) {
  const std::vector<std::string> examples = session.gather(example);
  const auto shown =
      std::ranges::find_if(examples, [](const std::string& text) { return !text.empty(); });
  const std::string how_many = unreadable == data.size()
                                   ? fmt::format("none of the {} samples can be read", unreadable)
                                   : fmt::format("{} of {} samples are unreadable, more than 0.1 %",
                                                 unreadable, data.size());
  return Error(Exit::data, "read " + data.description(),
               fmt::format("{}; repair or remove them. {}", how_many,
                           shown == examples.end() ? "" : *shown));
}

void UnreadableSamples::recall(std::span<const std::uint64_t> samples) {
  if (samples.empty()) return;
  std::vector<std::uint64_t> still;
  const auto ranks = static_cast<std::size_t>(parts_.run.session.size());
  for (auto i = static_cast<std::size_t>(parts_.run.session.rank()); i < samples.size(); i += ranks)
    if (!can_be_read(samples[i])) still.push_back(samples[i]);
  exchange(still);
}

// One that is not there any more is of other data.
bool UnreadableSamples::can_be_read(std::uint64_t sample) try {
  parts_.run.progress.enter(metrics::Phase::data_wait);
  if (sample < data().size()) static_cast<void>(data().read(sample));
  return true;
} catch (const io::UnreadableSample& failure) {
  example_ = fmt::format("unreadable sample {}, as in the run before: {}", sample, failure.what());
  if (++told_ <= most_told) parts_.log.event("unreadable_sample", example_);
  return false;
}

void UnreadableSamples::between_steps(Trainer& trainer) {
  if (!asked_) return;
  trainer.drain();
  asked_ = false;  // what the steps under way asked for is granted, too
  exchange(parts_.loader.take_unreadable());
}

void UnreadableSamples::exchange(const std::vector<std::uint64_t>& mine) {
  parts_.run.progress.enter(metrics::Phase::ranks);
  parts_.loader.add_unreadable(union_of(mine, parts_.run.session));
  const std::set<std::uint64_t>& all = parts_.loader.unreadable();
  std::vector<std::uint64_t> kept(std::min(all.size(), io::most_unreadable));
  std::copy_n(all.begin(), kept.size(), kept.begin());
  parts_.checkpoints.set_unreadable(std::move(kept));
  if (!io::too_many_unreadable(all.size(), data().size())) return;
  const std::string& met = parts_.loader.last_event();
  parts_.control.fail(
      unreadable_data(data(), all.size(), met.empty() ? example_ : met, parts_.run.session));
}

}  // namespace ringtrain::train
