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

/// What all ranks call the signals that came to `ranks` of them, with numbers that add up to `sum`:
/// 0 if none came, SIGTERM where they differ.
int agreed_signal(double sum, double ranks);

}  // namespace ringtrain
