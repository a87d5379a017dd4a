#include "compute/cuda/engines/fusion_check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <variant>

#include "compute/cuda/engines/convolution.hpp"
#include "compute/cuda/kernels/arguments/batch_norm.hpp"
#include "compute/cuda/kernels/arguments/optimizer.hpp"
#include "compute/cuda/kernels/device/lanes.hpp"
#include "compute/cuda/runtime/runtime.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::compute::cuda {
namespace {

// Relative, by norms. Right engines lie 2e-4 to 5e-4 from the reference in fp16, on an H100.
double most_error(Element element) { return element == Element::bf16 ? 4e-2 : 5e-3; }

// Of a request whose first engine is wrong.
constexpr std::size_t most_engines = 20, most_workspace = std::size_t(1) << 30;

using Value = OperationGraph::Value;

float round_trip(Element element, float value) {
  float result = 0;
  kernels::with_type(element,
                     [&]<class T>(T) { result = static_cast<float>(static_cast<T>(value)); });
  return result;
}

// One fused step by an engine, and the same in parts.
class Trial {
 public:
  Trial(const Schedule& shapes, TensorId dy, Element element, Engines& plain, CudnnRunner& runner,
        cudaStream_t stream, const Noise& noise)
      : shapes_(shapes),
        element_(element),
        plain_(plain),
        runner_(runner),
        stream_(stream),
        given_(shapes_, element, stream, &noise, dy),
        engine_(shapes_, element, stream, nullptr),
        parts_(shapes_, element, stream, nullptr) {}

  // What is wrong with what the engine writes; empty: nothing.
  template <class Kind>
  std::string fault(const Kind& step, const OperationGraph& graph, const Engine& engine) {
    give(step);
    run(engine, graph, engine_);
    if (!engine_.guards_are_whole()) return "it writes beside its results";
    run_parts(step);
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    const double error = largest_error(graph);
    if (error <= most_error(element_)) return "";
    if (std::isinf(error)) return "it leaves results unwritten, or they are no numbers";
    return fmt::format("its results differ from those of its parts by {:.2g} of their norm", error);
  }

 private:
  TensorId dense_like(TensorId id) {
    shapes_.tensors.push_back(Shape(shapes_.tensors[id]));
    return static_cast<TensorId>(shapes_.tensors.size() - 1);
  }
  std::size_t pixels(TensorId id) const { return shapes_.tensors[id].pixels(); }
  std::size_t channels(TensorId id) const { return shapes_.tensors[id].channels; }
  std::size_t pitch(TensorId id) const { return channels(shapes_.place_of(id).of); }

  // ---- what is read ----
  void give(const AppliedNorm& how, std::size_t count) {
    give_affine(how.scale, how.bias, NormNumbers(count, true, 1));
    if (how.residual_scale != no_vector)
      give_affine(how.residual_scale, how.residual_bias, NormNumbers(count, true, 2));
  }
  // Rounded, so that it is the same for engines and kernels.
  void give_affine(VectorId scale, VectorId bias, NormNumbers numbers) {
    for (auto* values : {&numbers.scale, &numbers.bias})
      for (float& v : *values) v = round_trip(element_, v);
    for (const auto& [id, values] : {std::pair(scale, &numbers.scale), {bias, &numbers.bias}}) {
      given_.set(VectorOperand{id}, *values);
      given_.set(VectorOperand{.id = id, .narrow = true}, element_, *values);
    }
  }
  NormNumbers give(const BatchNormSums& how, std::uint64_t stream) {
    const NormNumbers numbers(channels(how.x), how.gamma.has_value(), stream);
    given_.set(VectorOperand{how.mean}, numbers.mean);
    given_.set(VectorOperand{how.inverse_deviation}, numbers.inverse);
    if (how.gamma) given_.set(ParameterOperand{*how.gamma}, numbers.gamma);
    given_.set(OnesOperand{static_cast<int>(channels(how.x))},
               std::vector<float>(channels(how.x), 1.f));
    std::vector<float> lowered = numbers.beta;
    for (float& v : lowered) v -= 1e-30f;
    given_.set(LoweredBetaOperand{how.beta}, lowered);
    given_.set(VectorOperand{how.scale}, numbers.scale);
    given_.set(VectorOperand{how.bias}, numbers.bias);
    return numbers;
  }
  void give(const ConvolutionForward& s) {
    if (s.prologue) give(*s.prologue, channels(s.x));
  }
  void give(const ConvolutionWeightGradient& s) {
    if (s.prologue) give(*s.prologue, channels(s.x));
  }
  void give(const ConvolutionInputGradient& s) {
    give(*s.epilogue, 3);
    if (!s.epilogue_of_residual) return;
    const NormNumbers branch = give(*s.epilogue_of_residual, 4);
    given_.set(VectorOperand{s.epilogue->residual_scale}, branch.scale);
    given_.set(VectorOperand{s.epilogue->residual_bias}, branch.bias);
  }

  // ---- the parts ----
  void run_parts(const ConvolutionForward& s) {
    const TensorId x = s.prologue ? activate(*s.prologue, s.x) : s.x;
    run_plain(request(shapes_, ConvolutionForward{s.window, x, s.y, s.w}, element_, true));
    if (s.sums == no_vector) return;
    const DeviceBytes workspace(kernels::batch_norm_workspace(pixels(s.y), channels(s.y)));
    kernels::batch_norm_statistics(element_, pixels(s.y), channels(s.y), parts_.tensor(s.y),
                                   channels(s.y), parts_.vector(s.sums), floats_of(workspace),
                                   stream_);
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  void run_parts(const ConvolutionWeightGradient& s) {
    const TensorId x = activate(*s.prologue, s.x);
    run_plain(request(shapes_, ConvolutionWeightGradient{s.window, x, s.dy, s.w}, element_));
  }
  void run_parts(const ConvolutionInputGradient& s) {
    const BatchNormSums& how = *s.epilogue;
    const TensorId dx = dense_like(how.x);
    run_plain(request(shapes_, ConvolutionInputGradient{s.window, s.dy, dx, s.w}, element_));
    const bool by_residual = how.then == Activation::relu && how.residual != no_tensor;
    const void* y = how.y != no_tensor ? given_.tensor(how.y) : nullptr;
    if (by_residual)
      y = parts_.tensor(activate({.scale = how.scale,
                                  .bias = how.bias,
                                  .residual = how.residual,
                                  .residual_scale = how.residual_scale,
                                  .residual_bias = how.residual_bias,
                                  .then = Activation::relu},
                                 how.x));
    reduce(how, parts_.tensor(dx), y);
    if (s.epilogue_of_residual) reduce(*s.epilogue_of_residual, parts_.tensor(how.g), nullptr);
  }
  // Into the tensor where the step stores it, too, or one of its own.
  TensorId activate(const AppliedNorm& how, TensorId x) {
    const TensorId y = how.y != no_tensor ? how.y : dense_like(x);
    const bool scaled = how.residual_scale != no_vector;
    kernels::batch_norm_apply(
        {.element = element_,
         .pixels = pixels(x),
         .channels = channels(x),
         .x = given_.tensor(x),
         .y = parts_.tensor(y),
         .y_pitch = pitch(y),
         .scale = given_.vector(how.scale),
         .bias = given_.vector(how.bias),
         .residual = how.residual != no_tensor ? given_.tensor(how.residual) : nullptr,
         .residual_scale = scaled ? given_.vector(how.residual_scale) : nullptr,
         .residual_bias = scaled ? given_.vector(how.residual_bias) : nullptr,
         .then = how.then,
         .x_pitch = pitch(x)},
        stream_);
    return y;
  }
  void reduce(const BatchNormSums& how, const void* dy, const void* y) {
    const std::size_t count = channels(how.x);
    const DeviceBytes workspace(kernels::batch_norm_workspace(pixels(how.x), count));
    kernels::batch_norm_backward_reduce(
        {.element = element_,
         .pixels = pixels(how.x),
         .channels = count,
         .count = how.count,
         .dy = dy,
         .skip = how.skip != no_tensor ? given_.tensor(how.skip) : nullptr,
         .x = given_.tensor(how.x),
         .y = y,
         .g = parts_.tensor(how.g),
         .then = how.then,
         .scale = given_.vector(how.scale),
         .bias = given_.vector(how.bias),
         .mean = given_.vector(how.mean),
         .inverse_deviation = given_.vector(how.inverse_deviation),
         .gamma = how.gamma ? given_.floats(ParameterOperand{*how.gamma}, count) : nullptr,
         .dgamma = how.gamma ? parts_.floats(GradientOperand{*how.gamma}, count) : nullptr,
         .dbeta = parts_.floats(GradientOperand{how.beta}, count),
         .g_scale = parts_.vector(how.g_scale),
         .x_scale = parts_.vector(how.x_scale),
         .shift = parts_.vector(how.shift),
         .workspace = floats_of(workspace),
         .dy_pitch = count,
         .x_pitch = pitch(how.x)},
        stream_);
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  void run_plain(const Request& plain) {
    const Answer& answer = plain_.ask(plain);
    if (!answer.engine) throw Error("plan " + plain.pattern + ", " + plain.shape, answer.why);
    run(*answer.engine, plain.graph(), parts_);
  }

  // ---- engines ----
  void run(const Engine& engine, const OperationGraph& graph, FusionOperands& results) {
    const std::vector<bool> written = graph.written();
    std::vector<void*> data;
    for (std::size_t i = 0; i < written.size(); ++i) {
      const Value& value = graph.values()[i];
      const bool result = written[i] || (value.operand && results.has(*value.operand));
      FusionOperands& from = result ? results : given_;
      data.push_back(value.operand ? from.at(*value.operand, value) : nullptr);
    }
    // An engine may be refused here, and then nothing may be queued that uses what is freed.
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    const DeviceBytes workspace(engine.workspace);
    runner_.bind(engine, graph, data, workspace.data())();
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

  // ---- results ----
  double largest_error(const OperationGraph& graph) {
    const std::vector<bool> written = graph.written();
    double largest = 0;
    for (std::size_t i = 0; i < written.size(); ++i) {
      const Value& value = graph.values()[i];
      if (!written[i] || !value.operand || std::holds_alternative<UnwantedOperand>(*value.operand))
        continue;
      const void* const actual = engine_.at(*value.operand, value);
      const void* const expected = parts_.at(*value.operand, value);
      if (is_finite(value, expected) && !is_finite(value, actual))
        return std::numeric_limits<double>::infinity();
      largest = std::max(largest, error_of(value, actual, expected));
    }
    return largest;
  }
  // Everywhere. What was not written is not.
  bool is_finite(const Value& value, const void* data) const {
    const DeviceBytes state(sizeof(kernels::UpdateState));
    check(cudaMemsetAsync(state.data(), 0, state.size(), stream_), "cudaMemsetAsync");
    kernels::mark_not_finite(value.element, extent_of(value), data,
                             reinterpret_cast<kernels::UpdateState*>(state.data()), stream_);
    kernels::UpdateState found{};
    read_and_wait(&found, state.data(), sizeof found);
    return found.not_finite == 0;
  }
  // Of images the first, the middle and the last; weights and vectors are compared whole.
  double error_of(const Value& value, const void* actual, const void* expected) const {
    const std::int64_t n = value.extents[0];
    const bool images = std::holds_alternative<TensorOperand>(*value.operand);
    double difference = 0, length = 0;
    for (const std::int64_t first :
         images ? std::set<std::int64_t>{0, n / 2, n - 1} : std::set<std::int64_t>{0}) {
      const std::int64_t count = images ? 1 : n;
      const auto a = values_of(value, actual, first, count);
      const auto b = values_of(value, expected, first, count);
      for (std::size_t i = 0; i < a.size(); ++i) {
        if (!std::isfinite(b[i])) continue;  // too large for 16 bits
        const double d = double(a[i]) - double(b[i]);
        difference += d * d;
        length += double(b[i]) * double(b[i]);
      }
    }
    const double error = std::sqrt(difference / std::max(length, 1e-60));
    return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
  }
  // Results are dense.
  std::vector<float> values_of(const Value& value, const void* data, std::int64_t first,
                               std::int64_t count) const {
    const std::size_t image = extent_of(value) / std::size_t(value.extents[0]);
    const std::size_t size = bytes_of(value.element);
    std::vector<std::byte> bytes(std::size_t(count) * image * size);
    read_and_wait(bytes.data(),
                  static_cast<const std::byte*>(data) + std::size_t(first) * image * size,
                  bytes.size());
    std::vector<float> values(bytes.size() / size);
    kernels::with_type(value.element, [&]<class T>(T) {
      const T* from = reinterpret_cast<const T*>(bytes.data());
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(from[i]);
    });
    return values;
  }
  static float* floats_of(const DeviceBytes& bytes) {
    return reinterpret_cast<float*>(bytes.data());
  }

  Schedule shapes_;  // with tensors of our own behind the schedule's
  const Element element_;
  Engines& plain_;
  CudnnRunner& runner_;
  const cudaStream_t stream_;
  FusionOperands given_, engine_, parts_;
};

TensorId gradient_of(const Step& step) {
  if (const auto* s = std::get_if<ConvolutionInputGradient>(&step)) return s->dy;
  if (const auto* s = std::get_if<ConvolutionWeightGradient>(&step)) return s->dy;
  return no_tensor;
}

// Whatever the step is.
std::string fault_of(Trial& trial, const Step& step, const OperationGraph& graph,
                     const Engine& engine) {
  if (const auto* s = std::get_if<ConvolutionForward>(&step)) return trial.fault(*s, graph, engine);
  if (const auto* s = std::get_if<ConvolutionInputGradient>(&step))
    return trial.fault(*s, graph, engine);
  return trial.fault(std::get<ConvolutionWeightGradient>(step), graph, engine);
}

Schedule without_steps(const Schedule& schedule) {
  Schedule shapes = schedule;
  shapes.steps.clear();
  return shapes;
}

// Without the line of our source.
std::string words_of(const Error& failure) {
  const std::string words = failure.what();
  return words.substr(0, words.rfind(" ["));
}

}  // namespace

std::vector<GpuRefusal> FusionCheck::check(const Schedule& schedule) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<GpuRefusal> refusals;
  for (const Step& step : schedule.steps) {
    const std::optional<Request> request = fused_request(schedule, step, element_);
    if (!request || cases_.contains(request->key())) continue;
    const Answer& answer = engines_.ask(*request);
    if (!answer.engine) continue;
    const Case& one =
        cases_.emplace(request->key(), Case{without_steps(schedule), step}).first->second;
    const std::string why = fault(one, *answer.engine);
    if (why.empty()) continue;
    const std::string name = answer.engine->name;
    if (auto other = right_one(one, request->graph(), answer.engine->place))
      engines_.replace(request->key(), std::move(*other));
    else
      refusals.push_back({request->pattern, request->shape, fmt::format("{}: {}", name, why)});
  }
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return refusals;
}

std::optional<Engine> FusionCheck::right_one(const Case& one, const OperationGraph& graph,
                                             std::size_t wrong_place) {
  for (Engine& engine : engines_.candidates(graph, most_engines, most_workspace))
    if (engine.place != wrong_place && fault(one, engine).empty()) return std::move(engine);
  static_cast<void>(cudaGetLastError());  // of plans that were refused
  return std::nullopt;
}

const Noise& FusionCheck::noise() {
  if (noise_.values.size() == 0) noise_ = make_noise(element_);
  return noise_;
}

std::string FusionCheck::fault(const RequestKey& request, const Engine& engine) {
  const auto found = cases_.find(request);
  return found == cases_.end() ? "" : fault(found->second, engine);
}

std::string FusionCheck::fault(const Case& one, const Engine& engine) try {
  Trial trial(one.shapes, gradient_of(one.step), element_, parts_, runner_, stream_, noise());
  return fault_of(trial, one.step, fused_request(one.shapes, one.step, element_)->graph(), engine);
} catch (const Error& failure) {
  if (failure.code() == Exit::usage) throw;  // too little memory
  static_cast<void>(cudaGetLastError());
  if (const cudaError_t code = cudaStreamSynchronize(stream_); code != cudaSuccess)
    throw Error("check cuDNN's fused engines",
                fmt::format("the GPU can do nothing more after {} ({}, {}); --fusion off trains "
                            "without them",
                            engine.name, words_of(failure), cudaGetErrorString(code)));
  return words_of(failure);
}

}  // namespace ringtrain::compute::cuda
