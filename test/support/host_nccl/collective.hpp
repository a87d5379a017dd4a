#pragma once
#include <chrono>
#include <memory>

#include "support/host_nccl/group.hpp"

namespace ringtrain::host_nccl {

/// A collective call on a stream, or in a graph, which runs it again at every launch. All ranks
/// begin the collectives of a group in one order, one at a time.
class Collective {
 public:
  Collective(std::shared_ptr<Group> group, const Call& call, const void* from, void* to);
  ~Collective() { --group_->live_; }
  Collective(const Collective&) = delete;

  /// Goes on as far as the other ranks are there. Whether it is over. Device memory can be touched.
  bool advance();

 private:
  using Clock = std::chrono::steady_clock;

  bool begin();
  bool is_held_up(std::uint64_t number);
  bool all_are_here();
  void compute() const;
  bool is_in_place() const;
  std::size_t bytes_given() const;

  const std::shared_ptr<Group> group_;
  const Call call_;
  const void* const from_;
  void* const to_;
  std::uint64_t number_ = 0;   // of the group's, counted from 1; 0: not begun
  Clock::time_point since_{};  // when it could first begin, or looked for the others
};

}  // namespace ringtrain::host_nccl
