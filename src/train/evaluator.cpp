#include "train/evaluator.hpp"

#include <algorithm>
#include <array>
#include <exception>

#include "ringtrain/train/stopwatch.hpp"

namespace ringtrain {

Evaluation evaluate(Program& program, const Dataset& dataset, const LoaderOptions& options,
                    const MpiSession& session, const std::function<Wish()>& ask,
                    Progress& progress) {
  progress.pause();
  Stopwatch watch;
  Loader loader(dataset, options);
  // loss, top1, top5, samples; ranks that wish to stop, that have a signal, their signals
  std::array<double, 7> sums{};
  Wish wish;
  try {
    for (;;) {
      progress.enter(Activity::evaluation);
      if (const Wish now = ask(); now.stop || now.signal != 0) wish = now;
      if (wish.stop) break;
      const Batch* batch = loader.next();
      if (batch == nullptr) break;
      const StepResult result = program.run(*batch, 1, nullptr);
      sums[0] += result.loss;
      sums[1] += result.top1;
      sums[2] += result.top5;
      sums[3] += result.samples;
    }
  } catch (const std::exception& failure) {
    session.abort(failure);  // while the loader lives: a thread of it may be stuck in a read
  }
  sums[4] = wish.stop;
  sums[5] = wish.signal != 0;
  sums[6] = wish.signal;
  session.sum(sums);
  const double samples = std::max(sums[3], 1.0);
  return {agreed_wish(sums[4], sums[5], sums[6]),
          sums[0] / samples,
          sums[1] / samples,
          sums[2] / samples,
          static_cast<std::uint64_t>(sums[3]),
          watch.lap(),
          loader.take_events()};
}

}  // namespace ringtrain
