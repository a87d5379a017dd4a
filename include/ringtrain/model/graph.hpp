#pragma once
// Room `model`: networks as data. A model file, built in or the user's, makes a Graph; passes,
// which are pure functions, make a Schedule of it: lowered, fused, differentiated, with memory
// reused in place.
//
// Threads: none; nothing is shared.
//
// Collective: nothing. Equal inputs give equal schedules on all ranks; structure_hash() says
// whether two graphs are equal.
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ringtrain/compute/step.hpp"

namespace ringtrain::model {

/// How a parameter's first value is drawn. Fan-in and fan-out are those of its layer.
struct Initialiser {
  enum class Kind { constant, normal, truncated_normal, uniform, whitening };
  constexpr Initialiser(double constant = 0) : value(constant) {}
  constexpr Initialiser(Kind how, double of) : kind(how), value(of) {}
  template <std::same_as<bool> Bool>
  Initialiser(Bool) = delete;  // is no constant
  Kind kind = Kind::constant;
  /// The constant; the standard deviation of (the untruncated) normal; the bound of uniform.
  /// Truncated: redrawn beyond two deviations. Whitening: the epsilon of WhiteningFilters, which
  /// need images.
  double value;
  bool dirac = false;  ///< the first filters hand on a channel each, as torch's dirac_() has it
};

/// One named parameter tensor. Weights of a convolution: out x kernel height x kernel width x in,
/// with the channels of one group; of a matrix product: out x features.
struct Parameter {
  enum class Role { weight, bias, gamma, beta };
  std::string name;
  std::vector<std::size_t> dims = {};
  Role role = Role::weight;
  Initialiser initial = {};
  /// Whether the recipe's weight decay applies.
  bool decay = false;
  /// Whether training leaves it as it is: it then has no gradient and no optimizer's state.
  bool frozen = false;
  /// As `frozen`, but the step that computes other gradients computes its gradient, too.
  bool held = false;
  std::size_t count() const;
};

/// The running mean and variance of one BatchNorm: two tensors of `channels` each.
struct Statistic {
  std::string name;
  std::size_t channels = 0;
  /// running = (1 - momentum) * running + momentum * batch.
  float momentum = 0.1f;
  /// Whether training normalises by it, as evaluation does, and leaves it as it is.
  bool frozen = false;
};

using ParameterId = int;
using StatisticId = int;

// The operations of a graph. Inputs are in Node::inputs, in the order named here. `id` stands for
// the kind in structure_hash(), which checkpoints hold: it never changes, and a new kind has a new
// one.

struct ImageInput {  // none
  static constexpr int id = 0;
  compute::Normalisation normalisation = compute::Normalisation::mean_deviation;
  std::vector<float> mean = {}, deviation = {};
  bool jitter = false;
  bool clip = false;  ///< what jitter carries out of 0..255; only with mean_deviation
  bool erase = false;
};
struct Convolution {  // x
  static constexpr int id = 1;
  compute::ConvolutionShape window;
  ParameterId w = 0;
  std::optional<ParameterId> b = std::nullopt;
};
struct MatrixProduct {  // x
  static constexpr int id = 2;
  ParameterId w = 0;
  std::optional<ParameterId> b = std::nullopt;
};
struct BatchNorm {  // x
  static constexpr int id = 3;
  std::optional<ParameterId> gamma;
  ParameterId beta = 0;
  StatisticId statistics = 0;
  float epsilon = 1e-5f;
  bool unbiased = true;
};
struct Pointwise {  // x
  static constexpr int id = 4;
  compute::Activation f = compute::Activation::relu;
};
struct Sum {  // a, b
  static constexpr int id = 5;
};
struct Concat {  // any number, concatenated along channels
  static constexpr int id = 6;
};
struct Shortcut {  // x
  static constexpr int id = 7;
  int stride = 2;
};
struct MaxPool {  // x
  static constexpr int id = 8;
  compute::Window window;
};
struct AveragePool {  // x
  static constexpr int id = 9;
  compute::Window window;
};
struct Lrn {  // x
  static constexpr int id = 10;
  compute::attributes::Lrn how;
};
struct DropoutLayer {  // x
  static constexpr int id = 11;
  compute::attributes::Dropout how;
};
struct Loss {  // logits
  static constexpr int id = 12;
  float weight = 1;
  /// An auxiliary head: it trains, but neither counts nor takes part in evaluation.
  bool auxiliary = false;
};

struct Scale {  // x, one factor for each channel of an image
  static constexpr int id = 13;
};
struct LayerScale {  // x
  static constexpr int id = 14;
  ParameterId w = 0;  ///< one factor for each channel
};

struct LayerNorm {  // x
  static constexpr int id = 15;
  ParameterId gamma = 0, beta = 0;
  float epsilon = 1e-6f;
};
struct Multiply {  // x
  static constexpr int id = 16;
  float factor = 1;
};

struct ReflectPad {  // x
  static constexpr int id = 17;
  int border = 1;
};
struct Filter {  // x
  static constexpr int id = 18;
  compute::Window window;
  std::vector<float> taps = {};  ///< the same for all channels
};

using Operation = std::variant<ImageInput, Convolution, MatrixProduct, BatchNorm, Pointwise, Sum,
                               Concat, Shortcut, MaxPool, AveragePool, Lrn, DropoutLayer, Scale,
                               LayerScale, LayerNorm, Multiply, ReflectPad, Filter, Loss>;

/// One operation; its inputs come from earlier nodes.
struct Node {
  std::string name;
  Operation operation;
  std::vector<compute::TensorId> inputs;
  compute::TensorId output = compute::no_tensor;
  std::string block = {};  ///< of a model file, the use of one around it, the outermost; or empty
};

/// Those that an operation has: weights and biases, gammas and betas.
std::vector<ParameterId> parameters_of(const Operation& operation);

/// A network: what is computed, not how. Shapes are of one sample (batch = 1).
struct Graph {
  std::vector<Node> nodes;
  std::vector<compute::Shape> tensors;
  std::vector<Parameter> parameters;
  std::vector<Statistic> statistics;

  std::size_t parameter_count() const;
  std::size_t statistic_count() const;
  /// Those that are not frozen: so many numbers in front of the flat buffers.
  std::size_t learning_count() const;
  std::size_t moving_count() const;
  /// Offset of each parameter in the flat buffers, without gaps: in graph order, the frozen ones
  /// behind the others.
  std::vector<compute::ParameterRange> parameter_ranges() const;
  /// Likewise for the statistics: means, then variances, of each.
  std::vector<compute::StatisticsRange> statistics_ranges() const;
  /// Multiply-adds of the forward pass of one image in convolutions and matrix products.
  double multiply_adds() const;
  /// Floating-point operations of one training image: forward, and in backward one such for the
  /// weights that learn and one for the gradients of what they read.
  double training_flops() const;
  /// Of operations, shapes and names: equal graphs compute the same and can share checkpoints.
  std::uint64_t structure_hash() const;
};

/// Whether a shell's pattern is of a parameter's name (`layer1.*`), or of a module that holds it
/// (`layer1`). `*` takes dots, too.
bool matches(const std::string& pattern, const std::string& parameter);

/// Freezes the parameters that `patterns` match, separated by commas, and the statistics of
/// BatchNorms that are frozen whole. The last that matches counts; one that begins with `!` frees
/// what it matches. A layer that is frozen in part, and a LayerNorm behind what learns, are held.
/// Throws Error (usage) where a pattern matches nothing, or nothing is left to learn.
void freeze(Graph& graph, const std::string& patterns);

/// How a window's padding is chosen. SAME keeps ceil(size / stride) pixels and puts an odd pixel of
/// padding after the image, as TensorFlow does.
enum class Padding { valid, same };

/// Builds a Graph layer by layer, inferring shapes. A layer that does not fit throws Error naming
/// the layer and both shapes.
class GraphBuilder {
 public:
  struct ConvolutionOptions {
    int channels = 0;
    int height = 1, width = 1;  ///< kernel
    int stride = 1;
    int groups = 1;       ///< they divide the channels of x and of the result
    bool linear = false;  ///< of one pixel: weights are out x in, as a matrix product's
    Padding padding = Padding::same;
    std::optional<int> symmetric_padding = std::nullopt;  ///< on all sides, instead of `padding`
    Initialiser initial = {};
    std::optional<Initialiser> bias = std::nullopt;
    bool decay = true;
  };
  struct BatchNormOptions {
    bool gamma = true;
    double gamma_value = 1;
    float epsilon = 1e-5f, momentum = 0.1f;
    bool unbiased = true;
  };
  struct PoolOptions {
    int size = 2, stride = 2;
    Padding padding = Padding::valid;
    int symmetric_padding = 0;
    bool counts_padding = false;  ///< of an average: padding is pixels of 0
  };

  compute::TensorId input(int height, int width, int channels, ImageInput how);
  compute::TensorId convolution(const std::string& name, compute::TensorId x,
                                const ConvolutionOptions& options);
  compute::TensorId matrix_product(const std::string& name, compute::TensorId x, int outputs,
                                   Initialiser weights, std::optional<Initialiser> bias,
                                   bool decay);
  compute::TensorId batch_norm(const std::string& name, compute::TensorId x,
                               const BatchNormOptions& options);
  compute::TensorId pointwise(compute::TensorId x, compute::Activation f);
  compute::TensorId relu(compute::TensorId x) { return pointwise(x, compute::Activation::relu); }
  compute::TensorId sum(compute::TensorId a, compute::TensorId b);
  compute::TensorId scale(compute::TensorId x, compute::TensorId factors);
  compute::TensorId layer_scale(const std::string& name, compute::TensorId x, double initial,
                                bool decay);
  compute::TensorId layer_norm(const std::string& name, compute::TensorId x, float epsilon);
  compute::TensorId multiply(compute::TensorId x, float factor);
  compute::TensorId beside(const std::vector<compute::TensorId>& inputs);
  compute::TensorId shortcut(compute::TensorId x, int stride, int channels);
  compute::TensorId max_pool(compute::TensorId x, const PoolOptions& options);
  compute::TensorId average_pool(compute::TensorId x, const PoolOptions& options);
  /// A binomial filter over the image mirrored at its edges, so that a step leaves out no more than
  /// what it smooths (Zhang 2019). `size` is odd.
  compute::TensorId blur_pool(compute::TensorId x, int size, int stride);
  compute::TensorId reflect_pad(compute::TensorId x, int border);
  compute::TensorId global_pool(compute::TensorId x);
  compute::TensorId lrn(compute::TensorId x, const compute::attributes::Lrn& how);
  compute::TensorId dropout(compute::TensorId x, float keep, bool of_sample = false);
  void loss(compute::TensorId logits, Loss how = {});
  /// What is added from now on is of the block of this name; empty: of none.
  void set_block(std::string name) { block_ = std::move(name); }

  const compute::Shape& shape(compute::TensorId id) const { return graph_.tensors[id]; }
  Graph finish() && { return std::move(graph_); }

 private:
  compute::TensorId add(std::string name, Operation operation,
                        std::vector<compute::TensorId> inputs, compute::Shape output);
  ParameterId parameter(Parameter parameter);
  compute::TensorId pool(compute::TensorId x, const PoolOptions& options, bool maximum);

  Graph graph_;
  int dropouts_ = 0;
  std::string block_;
};

}  // namespace ringtrain::model
