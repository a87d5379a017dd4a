#include "compute/cuda/kernels/pool_work.hpp"
#include "compute/cuda/kernels/queue.cuh"

namespace ringtrain::cuda::kernels {

void max_pool_forward(const PoolOperands& operands, const void* x, void* y, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::max_pool_forward(operands, x, y, queue);
}

void max_pool_backward(const PoolOperands& operands, const void* x, const void* y, const void* dy,
                       void* dx, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::max_pool_backward(operands, x, y, dy, dx, queue);
}

void average_pool_forward(const PoolOperands& operands, const void* x, void* y,
                          cudaStream_t stream) {
  StreamQueue queue(stream);
  work::average_pool_forward(operands, x, y, queue);
}

void average_pool_backward(const PoolOperands& operands, const void* dy, void* dx,
                           cudaStream_t stream) {
  StreamQueue queue(stream);
  work::average_pool_backward(operands, dy, dx, queue);
}

}  // namespace ringtrain::cuda::kernels
