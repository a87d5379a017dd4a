#pragma once
#include "ringtrain/compute/element.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::cuda {

/// Whether those tensors of `step` that are slices may be some: our kernels have a pitch for a few
/// of their operands; a convolution may read slices that begin at 16 bytes, if cuDNN says so when
/// it is asked. Written by one, cuDNN would make a copy unseen.
bool takes_slices(const Schedule& schedule, const Step& step, Element element);

}  // namespace ringtrain::cuda
