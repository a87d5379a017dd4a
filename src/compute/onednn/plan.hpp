#pragma once
#include <omp.h>

#include <cstddef>
#include <exception>
#include <optional>

#include "compute/onednn/planner.hpp"

namespace ringtrain::compute::onednn {

/// Plans one kind of step. Each kind has its specialisation, in the file of its operation.
template <class Kind>
Action plan(const Kind& step, Planner& planner);

/// `run`, then `f` of what it wrote.
Action then_in_place(Action run, Activation f, TensorId y, Planner& planner);
/// `run`, then zeros in the lanes past the last channel of `y`, where `f` would not keep them.
Action padding_zeroed(Activation f, TensorId y, Action run, const Planner& planner);

/// A tensor at its place in memory, or in the scratch memory of the step that is planned.
struct Operand {
  Tensor tensor;
  std::optional<Scratch> scratch = std::nullopt;
};

// Convolutions of operands that need not be tensors of the schedule: matrix products are some.
Action plan_forward(const ConvolutionForward&, const Operand& x, const Operand& y, Planner&);
Action plan_input_gradient(const ConvolutionInputGradient&, const Operand& dy, const Operand& dx,
                           Planner&);
Action plan_weight_gradient(const ConvolutionWeightGradient&, const Operand& x, const Operand& dy,
                            Planner&);

/// Runs f(item) for each of `items` items on `threads` threads. Items follow from the shapes alone,
/// never from the number of threads, and each writes its own result: so bits do not depend on it.
/// What an item throws is thrown here once all are done. Whoever runs later sees what items stored,
/// past the caches, too.
template <class F>
void for_each_item(int threads, std::size_t items, const F& f) {
  std::exception_ptr failure;
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(static) nowait
    for (std::size_t item = 0; item < items; ++item) try {
        f(item);
      } catch (...) {
#pragma omp critical
        failure = std::current_exception();
      }
    order_stores();
  }
  if (failure) std::rethrow_exception(failure);
}

/// Which of the threads runs this item: for scratch memory that items must not share.
inline int this_thread() { return omp_get_thread_num(); }

}  // namespace ringtrain::compute::onednn
