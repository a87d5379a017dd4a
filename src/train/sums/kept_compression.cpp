#include "train/sums/kept_compression.hpp"

#include <optional>
#include <utility>
#include <vector>

#include "ringtrain/allreduce/communicator/compression.hpp"

namespace ringtrain::train {
namespace {

std::size_t kept_count(allreduce::Communicator& communicator) {
  const allreduce::CompressionState* const kept = communicator.compression_state();
  return kept == nullptr ? 0 : kept->size();
}

// One behind the other; nothing where no rank keeps any.
std::optional<Shards> kept_by_ranks(allreduce::Communicator& communicator,
                                    const allreduce::MpiSession& session) {
  std::vector<double> counts(static_cast<std::size_t>(session.size()));
  counts[static_cast<std::size_t>(session.rank())] = double(kept_count(communicator));
  session.maximum(counts);
  Shards shards{session.rank(), {}};
  std::size_t first = 0;
  for (const double count : counts) {
    std::vector<Range>& ranges = shards.ranges.emplace_back();
    if (count > 0) ranges.push_back({first, static_cast<std::size_t>(count)});
    first += static_cast<std::size_t>(count);
  }
  if (first == 0) return std::nullopt;
  return shards;
}

}  // namespace

std::unique_ptr<KeptCompression> KeptCompression::make(const RunPlan& plan,
                                                       allreduce::Communicator& communicator,
                                                       const allreduce::MpiSession& session) {
  if (!plan.compresses()) return nullptr;
  std::optional<Shards> shards = kept_by_ranks(communicator, session);
  if (!shards) return nullptr;
  return std::unique_ptr<KeptCompression>(new KeptCompression(communicator, std::move(*shards)));
}

KeptCompression::KeptCompression(allreduce::Communicator& communicator, Shards shards)
    : communicator_(communicator),
      by_ranks_(std::move(shards)),
      kept_(memory_.allocate(kept_count(communicator))),
      complete_(memory_.allocate(1)) {
  complete_.view().host().front() = 1;
}

void KeptCompression::add_to(TrainingState& state) {
  refresh();
  state.add_kept(kept_, complete_, by_ranks_, [this] { refresh(); });
}

void KeptCompression::refresh() {
  if (const allreduce::CompressionState* const kept = communicator_.compression_state())
    kept->read(kept_.view().host());
}

void KeptCompression::restore() {
  if (allreduce::CompressionState* const kept = communicator_.compression_state())
    kept->write(kept_.view().host());
}

}  // namespace ringtrain::train
