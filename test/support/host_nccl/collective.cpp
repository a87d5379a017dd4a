#include "support/host_nccl/collective.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "support/host_nccl/ring_sum.hpp"

namespace ringtrain::host_nccl {

using namespace std::chrono_literals;

Collective::Collective(std::shared_ptr<Group> group, const Call& call, const void* from, void* to)
    : group_(std::move(group)), call_(call), from_(from), to_(to) {
  ++group_->live_;
}

std::size_t Collective::bytes() const {
  return call_.count * bytes_of(static_cast<ncclDataType_t>(call_.type));
}

bool Collective::advance() {
  Group& group = *group_;
  if (!group.is_aborted()) {
    if (number_ == 0 && !begin()) return false;
    if (!all_are_here()) return false;
    compute();
    group.me().taken = number_;
  }
  if (group.current_ == this) group.current_ = nullptr;
  number_ = 0;
  since_ = {};
  return true;
}

// Its numbers take the place of those of the collective before, which all have read.
bool Collective::begin() {
  Group& group = *group_;
  if (group.current_ != nullptr && group.current_ != this) return false;
  group.current_ = this;
  const std::uint64_t number = group.begun_ + 1;
  if (is_held_up(number)) return false;
  for (int rank = 0; rank < group.size_; ++rank)
    if (group.memory_.rank(rank).taken + 1 < number) return false;
  number_ = group.begun_ = number;
  std::memcpy(group.memory_.numbers(group.rank_), from_, bytes());
  group.me().call = call_;
  group.me().arrived = number;
  since_ = Clock::now();
  return true;
}

bool Collective::is_held_up(std::uint64_t number) {
  const Fault& fault = group_->fault_;
  using Kind = Fault::Kind;
  if (fault.is(Kind::dead, number)) ::kill(::getpid(), SIGKILL);
  if (fault.is(Kind::error, number)) group_->fail(ncclSystemError, "as the test wants");
  if (fault.is(Kind::slow, number)) {
    if (since_ == Clock::time_point()) since_ = Clock::now();
    return Clock::now() - since_ < 20ms;
  }
  return fault.is(Kind::error, number) || fault.is(Kind::hang, number) ||
         fault.is(Kind::stuck, number);
}

bool Collective::all_are_here() {
  Group& group = *group_;
  for (int rank = 0; rank < group.size_; ++rank) {
    const RankState& other = group.memory_.rank(rank);
    if (other.arrived < number_) {
      if (Clock::now() - since_ > 10ms) {
        group.look_for_ends();
        since_ = Clock::now();
      }
      return false;
    }
    if (!(other.call == call_)) {
      complain("rank " + std::to_string(group.rank_) + " and rank " + std::to_string(rank) +
               " make different calls");
      group.fail(ncclInvalidUsage, "ranks make different calls");
      return false;
    }
  }
  return true;
}

void Collective::compute() const {
  const Group& group = *group_;
  if (call_.operation == no_operation) {
    std::memcpy(to_, group.memory_.numbers(call_.root), bytes());
    return;
  }
  std::vector<const std::byte*> ranks;
  for (int rank = 0; rank < group.size_; ++rank) ranks.push_back(group.memory_.numbers(rank));
  ring_sum(ranks, call_.count, static_cast<ncclDataType_t>(call_.type),
           static_cast<ncclRedOp_t>(call_.operation), static_cast<std::byte*>(to_));
}

}  // namespace ringtrain::host_nccl
