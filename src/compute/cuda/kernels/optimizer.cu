#include "compute/cuda/kernels/arguments/queue.cuh"
#include "compute/cuda/kernels/device/update/optimizer_work.hpp"

namespace ringtrain::compute::cuda::kernels {

void begin_update(UpdateState* state, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::begin_update(state, queue);
}

void accumulate(std::size_t count, const float* values, float* sum, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::accumulate(count, values, sum, queue);
}

void mark_not_finite(Element element, std::size_t count, const void* gradients, UpdateState* state,
                     cudaStream_t stream) {
  StreamQueue queue(stream);
  work::mark_not_finite(element, count, gradients, state, queue);
}

void prepare_update(const RuleSettings& settings, const StepScalars* scalars, UpdateState* state,
                    cudaStream_t stream) {
  StreamQueue queue(stream);
  work::prepare_update(settings, scalars, state, queue);
}

void clip_gradients(const RuleSettings& settings, std::size_t count, const UpdateBuffers& buffers,
                    UpdateState* state, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::clip_gradients(settings, count, buffers, state, queue);
}

void measure_tensors(const RuleSettings& settings, const UpdateBuffers& buffers,
                     const UpdateState* state, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::measure_tensors(settings, buffers, state, queue);
}

void update(const RuleSettings& settings, const UpdateBuffers& buffers, Range range,
            const StepScalars* scalars, UpdateState* state, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::update(settings, buffers, range, scalars, state, queue);
}

void add_squares(const RuleSettings& settings, const UpdateBuffers& buffers, Range range,
                 UpdateState* state, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::add_squares(settings, buffers, range, state, queue);
}

void put_part(float* head, const UpdateState* state, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::put_part(head, state, queue);
}

void adopt(std::size_t count, const UpdateBuffers& buffers, const UpdateState* state,
           cudaStream_t stream) {
  StreamQueue queue(stream);
  work::adopt(count, buffers, state, queue);
}

void move_average(std::size_t count, const float* values, float* average, float rate,
                  const UpdateState* state, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::move_average(count, values, average, rate, state, queue);
}
void move_average(std::size_t count, float* values, float* average, const UpdateState* state,
                  cudaStream_t stream) {
  StreamQueue queue(stream);
  work::move_average(count, values, average, state, queue);
}

void finish_update(const LossScaleSettings& settings, UpdateState* state, cudaStream_t stream) {
  StreamQueue queue(stream);
  work::finish_update(settings, state, queue);
}

std::size_t update_workspace(std::size_t segments) {
  const std::size_t tensors = segments * (1 + std::size_t(work::tensor_parts) * 2);
  return (work::most_update_blocks + tensors) * sizeof(double);
}

}  // namespace ringtrain::compute::cuda::kernels
