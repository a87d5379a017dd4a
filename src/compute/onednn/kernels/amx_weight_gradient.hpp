#pragma once
#include "compute/onednn/phases.hpp"

namespace ringtrain::compute::onednn {

/// Whether our own kernel for AMX takes this weight gradient: bf16 with channels last, a dense
/// filter, and few threads, as each has sums of its own.
bool suits_amx(const ConvolutionWeightGradient& step, const Tensor& x, const Tensor& dy,
               int threads);

/// dw[tap] = sum over pixels p of x[p + tap] * dy[p], in fp32, of `taps` of a filter. Bits depend
/// on the number of threads.
Action plan_amx(const Taps& taps, const ConvolutionWeightGradient& step, const Operand& x,
                const Operand& dy, Planner& planner);

}  // namespace ringtrain::compute::onednn
