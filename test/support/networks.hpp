#pragma once
#include <utility>
#include <vector>

#include "ringtrain/compute/step.hpp"

namespace ringtrain::networks {

/// Training schedules written out by hand, for benchmarks and tests of the backends alone.
compute::Schedule cifar10_cnn(int batch);
compute::Schedule resnet20(int batch);

}  // namespace ringtrain::networks
