#pragma once
#include <map>
#include <vector>

#include "compute/cuda/engines/engine.hpp"
#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute::cuda {

/// Whether our own kernels run a convolution: one in groups, and one of fewer channels than cuDNN's
/// engines take, unless it reads the image, which is stored with more.
bool is_ours(const Schedule& schedule, const ConvolutionShape& window, TensorId x);

/// A convolution as cuDNN is asked for it.
struct Convolution {
  ConvolutionShape window;
  Shape x, y;
};

/// How the convolution of an image of few channels is stored and computed; others stay as they are.
/// Tensor cores want 8 channels or more, so zeros are appended. With stride 2 each 2x2 block of
/// pixels becomes 16 channels, and a stored pixel holds all blocks of a window's row, with those
/// that are padding: of a 7x7 convolution, a 4x1 one of 64 channels with stride 1 remains, which
/// cuDNN also fuses with statistics. Its engines take 64 channels at a time: with the 16 of one
/// block a pixel, that convolution took four times as long on an H100.
Convolution stored(const ConvolutionShape& window, const Shape& x, const Shape& y, Element element);

/// An image whose convolution wants it stored otherwise.
struct StoredImage {
  ConvolutionShape window;  ///< of the convolution as the schedule has it
  Convolution form;

  static constexpr int block_channels = 16;
  /// Of 2x2 pixels, in each stored pixel; 0: it is stored pixel by pixel.
  int blocks() const { return form.window == window ? 0 : form.x.channels / block_channels; }
};
/// By tensor. Throws Error where two convolutions want an image stored in different ways, or where
/// a tensor that is no image has too few channels.
std::map<TensorId, StoredImage> stored_images(const Schedule& schedule, Element element);
/// Bytes of each tensor as it is stored.
std::vector<std::size_t> stored_bytes(const Schedule& schedule, Element element);

// What cuDNN is asked for each step. Matrix products are 1x1 convolutions of one pixel, because
// only those can be planned without a device. `fused` of a forward step: bias and ReLU are
// part of the kernel.

Request request(const Schedule& schedule, const ConvolutionForward& step, Element element,
                bool fused);
Request request(const Schedule& schedule, const ConvolutionInputGradient& step, Element element);
Request request(const Schedule& schedule, const ConvolutionWeightGradient& step, Element element);
/// The convolution steps that matrix products are: x and dy have one pixel a sample.
Request request(const Schedule& schedule, const MatrixProductForward& step, Element element,
                bool fused);
Request request(const Schedule& schedule, const MatrixProductInputGradient& step, Element element);
Request request(const Schedule& schedule, const MatrixProductWeightGradient& step, Element element);

/// What cuDNN must be asked about `step`, because nothing else could do it: nothing, where a kernel
/// of ours can. A convolution's own bias and ReLU are no such thing: we add them where cuDNN does
/// not.
std::optional<Request> fused_request(const Schedule& schedule, const Step& step, Element element);

}  // namespace ringtrain::compute::cuda
