#include "train/evaluator.hpp"

#include <array>

#include "ringtrain/train/stopwatch.hpp"

namespace ringtrain {

Evaluation evaluate(Program& program, const Dataset& dataset, const LoaderOptions& options,
                    const MpiSession& session, const StopRequest& stop) {
  Stopwatch watch;
  Loader loader(dataset, options);
  std::array<double, 6> sums{};  // loss, top1, top5, samples, ranks with a signal, their signals
  while (stop.signal() == 0) {
    const Batch* batch = loader.next();
    if (batch == nullptr) break;
    const StepResult result = program.run(*batch, 1, nullptr);
    sums[0] += result.loss;
    sums[1] += result.top1;
    sums[2] += result.top5;
    sums[3] += result.samples;
  }
  sums[4] = stop.signal() != 0;
  sums[5] = stop.signal();
  session.sum(sums);
  const double samples = std::max(sums[3], 1.0);
  // one number on all ranks, also where they were sent different signals
  const int signal = sums[4] > 0 ? static_cast<int>(sums[5] / sums[4]) : 0;
  return {signal,
          sums[0] / samples,
          sums[1] / samples,
          sums[2] / samples,
          static_cast<std::uint64_t>(sums[3]),
          watch.lap(),
          loader.take_events()};
}

}  // namespace ringtrain
