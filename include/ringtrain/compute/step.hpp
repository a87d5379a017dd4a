#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "ringtrain/compute/batch_norm_step.hpp"
#include "ringtrain/compute/operation.hpp"
#include "ringtrain/compute/pool_step.hpp"
#include "ringtrain/compute/shape.hpp"

namespace ringtrain::compute {

// Each kind of step lists its operands once, as data, for the passes: the tensors that it `reads`
// and `writes`, in members of its own or of a part such as a prologue, and the parameters whose
// `gradients` it writes. A kind may have any number of each.
// Weights: convolution out x kernel height x kernel width x in, with the channels of one group;
// matrix product out x features, where features are in the order height, width, channels. Gradients
// are overwritten, never added to. Where a step writes the gradient of a parameter it does so at
// the same range.

/// How images become numbers.
enum class Normalisation { standardise_image, mean_deviation };

/// Jitters the colours of the batch's images and normalises them into y.
/// standardise_image: (v - mean) / max(deviation, 1/sqrt(elements)) over the whole image.
/// mean_deviation: (v / 255 - mean[channel]) / deviation[channel].
struct Input {
  TensorId y;
  Normalisation normalisation = Normalisation::mean_deviation;
  std::vector<float> mean = {}, deviation = {};
  bool jitter = false;  ///< apply Sample::jitter
  bool clip = false;    ///< then cut off what left 0..255; only with mean_deviation
  bool erase = false;   ///< at last fill Sample::erased
  static constexpr const char* name = "Input";
  static constexpr auto reads = std::tuple();
  static constexpr auto writes = std::tuple(&Input::y);
};

/// y = then(x * w + b?). With a prologue, what it makes of x stands for x; padding stays zero.
/// `sums` (2C): the sum of y and of y^2 over all pixels, for BatchNormFinalize.
struct ConvolutionForward {
  ConvolutionShape window;
  TensorId x, y;
  ParameterRange w;
  std::optional<ParameterRange> b = std::nullopt;
  Activation then = Activation::none;
  std::optional<AppliedNorm> prologue = std::nullopt;
  VectorId sums = no_vector;
  static constexpr const char* name = "ConvolutionForward";
  static constexpr auto reads = std::tuple(&ConvolutionForward::x, &ConvolutionForward::prologue);
  static constexpr auto writes = std::tuple(&ConvolutionForward::y);
};
/// With an epilogue, dx is no_tensor: what would be written there is the epilogue's dy. Where the
/// epilogue's residual is another BatchNorm's scaled branch, that BatchNorm's sums may be made
/// here, too: of the same g, so that it writes no tensor.
struct ConvolutionInputGradient {
  ConvolutionShape window;
  TensorId dy, dx;
  ParameterRange w;
  std::optional<BatchNormSums> epilogue = std::nullopt, epilogue_of_residual = std::nullopt;
  static constexpr const char* name = "ConvolutionInputGradient";
  static constexpr auto reads =
      std::tuple(&ConvolutionInputGradient::dy, &ConvolutionInputGradient::epilogue,
                 &ConvolutionInputGradient::epilogue_of_residual);
  static constexpr auto writes = std::tuple(&ConvolutionInputGradient::dx);
};
/// Writes dw, and db where there is a bias. A prologue of x has neither residual nor y.
struct ConvolutionWeightGradient {
  ConvolutionShape window;
  TensorId x, dy;
  ParameterRange w;
  std::optional<ParameterRange> b = std::nullopt;
  std::optional<AppliedNorm> prologue = std::nullopt;
  static constexpr const char* name = "ConvolutionWeightGradient";
  static constexpr auto reads =
      std::tuple(&ConvolutionWeightGradient::x, &ConvolutionWeightGradient::dy);
  static constexpr auto writes = std::tuple();
  static constexpr auto gradients =
      std::tuple(&ConvolutionWeightGradient::w, &ConvolutionWeightGradient::b);
};

/// y = then(x w' + b?) with x flattened to batch x features.
struct MatrixProductForward {
  TensorId x, y;
  ParameterRange w;
  std::optional<ParameterRange> b = std::nullopt;
  Activation then = Activation::none;
  static constexpr const char* name = "MatrixProductForward";
  static constexpr auto reads = std::tuple(&MatrixProductForward::x);
  static constexpr auto writes = std::tuple(&MatrixProductForward::y);
};
struct MatrixProductInputGradient {
  TensorId dy, dx;
  ParameterRange w;
  static constexpr const char* name = "MatrixProductInputGradient";
  static constexpr auto reads = std::tuple(&MatrixProductInputGradient::dy);
  static constexpr auto writes = std::tuple(&MatrixProductInputGradient::dx);
};
struct MatrixProductWeightGradient {
  TensorId x, dy;
  ParameterRange w;
  std::optional<ParameterRange> b = std::nullopt;
  static constexpr const char* name = "MatrixProductWeightGradient";
  static constexpr auto reads =
      std::tuple(&MatrixProductWeightGradient::x, &MatrixProductWeightGradient::dy);
  static constexpr auto writes = std::tuple();
  static constexpr auto gradients =
      std::tuple(&MatrixProductWeightGradient::w, &MatrixProductWeightGradient::b);
};

/// y = f(x)
struct Pointwise {
  Activation f;
  TensorId x, y;
  static constexpr const char* name = "Pointwise";
  static constexpr auto reads = std::tuple(&Pointwise::x);
  static constexpr auto writes = std::tuple(&Pointwise::y);
};
/// dx = f'(x) * dy. `saved` is y where the slope follows from it (ActivationFacts), else x. Of ReLU
/// it may be any tensor that is positive where y is.
struct PointwiseBackward {
  Activation f;
  TensorId saved, dy, dx;
  static constexpr const char* name = "PointwiseBackward";
  static constexpr auto reads = std::tuple(&PointwiseBackward::saved, &PointwiseBackward::dy);
  static constexpr auto writes = std::tuple(&PointwiseBackward::dx);
};

/// y = then(a + b). Also sums two gradients of one tensor.
struct Add {
  TensorId a, b, y;
  Activation then = Activation::none;
  static constexpr const char* name = "Add";
  static constexpr auto reads = std::tuple(&Add::a, &Add::b);
  static constexpr auto writes = std::tuple(&Add::y);
};

/// y = x * s: each channel of an image times its own factor, s being of one pixel.
struct ScaleForward {
  TensorId x, s, y;
  static constexpr const char* name = "ScaleForward";
  static constexpr auto reads = std::tuple(&ScaleForward::x, &ScaleForward::s);
  static constexpr auto writes = std::tuple(&ScaleForward::y);
};
/// dx = dy * s, and ds = the sum over an image's pixels of dy * x. Either may be no_tensor.
struct ScaleBackward {
  TensorId x, s, dy, dx, ds;
  static constexpr const char* name = "ScaleBackward";
  static constexpr auto reads =
      std::tuple(&ScaleBackward::x, &ScaleBackward::s, &ScaleBackward::dy);
  static constexpr auto writes = std::tuple(&ScaleBackward::dx, &ScaleBackward::ds);
};

/// y = the inputs beside each other along channels.
struct Concat {
  std::vector<TensorId> x;
  TensorId y;
  static constexpr const char* name = "Concat";
  static constexpr auto reads = std::tuple(&Concat::x);
  static constexpr auto writes = std::tuple(&Concat::y);
};
/// y = channels [first, first + channels of y) of x: the gradient of one input of a Concat.
struct ChannelSlice {
  TensorId x, y;
  int first = 0;
  static constexpr const char* name = "ChannelSlice";
  static constexpr auto reads = std::tuple(&ChannelSlice::x);
  static constexpr auto writes = std::tuple(&ChannelSlice::y);
};

/// The parameterless shortcut ("option A") of He et al. 2015: every `stride`-th pixel in each
/// direction, zero channels appended up to those of y.
struct ShortcutForward {
  TensorId x, y;
  int stride = 2;
  static constexpr const char* name = "ShortcutForward";
  static constexpr auto reads = std::tuple(&ShortcutForward::x);
  static constexpr auto writes = std::tuple(&ShortcutForward::y);
};
struct ShortcutBackward {
  TensorId dy, dx;
  int stride = 2;
  static constexpr const char* name = "ShortcutBackward";
  static constexpr auto reads = std::tuple(&ShortcutBackward::dy);
  static constexpr auto writes = std::tuple(&ShortcutBackward::dx);
};

struct LrnForward {
  attributes::Lrn how;
  TensorId x, y;
  static constexpr const char* name = "LrnForward";
  static constexpr auto reads = std::tuple(&LrnForward::x);
  static constexpr auto writes = std::tuple(&LrnForward::y);
};
/// `mask`: dx is also zeroed where x <= 0, the backward of a ReLU that produced x.
struct LrnBackward {
  attributes::Lrn how;
  TensorId x, dy, dx;
  bool mask = false;
  static constexpr const char* name = "LrnBackward";
  static constexpr auto reads = std::tuple(&LrnBackward::x, &LrnBackward::dy);
  static constexpr auto writes = std::tuple(&LrnBackward::dx);
};

/// y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, where mean and (biased) variance are
/// those of each pixel's channels.
struct LayerNormForward {
  TensorId x, y;
  ParameterRange gamma, beta;
  float epsilon = 1e-6f;
  static constexpr const char* name = "LayerNormForward";
  static constexpr auto reads = std::tuple(&LayerNormForward::x);
  static constexpr auto writes = std::tuple(&LayerNormForward::y);
};
/// Writes dx, dgamma and dbeta; mean and variance are made anew.
struct LayerNormBackward {
  TensorId x, dy, dx;
  ParameterRange gamma, beta;
  float epsilon = 1e-6f;
  static constexpr const char* name = "LayerNormBackward";
  static constexpr auto reads = std::tuple(&LayerNormBackward::x, &LayerNormBackward::dy);
  static constexpr auto writes = std::tuple(&LayerNormBackward::dx);
  static constexpr auto gradients = std::tuple(&LayerNormBackward::beta, &LayerNormBackward::gamma);
};

/// y = factor * x. Its gradient is the same step on dy.
struct Multiply {
  TensorId x, y;
  float factor = 1;
  static constexpr const char* name = "Multiply";
  static constexpr auto reads = std::tuple(&Multiply::x);
  static constexpr auto writes = std::tuple(&Multiply::y);
};

/// Its gradient is the same step on dy.
struct Dropout {
  attributes::Dropout how;
  TensorId x, y;
  static constexpr const char* name = "Dropout";
  static constexpr auto reads = std::tuple(&Dropout::x);
  static constexpr auto writes = std::tuple(&Dropout::y);
};

/// Adds weight * sum over samples of cross-entropy(softmax(logits), smoothed label) to
/// StepResult::loss, and, for the head with `counts`, the samples whose label is among the best 1
/// and 5. Smoothed target: (1 - smoothing) * Target::share_of(class) + smoothing / classes. Where
/// classes have weights, it is multiplied by its class's, and the cross-entropy is the sum of
/// -target * log(softmax), as of torch's CrossEntropyLoss(weight).
/// Training (dlogits != no_tensor): writes dlogits = weight * sample_weight * (softmax * sum of the
/// targets - target).
struct SoftmaxCrossEntropy {
  TensorId logits, dlogits = no_tensor;
  float smoothing = 0, weight = 1;
  bool counts = true;
  std::vector<float> class_weights = {};  ///< by class; empty: each is 1
  /// In place of the softmax: a sigmoid of each class and its binary cross-entropy, as of torch's
  /// BCEWithLogitsLoss(weight). Over the classes it is a mean, or a sum.
  struct Binary {
    bool sums = false;
    float threshold = 0;  ///< not 0: targets above it become 1, the others 0

    constexpr float target(float smoothed) const {
      return threshold > 0 ? (smoothed > threshold ? 1.f : 0.f) : smoothed;
    }
    constexpr float factor(int classes) const { return sums ? 1.f : 1.f / float(classes); }
  };
  std::optional<Binary> binary = {};
  static constexpr const char* name = "SoftmaxCrossEntropy";
  static constexpr auto reads = std::tuple(&SoftmaxCrossEntropy::logits);
  static constexpr auto writes = std::tuple(&SoftmaxCrossEntropy::dlogits);
};

using Step =
    std::variant<Input, ConvolutionForward, ConvolutionInputGradient, ConvolutionWeightGradient,
                 MatrixProductForward, MatrixProductInputGradient, MatrixProductWeightGradient,
                 Pointwise, PointwiseBackward, BatchNormForward, BatchNormBackward,
                 BatchNormInputGradient, Add, ScaleForward, ScaleBackward, Concat, ChannelSlice,
                 ShortcutForward, ShortcutBackward, MaxPoolForward, MaxPoolBackward,
                 AveragePoolForward, AveragePoolBackward, FilterForward, FilterBackward,
                 ReflectPadForward, ReflectPadBackward, LrnForward, LrnBackward, LayerNormForward,
                 LayerNormBackward, Multiply, Dropout, SoftmaxCrossEntropy, BatchNormStatistics,
                 BatchNormFinalize, BatchNormApply, BatchNormBackwardReduce,
                 BatchNormBackwardApply>;

/// The step kind's name, such as "ConvolutionForward".
const char* name_of(const Step& step);

/// Calls f(TensorId&, Access) for every tensor that `part`, a kind of step or a part of one, lists,
/// skipping no_tensor.
template <class Part, class F>
void for_each_operand(Part& part, const F& f) {
  const auto visit = [&](auto& member, Access access) {
    using Member = std::remove_cvref_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, TensorId>) {
      if (member != no_tensor) f(member, access);
    } else if constexpr (std::is_same_v<Member, std::vector<TensorId>>) {
      for (auto& id : member) f(id, access);
    } else if constexpr (requires { member.has_value(); }) {
      if (member) for_each_operand(*member, f);
    } else {
      for_each_operand(member, f);
    }
  };
  std::apply([&](auto... read) { (visit(part.*read, Access::read), ...); }, part.reads);
  std::apply([&](auto... written) { (visit(part.*written, Access::write), ...); }, part.writes);
}

/// for_each_operand() of whichever kind `step` is.
template <class AnyStep, class F>
void for_each_tensor(AnyStep& step, const F& f) {
  std::visit([&](auto& kind) { for_each_operand(kind, f); }, step);
}

/// The backward reductions of BatchNorms that `step` makes: itself, or as its epilogues.
std::vector<BatchNormSums> reductions_of(const Step& step);

/// Whether the pieces of BatchNorms in `step` have ReLU or no activation: kernels of convolutions
/// and of max pools know no other.
bool pieces_know_only_relu(const Step& step);

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
  std::size_t parameters = 0;       ///< elements of the flat parameter buffer
  std::size_t learning = SIZE_MAX;  ///< parameters from here on have no gradient
  std::size_t statistics = 0;       ///< elements of the flat statistics buffer
  int batch = 0;
  /// Of an evaluation or a prediction: what Program::logits() gives. No step writes over it.
  TensorId logits = no_tensor;

  /// Where a tensor lies: in itself unless it is a slice.
  Slice place_of(TensorId id) const {
    const auto found = slices.find(id);
    return found == slices.end() ? Slice{id, 0} : found->second;
  }
  bool is_slice(TensorId id) const { return slices.contains(id); }
  bool learns(const ParameterRange& range) const { return range.first < learning; }
};

/// Whether `step` reads or writes slices.
bool touches_slice(const Schedule& schedule, const Step& step);

/// For each step, the smallest `first` such that every gradient from `first` on is final once this
/// step and all before it are done.
std::vector<std::size_t> finality(const Schedule& schedule);

}  // namespace ringtrain::compute
