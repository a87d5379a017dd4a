#pragma once
#include <string>
#include <vector>

#include "compute/cuda/engines/convolution.hpp"
#include "ringtrain/compute/gpu_planner.hpp"

namespace ringtrain::compute::cuda {

/// Whether `step` as it stands is an engine of cuDNN's, where it must be one, or else kernels of
/// ours.
bool supports(const Schedule& schedule, const Step& step, Element element, Engines& engines);

/// What each step of one schedule starts on the GPU, and the bytes that it moves. Convolutions
/// without groups and matrix products are cuDNN's, all else are kernels of ours, whose workspace (a
/// few partial sums a channel) is not counted.
class Launches {
 public:
  /// `schedule` and `engines` outlive this object.
  Launches(const Schedule& schedule, Element element, Engines& engines);

  /// In the order of their start. Throws Error where cuDNN has no engine.
  std::vector<Launch> of(const Step& step);
  /// What brings the 16-bit gradients of all steps so far where they belong, as in one bucket; it
  /// moves nothing where there are none.
  const Launch& widening() const { return widening_; }
  /// Bytes of weights and gradients as cuDNN wants them, which stay all the time.
  std::size_t kept() const { return kept_; }
  /// Bytes of each tensor as it is stored: the image has padded channels.
  const std::vector<std::size_t>& tensor_bytes() const { return bytes_; }

 private:
  using Ids = std::vector<TensorId>;

  std::vector<Launch> launches(const ConvolutionForward& s);
  std::vector<Launch> launches(const ConvolutionInputGradient& s);
  std::vector<Launch> launches(const ConvolutionWeightGradient& s);
  std::vector<Launch> launches(const MatrixProductForward& s);
  std::vector<Launch> launches(const MatrixProductInputGradient& s);
  std::vector<Launch> launches(const MatrixProductWeightGradient& s);
  std::vector<Launch> launches(const BatchNormForward& s) const;
  std::vector<Launch> launches(const BatchNormBackward& s) const;
  std::vector<Launch> launches(const BatchNormInputGradient& s) const;
  std::vector<Launch> launches(const Input& s) const;
  std::vector<Launch> launches(const Concat& s) const;
  std::vector<Launch> launches(const MaxPoolForward& s) const;
  std::vector<Launch> launches(const MaxPoolBackward& s) const;
  template <class Kind>
  std::vector<Launch> launches(const Kind& s) const;

  /// One of our kernels, by the name of its function in kernels/.
  Launch kernel(const std::string& name, const Ids& read, const Ids& written) const;
  /// A kernel that reads and writes the tensors that its step does.
  Launch kernel(const std::string& name, const Step& step) const;
  /// Our own kernel of a convolution.
  Launch ours(const std::string& what, const Shape& y, const Step& step, std::size_t weights) const;
  Launch cudnn(const Request& request, const Step& step);
  template <class Kind>
  std::vector<Launch> forward(const Kind& s, std::size_t weights);
  template <class Kind>
  std::vector<Launch> weight_gradient(const Kind& s, std::size_t weights);
  /// Of a convolution's weights in the type of the activations, as it wants them.
  std::size_t weight_bytes(const ConvolutionShape& window, TensorId x, TensorId y) const;
  std::size_t sum(const Ids& ids) const;

  const Schedule& schedule_;
  const Element element_;
  Engines& engines_;
  std::vector<std::size_t> bytes_;
  Launch widening_{"kernel widen_gradients"};
  std::size_t kept_ = 0;
};

}  // namespace ringtrain::compute::cuda
