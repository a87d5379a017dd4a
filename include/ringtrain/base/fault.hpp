#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "ringtrain/base/error.hpp"

// One line for programs, whichever fault ends a job: docs/reliability.md.
namespace ringtrain {

/// How far a run has come, for the line that tells of its end. From any thread; never waits.
class FaultContext {
 public:
  /// The last finished one.
  void at_step(std::uint64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }
  std::uint64_t step() const noexcept { return step_.load(std::memory_order_relaxed); }
  /// A checkpoint to go on from, or the folder whose newest that is; empty: none.
  void resume_from(std::string path);
  /// Empty, too, while another thread sets it.
  std::string resume() const;

 private:
  std::atomic<std::uint64_t> step_{0};
  mutable std::mutex mutex_;
  std::string resume_;
};

/// " key=value"; the value in double quotes where that is needed to find its end.
std::string key_value(std::string_view key, std::string_view value);

/// "fault: kind=storage code=75 rank=0 host=n1 step=120 resume=runs/a/step-0000000100.h5", and then
/// `details` of key_value(), with a line's end. Of this host.
std::string fault_line(Exit code, std::string_view kind, int rank, const FaultContext& context,
                       std::string_view details = "");

}  // namespace ringtrain
