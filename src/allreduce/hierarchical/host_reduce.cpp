#include "allreduce/hierarchical/host_reduce.hpp"

#include <algorithm>

#include "ringtrain/base/hash.hpp"

namespace ringtrain::allreduce {

HostReduce::HostReduce(HostPlace place, std::span<HostDesk* const> desks, bool crowded,
                       Ring* between_hosts, std::stop_token stop,
                       std::atomic<std::uint64_t>* meetings, CompressedRing* compressed)
    : place_(place),
      desks_(desks.begin(), desks.end()),
      barrier_(desks.front()->barrier, place.size, crowded, std::move(stop)),
      between_hosts_(between_hosts),
      meetings_(meetings),
      compressed_(compressed) {
  expects(place.lanes >= 1 && place.lanes <= place.size, "HostSum: a rank for every lane");
}

void HostReduce::sum(std::span<const PendingSum> sums) {
  if (place_.size > 1) meet(sums);
  if (place_.rank < place_.lanes)
    for (const PendingSum& each : sums) sum_lane(each);
  if (place_.size > 1) wait_for_all();
}

void HostReduce::wait_for_all() {
  if (meetings_ != nullptr) ++*meetings_;
  barrier_.wait();
}

// Waits until every rank's gradients are there, and makes sure that all mean the same ones: ranks
// that have lost step with each other would otherwise train on nonsense.
void HostReduce::meet(std::span<const PendingSum> sums) {
  std::uint64_t about_to_sum = sums.size();
  for (const PendingSum& each : sums)
    about_to_sum = hash_bytes(std::as_bytes(std::span(&each.count, 1)), about_to_sum);
  desks_[static_cast<std::size_t>(place_.rank)]->about_to_sum.store(about_to_sum,
                                                                    std::memory_order_relaxed);
  wait_for_all();
  for (const HostDesk* desk : desks_)
    if (desk->about_to_sum.load(std::memory_order_relaxed) != about_to_sum)
      throw Error("sum over the ranks of this host", "ranks sum buffers of different sizes");
}

void HostReduce::sum_lane(const PendingSum& sum) {
  if (sum.options.compressed && compressed_ != nullptr) return sum_compressed(sum);
  const auto lane = static_cast<std::size_t>(place_.rank);
  const Range slice = part_of(sum.count, lane, static_cast<std::size_t>(place_.lanes));
  if (between_hosts_ != nullptr || sum.options.hook != nullptr)
    return sum_between_hosts(sum, slice);
  sum_replicas(sum.replicas, slice, place_.rank, {0, static_cast<std::size_t>(place_.size)});
}

// Also on one host, where there is a hook.
void HostReduce::sum_between_hosts(const PendingSum& sum, Range slice) {
  sum_here(sum, slice);
  const std::span<float> mine{sum.replicas.of(place_.rank) + slice.first, slice.count};
  if (between_hosts_ != nullptr)
    between_hosts_->sum(mine, sum.options.wire, sum.options.hook);
  else if (!mine.empty())
    (*sum.options.hook)({mine.data(), mine.size()});
  copy_to_others(sum, slice);
}

void HostReduce::sum_compressed(const PendingSum& sum) {
  const Range gradients{sum.options.first, sum.count};
  const std::vector<Range> slices = compressed_->slices(gradients);
  for (const Range& slice : slices) sum_here(sum, slice);
  compressed_->sum(gradients, sum.replicas.of(place_.rank));
  for (const Range& slice : slices) copy_to_others(sum, slice);
}

// Over the ranks of this host, into this rank's copy.
void HostReduce::sum_here(const PendingSum& sum, Range slice) const {
  sum_replicas(sum.replicas, slice, place_.rank, {static_cast<std::size_t>(place_.rank), 1});
}

void HostReduce::copy_to_others(const PendingSum& sum, Range slice) const {
  const float* const mine = sum.replicas.of(place_.rank) + slice.first;
  for (int rank = 0; rank < place_.size; ++rank)
    if (rank != place_.rank) std::copy_n(mine, slice.count, sum.replicas.of(rank) + slice.first);
}

}  // namespace ringtrain::allreduce
