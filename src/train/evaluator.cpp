#include "train/evaluator.hpp"

#include <array>

#include "ringtrain/train/stopwatch.hpp"

namespace ringtrain {

Evaluation evaluate(Program& program, const Dataset& dataset, const LoaderOptions& options,
                    const MpiSession& session) {
  Stopwatch watch;
  Loader loader(dataset, options);
  std::array<double, 4> sums{};  // loss, top1, top5, samples
  while (const Batch* batch = loader.next()) {
    const StepResult result = program.run(*batch, 1, nullptr);
    sums[0] += result.loss;
    sums[1] += result.top1;
    sums[2] += result.top5;
    sums[3] += result.samples;
  }
  session.sum(sums);
  const double samples = std::max(sums[3], 1.0);
  return {sums[0] / samples, sums[1] / samples,
          sums[2] / samples, static_cast<std::uint64_t>(sums[3]),
          watch.lap(),       loader.take_events()};
}

}  // namespace ringtrain
