#pragma once
#include <functional>

#include "ringtrain/compute/step.hpp"
#include "ringtrain/model/graph.hpp"

namespace ringtrain::model {

enum class Mode {
  training,
  evaluation,
  prediction,  ///< gives logits (Schedule::logits): no labels, no loss
};
/// Whose samples a training BatchNorm normalises by.
enum class BatchNorms { each_rank, all_ranks };

/// Whether a backend has an implementation of a (fused) step on the tensors of a
/// schedule: Backend::supports.
using Supports = std::function<bool(const compute::Schedule&, const compute::Step&)>;

/// By node, whether `mode` needs it: without training, only those that a head other than an
/// auxiliary one reaches.
std::vector<bool> needed_nodes(const Graph& graph, Mode mode);

/// The forward steps of `graph` for `batch` samples, one step an operation. Evaluation and
/// prediction read running statistics and leave out dropout and auxiliary heads with all that only
/// feeds them.
compute::Schedule lower(const Graph& graph, int batch, Mode mode, float label_smoothing);

/// Merges activations and residual additions into the step that produces their input, where
/// `supports` agrees and nothing else reads that input. In training the slope of what is merged
/// must follow from what is kept anyway. Forward steps in, forward steps out.
compute::Schedule fuse_forward(compute::Schedule schedule, const Supports& supports, Mode mode);

/// Puts an average pool that keeps the image's extent behind the convolution of one pixel that
/// alone reads it, where that has fewer channels: both are linear, one over pixels, the other over
/// channels, so either may come first. Forward steps in, forward steps out.
compute::Schedule pool_after_convolution(compute::Schedule schedule);

/// Makes one convolution of several of one pixel that read the same tensor, have a BatchNorm behind
/// each, and have their weights one behind the other in the flat buffer: x is read once, and its
/// gradient is one. Their results become slices of one tensor (Schedule::slices), if `supports`
/// agrees that the BatchNorms, forward and backward, can work there. Forward steps in, forward
/// steps out.
compute::Schedule merge_convolutions(compute::Schedule schedule, const Supports& supports);

/// Appends the backward pass of forward steps: for each, in reverse, the weight gradient first, so
/// that its sum over the ranks can start, then the input gradient. The gradient of the image is not
/// computed. Gradients of one tensor from several steps are summed by Add. The gradient of a slice
/// is a slice of the gradient.
compute::Schedule differentiate(compute::Schedule schedule);

/// Makes the backward pass cheaper, on the same conditions as fuse_forward: a ReLU's mask moves
/// behind a max pool (fewer elements) and into an LRN's or BatchNorm's backward; the sum of two
/// gradients moves into BatchNorm's and max pool's.
compute::Schedule fuse_backward(compute::Schedule schedule, const Supports& supports);

/// Whether split_batch_norm would split `step`, a BatchNormForward or the BatchNormBackward of one
/// in `schedule`: whether `supports` accepts all pieces.
bool splits(const compute::Schedule& schedule, const compute::Step& step, const Supports& supports);

/// Replaces each training BatchNorm, forward and backward, by its pieces where `supports` accepts
/// all of them, also when it accepts the whole. One over all ranks stays whole.
compute::Schedule split_batch_norm(compute::Schedule schedule, const Supports& supports);

/// Moves pieces of BatchNorm into the convolutions and max pools around them, where `supports`
/// agrees: statistics into the convolution that writes x; the activation into the steps that read
/// it, so that it is not stored unless others read it; the backward reduction into the step that
/// writes the gradient. Also scales a projection shortcut where it is added. Steps move so that
/// each reads what is written.
compute::Schedule fuse_convolutions(compute::Schedule schedule, const Supports& supports);

/// Makes one step of two that apply BatchNorms' backward to the same gradient, where `supports`
/// agrees: both branches of a ResNet stage's first block.
compute::Schedule pair_batch_norms(compute::Schedule schedule, const Supports& supports);

/// Makes concatenations, and the slices of their gradients, cost nothing, where `supports` agrees
/// that all steps that touch an input, or a slice, can work on a Slice of the whole
/// (Schedule::slices): a Concat or ChannelSlice then is no step. Of a concatenation, those inputs
/// are still copied for which it does not.
compute::Schedule join_in_place(compute::Schedule schedule, const Supports& supports);

/// Lets elementwise backward steps write over an input that dies in them. No slice is one.
compute::Schedule reuse_in_place(compute::Schedule schedule);

/// All passes in order. `fuse` = false leaves out the fusions, for comparison.
compute::Schedule make_schedule(const Graph& graph, int batch, Mode mode, float label_smoothing,
                                const Supports& supports, bool fuse = true,
                                BatchNorms batch_norms = BatchNorms::each_rank);

}  // namespace ringtrain::model
