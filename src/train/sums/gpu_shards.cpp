#include "train/sums/gpu_shards.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace ringtrain::train {
namespace {

constexpr std::size_t aligned = 4;  // numbers: 16 bytes

}  // namespace

allreduce::Buckets gpu_buckets(const RunPlan& plan) {
  if (plan.ranks == 1 || plan.compresses()) return {};
  return {.unit = aligned * static_cast<std::size_t>(plan.ranks),
          .scattered = plan.shards_optimizer()};
}

std::size_t gpu_padding(const RunPlan& plan) {
  if (!plan.shards_optimizer()) return 0;
  const std::size_t unit = gpu_buckets(plan).unit;
  return (unit - plan.model.graph.learning_count() % unit) % unit;
}

std::unique_ptr<GpuShards> GpuShards::make(const RunPlan& plan, allreduce::Communicator& gpus,
                                           std::span<const std::uint64_t> bounds,
                                           std::size_t first_gradient, View parameters) {
  if (!plan.shards_optimizer()) return nullptr;
  return std::unique_ptr<GpuShards>(
      new GpuShards(gpus, bounds, first_gradient, parameters, plan.model.graph.learning_count()));
}

GpuShards::GpuShards(allreduce::Communicator& gpus, std::span<const std::uint64_t> bounds,
                     std::size_t first_gradient, View parameters, std::size_t count)
    : gpus_(gpus),
      parameters_(parameters),
      count_(count),
      shards_{gpus.rank(), std::vector<std::vector<Range>>(static_cast<std::size_t>(gpus.size()))} {
  const std::size_t ranks = shards_.ranges.size();
  for (std::size_t b = 0; b + 1 < bounds.size(); ++b) {
    const std::size_t first = std::max<std::size_t>(bounds[b], first_gradient) - first_gradient,
                      end = bounds[b + 1] - first_gradient, part = (end - first) / ranks;
    buckets_.push_back({first, end - first});
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t begin = first + rank * part, most = std::min(begin + part, count_);
      if (most > begin) shards_.ranges[rank].push_back({begin, most - begin});
    }
  }
}

compute::GpuPart GpuShards::part() {
  return {.ranges = shards_.own(),
          .summed = std::min(buckets_.front().end(), count_),
          .scattered = [this] { gpus_.finish(); },
          .gather = [this] { gather(); }};
}

void GpuShards::gather() {
  std::vector<View> views;
  for (const Range& bucket : buckets_) views.push_back(parameters_.slice(bucket));
  gpus_.start_allgather(views);
  gpus_.finish();
}

std::string GpuShards::note(std::size_t slots) const {
  if (slots == 0) return "optimizer: it has no state to share: each rank updates its part";
  const double bytes = double(slots) * sizeof(float);
  return fmt::format(
      "optimizer: the ranks share its state: rank {} of {} has {:.0f} bytes of {:.0f}, "
      "in {} part{}",
      shards_.rank, shards_.ranges.size(), bytes * double(shards_.size_of(shards_.rank)),
      bytes * double(count_), shards_.own().size(), shards_.own().size() == 1 ? "" : "s");
}

}  // namespace ringtrain::train
