#pragma once
#include <vector>

#include "compute/onednn/tensor.hpp"

namespace ringtrain::onednn {

/// How each tensor of a schedule is laid out: blocked, but for images that only convolutions read.
/// Places none of them.
std::vector<Tensor> choose_layouts(const Schedule& schedule, int block);

}  // namespace ringtrain::onednn
