#include "compute/cuda/kernels/arguments/queue.cuh"
#include "compute/cuda/kernels/device/elementwise_work.hpp"

namespace ringtrain::compute::cuda::kernels {

void relu_forward(Element element, std::size_t count, const void* x, void* y, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::relu_forward(element, count, x, y, queue);
}

void relu_backward(Element element, std::size_t count, const void* y, const void* dy, void* dx,
                   cudaStream_t stream) {
  StreamQueue queue(stream);
  work::relu_backward(element, count, y, dy, dx, queue);
}

void add(Element element, std::size_t count, const void* a, const void* b, void* y, bool relu,
         cudaStream_t stream) {
  StreamQueue queue(stream);
  work::add(element, count, a, b, y, relu, queue);
}

void scale(Element from, Element to, float factor, std::size_t count, const void* x, void* y,
           cudaStream_t stream) {
  StreamQueue queue(stream);
  work::scale(from, to, factor, count, x, y, queue);
}

void convert(Element from, Element to, std::size_t count, const void* x, void* y,
             cudaStream_t stream) {
  StreamQueue queue(stream);
  work::convert(from, to, count, x, y, queue);
}

void dropout(const DropoutOperands& operands, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::dropout(operands, queue);
}

}  // namespace ringtrain::compute::cuda::kernels
