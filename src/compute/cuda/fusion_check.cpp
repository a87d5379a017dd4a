#include "compute/cuda/fusion_check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <variant>

#include "compute/cuda/convolution.hpp"
#include "compute/cuda/kernels/batch_norm.hpp"
#include "compute/cuda/kernels/lanes.hpp"
#include "compute/cuda/runtime.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/philox.hpp"

namespace ringtrain::cuda {
namespace {

// Relative, by norms. Right engines and their parts lie some 5e-4 apart in 16 bits, on an H100.
constexpr double most_error = 5e-3;
constexpr std::size_t noise_count =
    1048573;                        // a prime, so that no two pixels of a tensor are alike
constexpr int zero_channels = 8;    // of so many, one has gamma and beta 0
constexpr double zero_share = 0.1;  // of the numbers: what a ReLU leaves

using Value = OperationGraph::Value;

// An operand, wherever in it: kind and name.
using Key = std::pair<std::size_t, std::size_t>;

struct NameOf {
  std::size_t operator()(const TensorOperand& o) const { return o.id; }
  std::size_t operator()(const VectorOperand& o) const { return 2 * o.id + o.narrow; }
  std::size_t operator()(const ParameterOperand& o) const { return 2 * o.range.first + o.narrow; }
  std::size_t operator()(const OnesOperand& o) const { return o.count; }
  std::size_t operator()(const UnwantedOperand& o) const { return o.count; }
  std::size_t operator()(const auto& o) const { return o.range.first; }
};

Key key_of(const Operand& operand) { return {operand.index(), std::visit(NameOf{}, operand)}; }

// Elements from its first to past its last.
std::size_t extent_of(const Value& value) {
  const auto strides = value.strides();
  std::int64_t last = 0;
  for (std::size_t i = 0; i < strides.size(); ++i) last += (value.extents[i] - 1) * strides[i];
  return static_cast<std::size_t>(last + 1);
}

std::vector<float> normal_numbers(std::size_t count, std::uint64_t stream) {
  Philox random(stream, Purpose::initialise);
  std::vector<float> values(count);
  for (float& v : values)
    v = random.uniform() < zero_share ? 0.f : static_cast<float>(random.normal());
  return values;
}

// As bytes of `element`.
std::vector<std::byte> rounded(Element element, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * bytes_of(element));
  kernels::with_type(element, [&]<class T>(T) {
    T* to = reinterpret_cast<T*>(bytes.data());
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = static_cast<T>(values[i]);
  });
  return bytes;
}

float rounded(Element element, float value) {
  float result = 0;
  kernels::with_type(element,
                     [&]<class T>(T) { result = static_cast<float>(static_cast<T>(value)); });
  return result;
}

// Device memory of operands, each made when it is first asked for.
class Operands {
 public:
  // `noise`: what new memory is filled with; null: no numbers.
  Operands(const Schedule& shapes, Element element, cudaStream_t stream, const DeviceBytes* noise)
      : shapes_(shapes), element_(element), stream_(stream), noise_(noise) {}

  bool has(const Operand& operand) const { return all_.contains(key_of(operand)); }
  void* at(const Operand& operand, const Value& value) {
    const std::size_t offset = offset_of(operand);
    return make(operand, (offset + extent_of(value)) * bytes_of(value.element)) +
           offset * bytes_of(value.element);
  }
  void* tensor(TensorId id) { return id == no_tensor ? nullptr : make(TensorOperand{id}, 0); }
  float* vector(VectorId id) {
    if (id == no_vector) return nullptr;
    return reinterpret_cast<float*>(make(VectorOperand{id}, 0));
  }
  float* floats(const Operand& operand, std::size_t count) {
    return reinterpret_cast<float*>(make(operand, count * sizeof(float)));
  }
  void set(const Operand& operand, Element element, const std::vector<float>& values) {
    const std::vector<std::byte> bytes = rounded(element, values);
    write_and_wait(make(operand, bytes.size()), bytes.data(), bytes.size());
  }
  void set(const Operand& operand, const std::vector<float>& values) {
    set(operand, Element::fp32, values);
  }

 private:
  static std::size_t offset_of(const Operand& operand) {
    const auto* vector = std::get_if<VectorOperand>(&operand);
    return vector == nullptr ? 0 : static_cast<std::size_t>(vector->first);
  }
  std::size_t whole(const Operand& operand) const {
    if (const auto* tensor = std::get_if<TensorOperand>(&operand))
      return shapes_.tensors[tensor->id].pixels() *
             shapes_.tensors[shapes_.place_of(tensor->id).of].channels * bytes_of(element_);
    if (const auto* vector = std::get_if<VectorOperand>(&operand))
      return shapes_.vectors[vector->id] * (vector->narrow ? bytes_of(element_) : sizeof(float));
    return 0;
  }
  std::byte* make(const Operand& operand, std::size_t bytes) {
    const auto [place, is_new] = all_.try_emplace(key_of(operand));
    if (is_new) {
      place->second = DeviceBytes(std::max(bytes, whole(operand)));
      fill(place->second, place->first);
    }
    return place->second.data();
  }
  void fill(const DeviceBytes& buffer, const Key& key) {
    if (noise_ == nullptr) {
      check(cudaMemsetAsync(buffer.data(), 0xff, buffer.size(), stream_), "cudaMemsetAsync");
      return;
    }
    std::size_t from = key.second * 7919 % noise_count * bytes_of(element_);
    for (std::size_t done = 0; done < buffer.size();) {
      const std::size_t bytes = std::min(noise_->size() - from, buffer.size() - done);
      check(cudaMemcpyAsync(buffer.data() + done, noise_->data() + from, bytes,
                            cudaMemcpyDeviceToDevice, stream_),
            "cudaMemcpyAsync");
      done += bytes;
      from = 0;
    }
  }

  const Schedule& shapes_;
  const Element element_;
  const cudaStream_t stream_;
  const DeviceBytes* const noise_;
  std::map<Key, DeviceBytes> all_;
};

// What the channels of a BatchNorm are multiplied with, and what follows from it.
struct NormNumbers {
  std::vector<float> gamma, beta, mean, inverse, scale, bias;

  NormNumbers(std::size_t channels, bool has_gamma, std::uint64_t stream)
      : gamma(normal_numbers(channels, 4 * stream)),
        beta(normal_numbers(channels, 4 * stream + 1)),
        mean(normal_numbers(channels, 4 * stream + 2)),
        inverse(normal_numbers(channels, 4 * stream + 3)),
        scale(channels),
        bias(channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      inverse[c] = std::abs(inverse[c]) + 0.5f;
      if (c % zero_channels == 0) gamma[c] = beta[c] = 0;
      if (!has_gamma) gamma[c] = 1;
      scale[c] = gamma[c] * inverse[c];
      bias[c] = beta[c] - mean[c] * scale[c];
    }
  }
};

// One fused step by an engine, and the same in parts.
class Trial {
 public:
  Trial(const Schedule& shapes, Element element, Engines& engines, CudnnRunner& runner,
        cudaStream_t stream, const DeviceBytes& noise)
      : shapes_(shapes),
        element_(element),
        engines_(engines),
        runner_(runner),
        stream_(stream),
        given_(shapes_, element, stream, &noise),
        engine_(shapes_, element, stream, nullptr),
        parts_(shapes_, element, stream, nullptr) {}

  // The largest relative error of what the engine writes; infinite where it is no number.
  template <class Kind>
  double error(const Kind& step, const OperationGraph& graph, const Engine& engine) {
    give(step);
    run(engine, graph, engine_);
    run_parts(step);
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return largest_error(graph);
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
  void give(const Activation& how, std::size_t count) {
    give_affine(how.scale, how.bias, NormNumbers(count, true, 1));
    if (how.residual_scale != no_vector)
      give_affine(how.residual_scale, how.residual_bias, NormNumbers(count, true, 2));
  }
  // Rounded, so that it is the same for engines and kernels.
  void give_affine(VectorId scale, VectorId bias, NormNumbers numbers) {
    for (auto* values : {&numbers.scale, &numbers.bias})
      for (float& v : *values) v = rounded(element_, v);
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
    const bool by_residual = how.relu && how.residual != no_tensor;
    const void* y = how.y != no_tensor ? given_.tensor(how.y) : nullptr;
    if (by_residual)
      y = parts_.tensor(activate({.scale = how.scale,
                                  .bias = how.bias,
                                  .residual = how.residual,
                                  .residual_scale = how.residual_scale,
                                  .residual_bias = how.residual_bias,
                                  .relu = true},
                                 how.x));
    reduce(how, parts_.tensor(dx), y);
    if (s.epilogue_of_residual) reduce(*s.epilogue_of_residual, parts_.tensor(how.g), nullptr);
  }
  // Into the tensor where the step stores it, too, or one of its own.
  TensorId activate(const Activation& how, TensorId x) {
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
         .relu = how.relu,
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
         .relu = how.relu,
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
    const Answer& answer = engines_.ask(plain);
    if (!answer.engine) throw Error("plan " + plain.pattern + ", " + plain.shape, answer.why);
    run(*answer.engine, plain.graph(), parts_);
  }

  // ---- engines ----
  void run(const Engine& engine, const OperationGraph& graph, Operands& results) {
    const std::vector<bool> written = graph.written();
    std::vector<void*> data;
    for (std::size_t i = 0; i < written.size(); ++i) {
      const Value& value = graph.values()[i];
      if (!value.operand) {
        data.push_back(nullptr);
        continue;
      }
      Operands& from = written[i] || results.has(*value.operand) ? results : given_;
      data.push_back(from.at(*value.operand, value));
    }
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
      largest = std::max(largest, error_of(value, engine_.at(*value.operand, value),
                                           parts_.at(*value.operand, value)));
    }
    return largest;
  }
  // Of a batch, the first, the middle and the last image.
  double error_of(const Value& value, const void* actual, const void* expected) const {
    const auto [n, c, h, w] = value.extents;
    double difference = 0, length = 0;
    for (const std::int64_t image : std::set<std::int64_t>{0, n / 2, n - 1}) {
      const auto a = image_of(value, actual, image), b = image_of(value, expected, image);
      for (std::size_t i = 0; i < a.size(); ++i) {
        const double d = double(a[i]) - double(b[i]);
        difference += d * d;
        length += double(b[i]) * double(b[i]);
      }
    }
    const double error = std::sqrt(difference / std::max(length, 1e-60));
    return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
  }
  std::vector<float> image_of(const Value& value, const void* data, std::int64_t image) const {
    const auto [n, c, h, w] = value.extents;
    const auto strides = value.strides();
    Value one = value;
    one.extents[0] = 1;
    const std::size_t size = bytes_of(value.element);
    std::vector<std::byte> bytes(extent_of(one) * size);
    read_and_wait(bytes.data(),
                  static_cast<const std::byte*>(data) + std::size_t(image * strides[0]) * size,
                  bytes.size());
    std::vector<float> values;
    values.reserve(std::size_t(c * h * w));
    kernels::with_type(value.element, [&]<class T>(T) {
      const T* from = reinterpret_cast<const T*>(bytes.data());
      for (std::int64_t y = 0; y < h; ++y)
        for (std::int64_t x = 0; x < w; ++x)
          for (std::int64_t i = 0; i < c; ++i)
            values.push_back(static_cast<float>(from[y * strides[2] + x * strides[3] + i]));
    });
    return values;
  }
  static float* floats_of(const DeviceBytes& bytes) {
    return reinterpret_cast<float*>(bytes.data());
  }

  Schedule shapes_;  // with tensors of our own behind the schedule's
  const Element element_;
  Engines& engines_;
  CudnnRunner& runner_;
  const cudaStream_t stream_;
  Operands given_, engine_, parts_;
};

// Whatever the step is.
double error_of(Trial& trial, const Step& step, const OperationGraph& graph, const Engine& engine) {
  if (const auto* s = std::get_if<ConvolutionForward>(&step)) return trial.error(*s, graph, engine);
  if (const auto* s = std::get_if<ConvolutionInputGradient>(&step))
    return trial.error(*s, graph, engine);
  return trial.error(std::get<ConvolutionWeightGradient>(step), graph, engine);
}

DeviceBytes make_noise(Element element) {
  const auto bytes = rounded(element, normal_numbers(noise_count, 99));
  DeviceBytes noise(bytes.size());
  write_and_wait(noise.data(), bytes.data(), bytes.size());
  return noise;
}

Schedule without_steps(const Schedule& schedule) {
  Schedule shapes = schedule;
  shapes.steps.clear();
  return shapes;
}

}  // namespace

std::vector<GpuRefusal> FusionCheck::check(const Schedule& schedule) {
  std::vector<GpuRefusal> refusals;
  for (const Step& step : schedule.steps) {
    const std::optional<Request> request = fused_request(schedule, step, element_);
    if (!request || cases_.contains(request->key())) continue;
    const Answer& answer = engines_.ask(*request);
    if (!answer.engine) continue;
    if (noise_.size() == 0) noise_ = make_noise(element_);
    const Case& one =
        cases_.emplace(request->key(), Case{without_steps(schedule), step}).first->second;
    if (std::string why = fault(one, *answer.engine); !why.empty())
      refusals.push_back(
          {request->pattern, request->shape, fmt::format("{}: {}", answer.engine->name, why)});
  }
  return refusals;
}

std::string FusionCheck::fault(const RequestKey& request, const Engine& engine) const {
  const auto found = cases_.find(request);
  return found == cases_.end() ? "" : fault(found->second, engine);
}

std::string FusionCheck::fault(const Case& one, const Engine& engine) const try {
  Trial trial(one.shapes, element_, engines_, runner_, stream_, noise_);
  const OperationGraph graph = fused_request(one.shapes, one.step, element_)->graph();
  const double error = error_of(trial, one.step, graph, engine);
  if (error <= most_error) return "";
  if (std::isinf(error)) return "it leaves results unwritten, or they are no numbers";
  return fmt::format("its results differ from those of its parts by {:.2g} of their norm", error);
} catch (const Error& failure) {
  static_cast<void>(cudaGetLastError());
  if (const cudaError_t code = cudaStreamSynchronize(stream_); code != cudaSuccess)
    throw Error("check cuDNN's fused engines",
                fmt::format("the GPU can do nothing more after {} ({}, {}); --fusion off trains "
                            "without them",
                            engine.name, failure.what(), cudaGetErrorString(code)));
  return failure.what();
}

}  // namespace ringtrain::cuda
