#include "compute/cuda/kernels/input_work.hpp"
#include "compute/cuda/kernels/queue.cuh"

namespace ringtrain::cuda::kernels {

void input(const InputOperands& operands, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::input(operands, queue);
}

}  // namespace ringtrain::cuda::kernels
