#include "compute/cuda/kernels/arguments/queue.cuh"
#include "compute/cuda/kernels/device/lrn_work.hpp"
#include "compute/cuda/kernels/device/max_pool_work.hpp"
#include "compute/cuda/kernels/device/pool_work.hpp"

namespace ringtrain::compute::cuda::kernels {

void max_pool_forward(const MaxPoolForwardOperands& operands, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::max_pool_forward(operands, queue);
}

void max_pool_backward(const MaxPoolBackwardOperands& operands, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::max_pool_backward(operands, queue);
}

std::size_t max_pool_workspace(const PoolOperands& operands) {
  return work::max_pool_workspace(operands);
}

void max_pool_backward_reduce(const MaxPoolBackwardOperands& operands,
                              const BatchNormBackwardReduceOperands& norm, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::max_pool_backward_reduce(operands, norm, queue);
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

void filter_forward(const FilterOperands& operands, const void* x, void* y, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::filter_forward(operands, x, y, queue);
}

void filter_backward(const FilterOperands& operands, const void* dy, void* dx,
                     cudaStream_t stream) {
  StreamQueue queue(stream);
  work::filter_backward(operands, dy, dx, queue);
}

void reflect_pad_forward(Element element, const Shape& x_shape, int border, const void* x, void* y,
                         cudaStream_t stream) {
  StreamQueue queue(stream);
  work::reflect_pad_forward(element, x_shape, border, x, y, queue);
}

void reflect_pad_backward(Element element, const Shape& x_shape, int border, const void* dy,
                          void* dx, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::reflect_pad_backward(element, x_shape, border, dy, dx, queue);
}

void lrn_forward(const LrnOperands& operands, const void* x, void* y, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::lrn_forward(operands, x, y, queue);
}

void lrn_backward(const LrnOperands& operands, const void* x, const void* dy, void* dx, bool mask,
                  cudaStream_t stream) {
  StreamQueue queue(stream);
  work::lrn_backward(operands, x, dy, dx, mask, queue);
}

}  // namespace ringtrain::compute::cuda::kernels
