#pragma once
#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "compute/cuda/kernels/arguments/softmax.hpp"

// The calls of softmax.hpp on a step's head for any queue: StreamQueue, or a CPU's in tests.
namespace ringtrain::compute::cuda::kernels::work {

template <class Float>
constexpr StepHead* results_of(Float* head) {
  return reinterpret_cast<StepHead*>(head);
}

/// The first item writes the results, the others a zero each behind them.
template <class Float>
struct BeginHead {
  static constexpr std::size_t results = sizeof(StepHead) / sizeof(Float);
  Float* head;
  const StepFlags* flags;
  constexpr void operator()(std::uint32_t item) const {
    if (item == 0)
      *results_of(head) = {0,
                           0,
                           flags->stop,
                           flags->signalled,
                           flags->signal,
                           flags->save,
                           flags->measure_links,
                           flags->unreadable,
                           0,
                           0};
    else
      head[results + item - 1] = 0;
  }
};

template <class Queue>
void begin_head(float* head, std::size_t floats, const StepFlags* flags, Queue& queue) {
  expects(floats >= step_results, "begin_head: a head has its results");
  const BeginHead<float> work{head, flags};
  queue.items(work, floats - work.results + 1);
}

/// The first item adds the results, the others a statistic each.
template <class Float>
struct AddToHead {
  Float* head;
  const LossTotals* totals;
  const float *statistics, *sample_weight, *share;
  constexpr void operator()(std::uint32_t item) const {
    if (item == 0)
      add_results(*results_of(head));
    else
      head[step_results + item - 1] += *share * statistics[item - 1];
  }

 private:
  constexpr void add_results(StepHead& sums) const {
    sums.loss += static_cast<float>(totals->loss * *sample_weight);
    sums.top1 += static_cast<float>(totals->top1) * *sample_weight;
  }
};

template <class Queue>
void add_to_head(float* head, std::size_t statistics, const LossTotals* totals,
                 const float* batch_statistics, const float* sample_weight, const float* share,
                 Queue& queue) {
  const AddToHead<float> work{head, totals, batch_statistics, sample_weight, share};
  queue.items(work, statistics + 1);
}

}  // namespace ringtrain::compute::cuda::kernels::work
