#include "compute/cuda/kernels/arguments/queue.cuh"
#include "compute/cuda/kernels/device/update/weights_work.hpp"

namespace ringtrain::compute::cuda::kernels {

void pack_weights(const WeightForm& form, Element element, const void* weights, void* packed,
                  cudaStream_t stream) {
  StreamQueue queue(stream);
  work::pack_weights(form, element, weights, packed, queue);
}

void unpack_weights(const WeightForm& form, Element element, const void* packed, float* gradient,
                    cudaStream_t stream) {
  StreamQueue queue(stream);
  work::unpack_weights(form, element, packed, gradient, queue);
}

void widen_gradients(Element element, const WidenTile* tiles, std::size_t count, float* gradients,
                     cudaStream_t stream) {
  StreamQueue queue(stream);
  work::widen_gradients(element, tiles, count, gradients, queue);
}

}  // namespace ringtrain::compute::cuda::kernels
