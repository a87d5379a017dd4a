#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "ringtrain/compute/batch_norm_step.hpp"
#include "ringtrain/compute/shape.hpp"

namespace ringtrain::compute {

// Each step kind names the tensors it touches and lists them once, in visit(), for the passes.
// Weights: convolution out x kernel height x kernel width x in; matrix product out x features,
// where features are in the order height, width, channels. Gradients are overwritten, never added
// to. Where a step writes the gradient of a parameter it does so at the same range.

/// How images become numbers.
enum class Normalisation { standardise_image, mean_deviation };

/// Colour-distorts (Batch::distortions) and normalises the batch's images into y.
/// standardise_image: (v - mean) / max(deviation, 1/sqrt(elements)) over the whole image.
/// mean_deviation: (v / 255 - mean[channel]) / deviation[channel].
struct Input {
  TensorId y;
  Normalisation normalisation = Normalisation::mean_deviation;
  std::vector<float> mean = {}, deviation = {};
  bool distort = false;  ///< apply Batch::distortions
  bool clip = false;     ///< then cut off what left 0..255; only with mean_deviation
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.y, Access::write);
  }
};

/// y = relu?(x * w + b?). With a prologue, what it makes of x stands for x; padding stays zero.
/// `sums` (2C): the sum of y and of y^2 over all pixels, for BatchNormFinalize.
struct ConvolutionForward {
  Window window;
  TensorId x, y;
  ParameterRange w;
  std::optional<ParameterRange> b = std::nullopt;
  bool relu = false;
  std::optional<AppliedNorm> prologue = std::nullopt;
  VectorId sums = no_vector;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.x, Access::read);
    if (s.prologue) AppliedNorm::visit(*s.prologue, f);
    f(s.y, Access::write);
  }
};
/// With an epilogue, dx is no_tensor: what would be written there is the epilogue's dy. Where the
/// epilogue's residual is another BatchNorm's scaled branch, that BatchNorm's sums may be made
/// here, too: of the same g, so that it writes no tensor.
struct ConvolutionInputGradient {
  Window window;
  TensorId dy, dx;
  ParameterRange w;
  std::optional<BatchNormSums> epilogue = std::nullopt, epilogue_of_residual = std::nullopt;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.dy, Access::read);
    if (s.epilogue) BatchNormSums::visit(*s.epilogue, f);
    if (s.epilogue_of_residual) BatchNormSums::visit(*s.epilogue_of_residual, f);
    f(s.dx, Access::write);
  }
};
/// Writes dw, and db where there is a bias. A prologue of x has neither residual nor y.
struct ConvolutionWeightGradient {
  Window window;
  TensorId x, dy;
  ParameterRange w;
  std::optional<ParameterRange> b = std::nullopt;
  std::optional<AppliedNorm> prologue = std::nullopt;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.x, Access::read);
    f(s.dy, Access::read);
  }
};

/// y = relu?(x w' + b?) with x flattened to batch x features.
struct MatrixProductForward {
  TensorId x, y;
  ParameterRange w;
  std::optional<ParameterRange> b = std::nullopt;
  bool relu = false;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.x, Access::read);
    f(s.y, Access::write);
  }
};
struct MatrixProductInputGradient {
  TensorId dy, dx;
  ParameterRange w;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.dy, Access::read);
    f(s.dx, Access::write);
  }
};
struct MatrixProductWeightGradient {
  TensorId x, dy;
  ParameterRange w;
  std::optional<ParameterRange> b = std::nullopt;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.x, Access::read);
    f(s.dy, Access::read);
  }
};

/// y = max(x, 0)
struct ReluForward {
  TensorId x, y;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.x, Access::read);
    f(s.y, Access::write);
  }
};
/// dx = dy where y > 0, else 0. `y` may be any tensor that is positive where ReLU's output is.
struct ReluBackward {
  TensorId y, dy, dx;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.y, Access::read);
    f(s.dy, Access::read);
    f(s.dx, Access::write);
  }
};

/// y = relu?(a + b). Also sums two gradients of one tensor.
struct Add {
  TensorId a, b, y;
  bool relu = false;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.a, Access::read);
    f(s.b, Access::read);
    f(s.y, Access::write);
  }
};

/// y = the inputs beside each other along channels.
struct Concat {
  std::vector<TensorId> x;
  TensorId y;
  template <class S, class F>
  static void visit(S& s, F f) {
    for (auto& x : s.x) f(x, Access::read);
    f(s.y, Access::write);
  }
};
/// y = channels [first, first + channels of y) of x: the gradient of one input of a Concat.
struct ChannelSlice {
  TensorId x, y;
  int first = 0;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.x, Access::read);
    f(s.y, Access::write);
  }
};

/// The parameterless shortcut ("option A") of He et al. 2015: every `stride`-th pixel in each
/// direction, zero channels appended up to those of y.
struct ShortcutForward {
  TensorId x, y;
  int stride = 2;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.x, Access::read);
    f(s.y, Access::write);
  }
};
struct ShortcutBackward {
  TensorId dy, dx;
  int stride = 2;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.dy, Access::read);
    f(s.dx, Access::write);
  }
};

/// Maximum over each window; padding never wins. With a prologue, what it makes of x stands for x;
/// it has neither residual nor y.
struct MaxPoolForward {
  Window window;
  TensorId x, y;
  std::optional<AppliedNorm> prologue = std::nullopt;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.x, Access::read);
    f(s.y, Access::write);
  }
};
/// dx = the gradient of the MaxPoolForward with the same x and prologue: of each window, dy + dy2?
/// goes to the first maximum in row order. `y` is the forward result; with a prologue it is
/// no_tensor, because the maxima are then found anew, and dx is the gradient of what the prologue
/// makes of x. With an epilogue, dx is no_tensor: what would be written there is the epilogue's dy.
struct MaxPoolBackward {
  Window window;
  TensorId x, y, dy, dx, dy2 = no_tensor;
  std::optional<AppliedNorm> prologue = std::nullopt;
  std::optional<BatchNormSums> epilogue = std::nullopt;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.x, Access::read);
    f(s.y, Access::read);
    f(s.dy, Access::read);
    f(s.dy2, Access::read);
    if (s.epilogue) BatchNormSums::visit(*s.epilogue, f);
    f(s.dx, Access::write);
  }
};
/// Mean over the pixels of each window that are not padding. Global pooling is a window as large as
/// the image.
struct AveragePoolForward {
  Window window;
  TensorId x, y;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.x, Access::read);
    f(s.y, Access::write);
  }
};
struct AveragePoolBackward {
  Window window;
  TensorId dy, dx;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.dy, Access::read);
    f(s.dx, Access::write);
  }
};

/// Local response normalisation across channels (Krizhevsky et al. 2012):
/// y = x / (bias + alpha * sum of squares over channels c-radius..c+radius)^beta.
struct LrnForward {
  TensorId x, y;
  int radius = 4;
  float bias = 1, alpha = 0.001f / 9, beta = 0.75f;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.x, Access::read);
    f(s.y, Access::write);
  }
};
/// `mask`: dx is also zeroed where x <= 0, the backward of a ReLU that produced x.
struct LrnBackward {
  TensorId x, dy, dx;
  int radius = 4;
  float bias = 1, alpha = 0.001f / 9, beta = 0.75f;
  bool mask = false;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.x, Access::read);
    f(s.dy, Access::read);
    f(s.dx, Access::write);
  }
};

/// y = x / keep with probability keep, else 0. Element i of a sample is kept by word i of the
/// Philox stream (seed, dropout, layer + 256 * the sample's epoch, sample). Its gradient is the
/// same step on dy.
struct Dropout {
  TensorId x, y;
  float keep = 0.5f;
  std::uint32_t layer = 0;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.x, Access::read);
    f(s.y, Access::write);
  }
};

/// Adds weight * sum over samples of cross-entropy(softmax(logits), smoothed label) to
/// StepResult::loss, and, for the head with `counts`, the samples whose label is among the best 1
/// and 5. Smoothed target: 1 - smoothing at the label plus smoothing / classes everywhere.
/// Training (dlogits != no_tensor): writes dlogits = weight * sample_weight * (softmax - target).
struct SoftmaxCrossEntropy {
  TensorId logits, dlogits = no_tensor;
  float smoothing = 0, weight = 1;
  bool counts = true;
  template <class S, class F>
  static void visit(S& s, F f) {
    f(s.logits, Access::read);
    f(s.dlogits, Access::write);
  }
};

using Step =
    std::variant<Input, ConvolutionForward, ConvolutionInputGradient, ConvolutionWeightGradient,
                 MatrixProductForward, MatrixProductInputGradient, MatrixProductWeightGradient,
                 ReluForward, ReluBackward, BatchNormForward, BatchNormBackward, Add, Concat,
                 ChannelSlice, ShortcutForward, ShortcutBackward, MaxPoolForward, MaxPoolBackward,
                 AveragePoolForward, AveragePoolBackward, LrnForward, LrnBackward, Dropout,
                 SoftmaxCrossEntropy, BatchNormStatistics, BatchNormFinalize, BatchNormApply,
                 BatchNormBackwardReduce, BatchNormBackwardApply>;

/// The step kind's name, such as "ConvolutionForward".
const char* name_of(const Step& step);

/// Calls f(TensorId&, Access) for every tensor that `step` touches, skipping no_tensor.
template <class AnyStep, class F>
void for_each_tensor(AnyStep& step, F f) {
  std::visit(
      [&](auto& kind) {
        kind.visit(kind, [&](auto& id, Access access) {
          if (id != no_tensor) f(id, access);
        });
      },
      step);
}

/// The backward reductions of BatchNorms that `step` makes: itself, or as its epilogues.
std::vector<BatchNormSums> reductions_of(const Step& step);

/// The parameter ranges whose gradients `step` writes.
std::vector<ParameterRange> gradients_written(const Step& step);

/// Where a tensor lies in the memory of tensor `of`: from channel `first` on.
struct Slice {
  TensorId of = no_tensor;
  int first = 0;
};

/// What a Program executes, in this order. Pure data, independent of any backend.
struct Schedule {
  std::vector<Shape> tensors;
  /// Tensors without memory of their own: what is written to one is written to those channels of
  /// another, and the reverse. No slice is of a slice. The others of its channels stay as they are.
  std::map<TensorId, Slice> slices = {};
  std::vector<int> vectors = {};  ///< extent of each per-channel vector
  std::vector<Step> steps;
  /// The first step of the backward pass; steps.size() for an evaluation.
  std::size_t backward = 0;
  std::size_t parameters = 0;  ///< elements of the flat parameter and gradient buffers
  std::size_t statistics = 0;  ///< elements of the flat statistics buffer
  int batch = 0;

  /// Where a tensor lies: in itself unless it is a slice.
  Slice place_of(TensorId id) const {
    const auto found = slices.find(id);
    return found == slices.end() ? Slice{id, 0} : found->second;
  }
  bool is_slice(TensorId id) const { return slices.contains(id); }
};

/// Whether `step` reads or writes slices.
bool touches_slice(const Schedule& schedule, const Step& step);

/// For each step, the smallest `first` such that every gradient from `first` on is final once this
/// step and all before it are done.
std::vector<std::size_t> finality(const Schedule& schedule);

}  // namespace ringtrain::compute
