#include "compute/cuda/kernels/arguments/queue.cuh"
#include "compute/cuda/kernels/device/channels_work.hpp"
#include "compute/cuda/kernels/device/elementwise_work.hpp"

namespace ringtrain::compute::cuda::kernels {

void pointwise(Activation f, Element element, std::size_t count, const void* x, void* y,
               cudaStream_t stream) {
  StreamQueue queue(stream);
  work::pointwise(f, element, count, x, y, queue);
}

void pointwise_backward(Activation f, Element element, std::size_t count, const void* saved,
                        const void* dy, void* dx, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::pointwise_backward(f, element, count, saved, dy, dx, queue);
}

void add(Element element, std::size_t count, const void* a, const void* b, void* y, Activation then,
         cudaStream_t stream) {
  StreamQueue queue(stream);
  work::add(element, count, a, b, y, then, queue);
}

void scale(Element from, Element to, float factor, std::size_t count, const void* x, void* y,
           cudaStream_t stream) {
  StreamQueue queue(stream);
  work::scale(from, to, factor, count, x, y, queue);
}

void scale_forward(const ScaleExtents& e, const void* x, const void* s, void* y,
                   cudaStream_t stream) {
  StreamQueue queue(stream);
  work::scale_forward(e, x, s, y, queue);
}

void scale_backward(const ScaleExtents& e, const void* x, const void* s, const void* dy, void* dx,
                    void* ds, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::scale_backward(e, x, s, dy, dx, ds, queue);
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

void add_bias(Element element, std::size_t pixels, std::size_t channels, const void* x,
              const float* bias, void* y, Activation then, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::add_bias(element, pixels, channels, x, bias, y, then, queue);
}

void bias_gradient(Element element, std::size_t pixels, std::size_t channels, const void* dy,
                   float* db, float* workspace, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::bias_gradient(element, pixels, channels, dy, db, workspace, queue);
}

void copy_channels(Element element, std::size_t pixels, std::size_t channels, const void* x,
                   std::size_t x_pitch, void* y, std::size_t y_pitch, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::copy_channels(element, pixels, channels, x, x_pitch, y, y_pitch, queue);
}

void shortcut_forward(Element element, const Shape& x_shape, const Shape& y_shape, int stride,
                      const void* x, void* y, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::shortcut_forward(element, x_shape, y_shape, stride, x, y, queue);
}

void shortcut_backward(Element element, const Shape& dy_shape, const Shape& dx_shape, int stride,
                       const void* dy, void* dx, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::shortcut_backward(element, dy_shape, dx_shape, stride, dy, dx, queue);
}

std::size_t bias_gradient_workspace(std::size_t pixels, std::size_t channels) {
  return sums_workspace(pixels, channels, 1);
}

}  // namespace ringtrain::compute::cuda::kernels
