#include <algorithm>

#include "compute/onednn/kernels/parallel.hpp"
#include "compute/onednn/plan.hpp"
#include "ringtrain/base/philox.hpp"

namespace ringtrain::compute::onednn {

Action plan(const Dropout& step, Planner& planner) {
  const Tensor x = planner.tensor(step.x), y = planner.tensor(step.y);
  return with_type(x.element, [&]<class T>(T) -> Action {
    return [=, seed = planner.seed(), threads = planner.threads()](const Frame& frame) {
      for_each_item(threads, x.shape.batch, [&](std::size_t n) {
        Philox random(seed, Purpose::dropout, step.layer + 256 * frame.batch.epochs[n],
                      frame.batch.samples[n]);
        // The padding must be zero; in place it is.
        if (y.data != x.data) std::fill_n(y.image_at<T>(n), y.image(), T(0));
        for (std::size_t pixel = 0; pixel < x.pixels(); ++pixel)
          for (int c = 0; c < x.shape.channels; ++c) {
            const std::size_t at =
                n * x.image() + c / x.block * x.block_step() + pixel * x.pixel_step() + c % x.block;
            y.as<T>()[at] = random.uniform() < step.keep ? x.as<T>()[at] / step.keep : 0;
          }
      });
    };
  });
}

}  // namespace ringtrain::compute::onednn
