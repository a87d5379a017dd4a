#include "allreduce/host_sum.hpp"

#include <algorithm>

#include "ringtrain/base/hash.hpp"

namespace ringtrain {

HostSum::HostSum(HostPlace place, std::span<HostDesk* const> desks, bool crowded,
                 Ring* between_hosts, std::stop_token stop, std::atomic<std::uint64_t>* meetings)
    : place_(place),
      desks_(desks.begin(), desks.end()),
      barrier_(desks.front()->barrier, place.size, crowded, std::move(stop)),
      between_hosts_(between_hosts),
      meetings_(meetings) {
  expects(place.lanes >= 1 && place.lanes <= place.size, "HostSum: a rank for every lane");
}

void HostSum::sum(std::span<const ReplicaSum> sums) {
  if (place_.size > 1) meet(sums);
  if (place_.rank < place_.lanes)
    for (const ReplicaSum& each : sums) sum_lane(each);
  if (place_.size > 1) wait_for_all();
}

void HostSum::wait_for_all() {
  if (meetings_ != nullptr) ++*meetings_;
  barrier_.wait();
}

// Waits until every rank's gradients are there, and makes sure that all mean the same ones: ranks
// that have lost step with each other would otherwise train on nonsense.
void HostSum::meet(std::span<const ReplicaSum> sums) {
  std::uint64_t about_to_sum = sums.size();
  for (const ReplicaSum& each : sums)
    about_to_sum = hash_bytes(std::as_bytes(std::span(&each.count, 1)), about_to_sum);
  desks_[static_cast<std::size_t>(place_.rank)]->about_to_sum.store(about_to_sum,
                                                                    std::memory_order_relaxed);
  wait_for_all();
  for (const HostDesk* desk : desks_)
    if (desk->about_to_sum.load(std::memory_order_relaxed) != about_to_sum)
      throw Error("sum over the ranks of this host", "ranks sum buffers of different sizes");
}

void HostSum::sum_lane(const ReplicaSum& sum) {
  const auto lane = static_cast<std::size_t>(place_.rank);
  const Range slice = part_of(sum.count, lane, static_cast<std::size_t>(place_.lanes));
  if (between_hosts_ == nullptr && sum.replace == nullptr) {
    sum_replicas(sum.replicas, slice, place_.rank, {0, static_cast<std::size_t>(place_.size)});
    return;
  }
  sum_replicas(sum.replicas, slice, place_.rank, {lane, 1});
  float* const mine = sum.replicas.of(place_.rank) + slice.first;
  if (between_hosts_ != nullptr)
    between_hosts_->sum({mine, slice.count}, sum.wire, sum.replace);
  else if (slice.count > 0)
    (*sum.replace)({mine, slice.count});
  for (int rank = 0; rank < place_.size; ++rank)
    if (rank != place_.rank) std::copy_n(mine, slice.count, sum.replicas.of(rank) + slice.first);
}

}  // namespace ringtrain
