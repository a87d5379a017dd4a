#include "compute/cuda/bind/launches.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <variant>

#include "compute/cuda/kernels/arguments/pool.hpp"
#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute::cuda {
namespace {

using Ids = std::vector<TensorId>;

// The operands for which the kernel of a step has a pitch, or that it does not read.
Ids pitched(const BatchNormForward& s) { return {s.x, s.y}; }
Ids pitched(const BatchNormBackward& s) { return {s.dy}; }
Ids pitched(const BatchNormInputGradient& s) { return {s.dy, s.dx}; }
Ids pitched(const BatchNormStatistics& s) { return {s.x}; }
Ids pitched(const BatchNormApply& s) { return {s.x, s.y}; }
Ids pitched(const BatchNormBackwardReduce& s) { return {s.dy, s.how.x}; }
Ids pitched(const BatchNormBackwardApply& s) {
  return s.dx2 == no_tensor ? Ids{s.g, s.x, s.dx} : Ids{};
}
Ids pitched(const MaxPoolForward& s) { return {s.y}; }
Ids pitched(const MaxPoolBackward& s) { return s.dy2 == no_tensor ? Ids{s.y, s.dy} : Ids{s.y}; }
Ids pitched(const AveragePoolForward& s) { return {s.y}; }
Ids pitched(const AveragePoolBackward& s) { return {s.dy}; }
Ids pitched(const ChannelSlice& s) { return {s.x, s.y}; }
Ids pitched(const Concat& s) {
  Ids ids = s.x;
  ids.push_back(s.y);
  return ids;
}
// cuDNN's fused engines read slices as they are; the others would make a copy unseen.
Ids pitched(const ConvolutionForward& s) { return s.prologue ? Ids{s.x} : Ids{}; }
Ids pitched(const ConvolutionWeightGradient& s) { return s.prologue ? Ids{s.x} : Ids{}; }
Ids pitched(const ConvolutionInputGradient& s) { return s.epilogue ? Ids{s.epilogue->x} : Ids{}; }
template <class Kind>
Ids pitched(const Kind&) {
  return {};
}

bool is_cudnn(const Step& step) {
  return std::holds_alternative<ConvolutionForward>(step) ||
         std::holds_alternative<ConvolutionInputGradient>(step) ||
         std::holds_alternative<ConvolutionWeightGradient>(step);
}

bool is_aligned(const Schedule& schedule, TensorId id, Element element) {
  const Slice place = schedule.place_of(id);
  const std::size_t wide = 16 / bytes_of(element);
  return place.first % wide == 0 && schedule.tensors[place.of].channels % wide == 0;
}

/// Whether those tensors of `step` that are slices may be some: our kernels have a pitch for a few
/// of their operands; of convolutions, fused ones may read x there, where it begins at 16 bytes and
/// cuDNN, when it is asked, has an engine.
bool takes_slices(const Schedule& schedule, const Step& step, Element element) {
  const Ids with_pitch = std::visit([](const auto& kind) { return pitched(kind); }, step);
  const bool aligned_only = is_cudnn(step);
  Ids operands;
  for_each_tensor(step, [&](TensorId id, Access) { operands.push_back(id); });
  return std::ranges::all_of(operands, [&](TensorId id) {
    if (!schedule.is_slice(id)) return true;
    // A tensor may be two operands, one of them without a pitch.
    return std::ranges::count(with_pitch, id) == std::ranges::count(operands, id) &&
           (!aligned_only || is_aligned(schedule, id, element));
  });
}

constexpr std::size_t fp32 = sizeof(float);

// Of convolutions: whether ours, and whether with BatchNorms before or behind.
bool is_own_convolution(const Schedule& schedule, const Step& step) {
  if (const auto* s = std::get_if<ConvolutionForward>(&step))
    return is_ours(schedule, s->window, s->x);
  if (const auto* s = std::get_if<ConvolutionWeightGradient>(&step))
    return is_ours(schedule, s->window, s->x);
  if (const auto* s = std::get_if<ConvolutionInputGradient>(&step))
    return is_ours(schedule, s->window, s->epilogue ? s->epilogue->g : s->dx);
  return false;
}
bool takes_norms(const Step& step) {
  return std::visit(
      [](const auto& kind) {
        bool takes = false;
        if constexpr (requires { kind.prologue; }) takes = kind.prologue.has_value();
        if constexpr (requires { kind.epilogue; }) takes = takes || kind.epilogue.has_value();
        if constexpr (requires { kind.window, kind.sums; }) takes = takes || kind.sums != no_vector;
        return takes;
      },
      step);
}

// The kernel of a step that is one kernel of ours has its name in other letters.
template <class Kind>
std::string kernel_of(const Kind& s) {
  std::string words;
  for (const char letter : std::string_view(s.name)) {
    const bool capital = letter >= 'A' && letter <= 'Z';
    if (capital && !words.empty()) words += '_';
    words += capital ? char(letter + ('a' - 'A')) : letter;
  }
  return words;
}
std::string kernel_of(const ChannelSlice&) { return "copy_channels"; }
std::string kernel_of(const MaxPoolBackward& s) {
  return s.epilogue ? "max_pool_backward_reduce" : "max_pool_backward";
}
std::string kernel_of(const BatchNormBackwardApply& s) {
  return s.dx2 == no_tensor ? "batch_norm_backward_apply" : "batch_norm_backward_apply_pair";
}

// The part of x that a convolution touches: a window of one pixel skips what lies between.
std::size_t touched(const ConvolutionShape& w, std::size_t bytes) {
  return w.height * w.width == 1 ? bytes / (w.stride_y * w.stride_x) : bytes;
}

// A max pool's epilogue makes no mask from a residual.
bool has_kernel(const Step& step) {
  const auto* pool = std::get_if<MaxPoolBackward>(&step);
  return !pool || !pool->epilogue || pool->epilogue->residual == no_tensor;
}

}  // namespace

bool supports(const Schedule& schedule, const Step& step, Element element, Engines& engines) {
  if (!takes_slices(schedule, step, element) || !pieces_know_only_relu(step)) return false;
  if (is_own_convolution(schedule, step)) return !takes_norms(step);
  const std::optional<Request> fused = fused_request(schedule, step, element);
  return fused ? engines.ask(*fused).engine.has_value() : has_kernel(step);
}

Launches::Launches(const Schedule& schedule, Element element, Engines& engines)
    : schedule_(schedule),
      element_(element),
      engines_(engines),
      bytes_(stored_bytes(schedule, element)) {}

std::vector<Launch> Launches::of(const Step& step) {
  return std::visit([this](const auto& kind) { return launches(kind); }, step);
}

std::size_t Launches::weight_bytes(const ConvolutionShape& window, TensorId x, TensorId y) const {
  const Convolution at = stored(window, schedule_.tensors[x], schedule_.tensors[y], element_);
  return std::size_t(at.y.channels) * at.window.height * at.window.width * at.x.channels *
         bytes_of(element_);
}

std::size_t Launches::sum(const Ids& ids) const {
  std::size_t bytes = 0;
  for (const TensorId id : ids) bytes += id == no_tensor ? 0 : bytes_[id];
  return bytes;
}

Launch Launches::kernel(const std::string& name, const Ids& read, const Ids& written) const {
  return {"kernel " + name, sum(read), sum(written)};
}

Launch Launches::kernel(const std::string& name, const Step& step) const {
  Ids read, written;
  for_each_tensor(step, [&](TensorId id, Access access) {
    Ids& ids = access == Access::read ? read : written;
    if (std::ranges::count(ids, id) == 0) ids.push_back(id);
  });
  return kernel(name, read, written);
}

Launch Launches::cudnn(const Request& request, const Step& step) {
  const Answer& answer = engines_.ask(request);
  if (!answer.engine) throw Error("plan " + request.pattern + ", " + request.shape, answer.why);
  Launch launch = kernel("", step);
  launch.engine = answer.engine->name;
  launch.workspace = answer.engine->workspace;
  launch.flops = request.flops;
  return launch;
}

// Where cuDNN does not add the bias (and apply the ReLU) itself, a kernel of ours does in place.
template <class Kind>
std::vector<Launch> Launches::forward(const Kind& s, std::size_t weights) {
  const bool at_once = is_relu_or_none(s.then) &&
                       engines_.ask(request(schedule_, s, element_, true)).engine.has_value();
  std::vector<Launch> launches{cudnn(request(schedule_, s, element_, at_once), s)};
  launches[0].bytes_read += weights;
  if (!at_once) launches.push_back(kernel(s.b ? "add_bias" : "pointwise", {s.y}, {s.y}));
  return launches;
}

// cuDNN writes dw in the type of the activations; the flat gradient buffer is fp32.
template <class Kind>
std::vector<Launch> Launches::weight_gradient(const Kind& s, std::size_t weights) {
  std::vector<Launch> launches{cudnn(request(schedule_, s, element_), s)};
  launches[0].bytes_written += weights;
  const std::size_t written = s.w.count * fp32;
  const bool packed = weights != s.w.count * bytes_of(element_);
  if (packed || element_ != Element::fp32) kept_ += weights;
  if (packed) {
    launches.push_back({"kernel unpack_weights", weights, written});
  } else if (element_ != Element::fp32) {
    widening_.bytes_read += weights;
    widening_.bytes_written += written;
  }
  if (s.b) launches.push_back(kernel("bias_gradient", {s.dy}, {}));
  return launches;
}

Launch Launches::ours(const std::string& what, const Shape& y, const Step& step,
                      std::size_t weights) const {
  Launch launch = kernel("grouped_convolution_" + what, step);
  launch.flops = 2. * double(y.pixels()) * double(weights);
  (what == "weight_gradient" ? launch.bytes_written : launch.bytes_read) += weights * fp32;
  return launch;
}

std::vector<Launch> Launches::launches(const ConvolutionForward& s) {
  if (is_ours(schedule_, s.window, s.x))
    return {ours("forward", schedule_.tensors[s.y], s, s.w.count)};
  const std::size_t weights = weight_bytes(s.window, s.x, s.y);
  std::vector<Launch> launches = forward(s, weights);
  launches[0].bytes_read -= bytes_[s.x] - touched(s.window, bytes_[s.x]);
  const std::size_t flat = s.w.count * bytes_of(element_);
  if (weights != flat) {
    launches.insert(launches.begin(), Launch{"kernel pack_weights", flat, weights});
    kept_ += weights;
  }
  return launches;
}

std::vector<Launch> Launches::launches(const ConvolutionInputGradient& s) {
  if (is_own_convolution(schedule_, s))
    return {ours("input_gradient", schedule_.tensors[s.dy], s, s.w.count)};
  Launch launch = cudnn(request(schedule_, s, element_), s);
  launch.bytes_read += s.w.count * bytes_of(element_);
  return {launch};
}

std::vector<Launch> Launches::launches(const ConvolutionWeightGradient& s) {
  if (is_ours(schedule_, s.window, s.x)) {
    std::vector<Launch> launches{ours("weight_gradient", schedule_.tensors[s.dy], s, s.w.count)};
    if (s.b) launches.push_back(kernel("bias_gradient", {s.dy}, {}));
    return launches;
  }
  std::vector<Launch> launches = weight_gradient(s, weight_bytes(s.window, s.x, s.dy));
  launches[0].bytes_read -= bytes_[s.x] - touched(s.window, bytes_[s.x]);
  return launches;
}

std::vector<Launch> Launches::launches(const MatrixProductForward& s) {
  return forward(s, s.w.count * bytes_of(element_));
}

std::vector<Launch> Launches::launches(const MatrixProductInputGradient& s) {
  Launch launch = cudnn(request(schedule_, s, element_), s);
  launch.bytes_read += s.w.count * bytes_of(element_);
  return {launch};
}

std::vector<Launch> Launches::launches(const MatrixProductWeightGradient& s) {
  return weight_gradient(s, s.w.count * bytes_of(element_));
}

std::vector<Launch> Launches::launches(const BatchNormForward& s) const {
  const Launch apply = kernel("batch_norm_apply", s);
  if (!s.training) return {{"kernel batch_norm_evaluation"}, apply};
  return {kernel("batch_norm_statistics", {s.x}, {}), {"kernel batch_norm_finalize"}, apply};
}

// g, the masked sum of the gradients, is handed on in dresidual, or where dx will be.
std::vector<Launch> Launches::launches(const BatchNormBackward& s) const {
  const TensorId g = s.dresidual != no_tensor ? s.dresidual : s.dx;
  return {kernel("batch_norm_backward_reduce", {s.x, s.y, s.dy, s.dy2}, {g}),
          kernel("batch_norm_backward_apply", {g, s.x}, {s.dx})};
}

std::vector<Launch> Launches::launches(const BatchNormInputGradient& s) const {
  return {kernel("batch_norm_backward_apply", s)};
}

std::vector<Launch> Launches::launches(const Input& s) const {
  Launch launch = kernel("input", s);
  launch.bytes_read = schedule_.tensors[s.y].elements();  // a byte a pixel and channel
  return {launch};
}

std::vector<Launch> Launches::launches(const Concat& s) const {
  std::vector<Launch> launches;
  for (const TensorId x : s.x) {
    launches.push_back(kernel("copy_channels", {x}, {}));
    launches.back().bytes_written = bytes_[x];
  }
  return launches;
}

// A byte an element of y says where the maxima are, so that x is read for the epilogue only.
std::vector<Launch> Launches::launches(const MaxPoolBackward& s) const {
  MaxPoolBackward read = s;
  read.y = no_tensor;
  if (kernels::has_winners(s.window)) read.x = no_tensor;
  Launch launch = kernel(kernel_of(s), read);
  if (kernels::has_winners(s.window)) launch.bytes_read += schedule_.tensors[s.dy].elements();
  return {launch};
}

std::vector<Launch> Launches::launches(const MaxPoolForward& s) const {
  Launch launch = kernel(kernel_of(s), s);
  const bool trains = schedule_.backward < schedule_.steps.size();
  if (trains && kernels::has_winners(s.window))
    launch.bytes_written += schedule_.tensors[s.y].elements();
  return {launch};
}

template <class Kind>
std::vector<Launch> Launches::launches(const Kind& s) const {
  return {kernel(kernel_of(s), s)};
}

}  // namespace ringtrain::compute::cuda
