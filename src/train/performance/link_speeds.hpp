#pragma once
#include <string>
#include <vector>

namespace ringtrain::train {

/// The links between `hosts`, in bytes a second from each host to the next, the last to the first.
struct LinkSpeeds {
  std::vector<std::string> hosts = {};
  std::vector<double> start = {}, now = {};  ///< as the run began, and in a slow-down
  double step_bytes = 0;                     ///< what each carries in a step
  double step_s = 0;                         ///< what that takes now
};
/// Says which links have become slower and take a part of the step, and what to do.
std::string compare_links(const LinkSpeeds& links);

}  // namespace ringtrain::train
