#include "compute/cuda/kernels/arguments/queue.cuh"
#include "compute/cuda/kernels/device/input_work.hpp"

namespace ringtrain::compute::cuda::kernels {

void input(const InputOperands& operands, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::input(operands, queue);
}

}  // namespace ringtrain::compute::cuda::kernels
