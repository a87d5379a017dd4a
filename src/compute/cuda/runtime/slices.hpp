#pragma once
#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute::cuda {

/// Whether those tensors of `step` that are slices may be some: our kernels have a pitch for a few
/// of their operands; of convolutions, fused ones may read x there, where it begins at 16 bytes and
/// cuDNN, when it is asked, has an engine.
bool takes_slices(const Schedule& schedule, const Step& step, Element element);

}  // namespace ringtrain::compute::cuda
