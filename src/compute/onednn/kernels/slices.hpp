#pragma once
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute::onednn {

/// Whether those tensors of `step` that are slices may be some: BatchNorm's and those that are
/// copied, where a slice has blocks of `block` channels of its own.
bool takes_slices(const Schedule& schedule, const Step& step, int block);

}  // namespace ringtrain::compute::onednn
