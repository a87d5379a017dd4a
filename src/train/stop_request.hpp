#pragma once

namespace ringtrain {

/// Turns the first SIGTERM or SIGINT into a wish to stop after the current step; a second one ends
/// the process at once. One lives, in run().
class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;

  /// The signal that came, or 0.
  int signal() const;
};

}  // namespace ringtrain
