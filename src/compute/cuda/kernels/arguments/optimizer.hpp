#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/update.hpp"

// One update of the parameters, entirely on the device, so that a captured graph can contain it:
//   begin_update; mark_not_finite on every summed gradient and loss; prepare_update;
//   clip_gradients; measure_tensors; update on every range; finish_update.
// All pointers are the device's. All calls queue on `stream` and return; they throw Error when a
// launch fails. The rules are those of the optimizer on the host, element by element.
namespace ringtrain::compute::cuda::kernels {

/// What the host says of a step. It is copied to the device before the step is launched.
struct StepScalars {
  std::int64_t step;  ///< steps before this one, with those that were skipped
  double learning_rate;
  double gradient_scale;  ///< multiplies gradients, besides 1 / loss scale
};

/// Factors of this update, as prepare_update leaves them for update.
struct UpdateFactors {
  double lr;  ///< divided by adam's first correction
  float scale, momentum, mean_square_decay, beta1, beta2, epsilon, root_scale, average_rate;
  std::int64_t lookahead;  ///< not 0: what is averaged becomes its average
};

/// Of a rank in a step's head: the sum over 65536 ranks is finite, as no step is skipped for it.
inline constexpr float most_squares = 0x1p+111f;

/// Lives on the device from step to step. To start: zero but for `loss_scale`.
struct UpdateState {
  float loss_scale;         ///< what the losses of the next step are multiplied by
  float good_steps;         ///< since the scale last changed; a whole number
  float skipped;            ///< steps that were not finite, and so no updates; a whole number
  std::int32_t not_finite;  ///< this step has a gradient that is infinite or no number
  std::int32_t hopeless;    ///< and no lower scale is left to try
  double squares;           ///< sum of decay * w^2 over this step's updates, before them
  double gradient_squares;  ///< where they are clipped: as they are summed
  UpdateFactors factors;
};

/// Flat buffers of one layout, 16-byte aligned. Slots that the rule does not have are null.
struct UpdateBuffers {
  float* parameters;
  const void* gradients;
  Element gradient_element;
  float *slot0, *slot1;          ///< momentum (also lars) | mean_square, momentum | adam_m, adam_v
  float* average;                ///< null: none
  void* copy;                    ///< parameters rounded for the next step; null: none
  Element copy_element;          ///< fp16 or bf16; the gradients', unless those are fp32
  const DecaySegment* segments;  ///< ascending, covering all parameters
  std::uint32_t segment_count;
  double* workspace;             ///< update_workspace(segment_count) bytes; null: no squares
  std::uint64_t slots_from = 0;  ///< the parameter that slots begin with; a multiple of 4
};
std::size_t update_workspace(std::size_t segments);

/// Clears what is of one step.
void begin_update(UpdateState* state, cudaStream_t stream);
/// sum += values: one micro-step's gradients onto those of the micro-steps before.
void accumulate(std::size_t count, const float* values, float* sum, cudaStream_t stream);
/// Sets state->not_finite if any of `count` gradients is infinite or no number. Or other summed
/// numbers: a StepHead's loss.
void mark_not_finite(Element element, std::size_t count, const void* gradients, UpdateState* state,
                     cudaStream_t stream);
/// Computes state->factors, once a step.
void prepare_update(const RuleSettings& settings, const StepScalars* scalars, UpdateState* state,
                    cudaStream_t stream);
/// Where the rule has a clip_norm: lowers the factor of all `count` gradients, so that their norm
/// is at most that. Takes the workspace before update does.
void clip_gradients(const RuleSettings& settings, std::size_t count, const UpdateBuffers& buffers,
                    UpdateState* state, cudaStream_t stream);
/// For lars: the trust ratios, from all summed gradients, into the workspace.
void measure_tensors(const RuleSettings& settings, const UpdateBuffers& buffers,
                     const UpdateState* state, cudaStream_t stream);
/// In one pass over `range`: unscale, decay, the rule, moving average, copy, and decay * w^2 into
/// state->squares, in a fixed order; not these where there is no workspace, which lars needs.
/// Changes nothing when the step is not finite. The gradients
/// stay as they are.
void update(const RuleSettings& settings, const UpdateBuffers& buffers, Range range,
            const StepScalars* scalars, UpdateState* state, cudaStream_t stream);
/// Where ranks share the optimizer, each with a part of the parameters. Before the update: sum of
/// decay * w^2 over `range` onto state->squares, in a fixed order.
void add_squares(const RuleSettings& settings, const UpdateBuffers& buffers, Range range,
                 UpdateState* state, cudaStream_t stream);
/// Tells the other ranks, in a step's head: its squares, at most `most_squares`, and, infinite,
/// that a part that this rank has is not finite. So the sum of the heads is not finite on any rank.
void put_part(float* head, const UpdateState* state, cudaStream_t stream);
/// After the update, of `count` parameters that others updated, too: moving average and copy, as
/// update() does.
void adopt(std::size_t count, const UpdateBuffers& buffers, const UpdateState* state,
           cudaStream_t stream);
/// average += rate * (values - average), unless the step is not finite: BatchNorm's statistics.
void move_average(std::size_t count, const float* values, float* average, float rate,
                  const UpdateState* state, cudaStream_t stream);
/// The same as the parameters' moving average does, which may pull them: of running statistics.
void move_average(std::size_t count, float* values, float* average, const UpdateState* state,
                  cudaStream_t stream);
/// Adapts the loss scale and counts a step that was skipped.
void finish_update(const LossScaleSettings& settings, UpdateState* state, cudaStream_t stream);

}  // namespace ringtrain::compute::cuda::kernels
