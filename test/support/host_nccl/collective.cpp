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
  if (!is_in_place()) complain("from and to overlap, but not as NCCL wants them");
}

std::size_t Collective::bytes_given() const {
  const bool scatters = call_.kind == Call::Kind::reduce_scatter;
  return call_.bytes() * (scatters ? group_->ranks() : 1);
}

// Or in other memory altogether.
bool Collective::is_in_place() const {
  const auto* const from = static_cast<const std::byte*>(from_);
  const auto* const to = static_cast<const std::byte*>(to_);
  const std::size_t all = call_.bytes() * group_->ranks(),
                    place = call_.bytes() * static_cast<std::size_t>(group_->rank_);
  if (call_.kind == Call::Kind::reduce_scatter)
    return to == from + place || to >= from + all || to + call_.bytes() <= from;
  if (call_.kind == Call::Kind::all_gather)
    return from == to + place || from >= to + all || from + call_.bytes() <= to;
  return from == to || from >= to + call_.bytes() || to >= from + call_.bytes();
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
  std::memcpy(group.memory_.numbers(group.rank_), from_, bytes_given());
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
  std::vector<const std::byte*> ranks;
  for (int rank = 0; rank < group.size_; ++rank) ranks.push_back(group.memory_.numbers(rank));
  auto* const to = static_cast<std::byte*>(to_);
  const auto type = static_cast<ncclDataType_t>(call_.type);
  const auto operation = static_cast<ncclRedOp_t>(call_.operation);
  switch (call_.kind) {
    case Call::Kind::all_reduce:
      return ring_sum(ranks, call_.count, type, operation, to);
    case Call::Kind::reduce_scatter:
      return ring_sum_of_part(ranks, static_cast<std::size_t>(group.rank_), call_.count, type,
                              operation, to);
    case Call::Kind::broadcast:
      std::memcpy(to, ranks[static_cast<std::size_t>(call_.root)], call_.bytes());
      return;
    case Call::Kind::all_gather:
      for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        std::memcpy(to + rank * call_.bytes(), ranks[rank], call_.bytes());
      return;
  }
}

}  // namespace ringtrain::host_nccl
