#include "compute/cuda/engines/autotuner.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>
#include <utility>
#include <variant>

#include "ringtrain/base/error.hpp"

namespace ringtrain::compute::cuda {
namespace {

constexpr int samples = 5;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::size_t l2_bytes() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
  return static_cast<std::size_t>(bytes);
}

bool lies_in(const void* data, const View& parameters) {
  const auto* at = static_cast<const std::byte*>(data);
  const auto* from = reinterpret_cast<const std::byte*>(parameters.data());
  return at >= from && at < from + parameters.size() * sizeof(float);
}

// Of a convolution that goes backward.
bool is_gradient(const OperationGraph& graph, std::size_t value) {
  return std::ranges::any_of(graph.operations(), [value](const auto& operation) {
    return (operation.kind == OperationGraph::Kind::input_gradient ||
            operation.kind == OperationGraph::Kind::weight_gradient) &&
           operation.tensors[0] == value;
  });
}

}  // namespace

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

Autotuner::Autotuner(Engines& engines, CudnnRunner& runner, EngineCache& cache, cudaStream_t stream,
                     FusionCheck& fusions, Settings settings)
    : engines_(engines),
      runner_(runner),
      cache_(cache),
      stream_(stream),
      fusions_(fusions),
      settings_(std::move(settings)) {}

void Autotuner::tune(const std::vector<EngineUse>& uses) {
  start_ = told_ = settings_.clock();
  std::set<RequestKey> asked;
  std::vector<const EngineUse*> undecided;
  for (const EngineUse& use : uses)
    if (engines_.answers().at(use.request).source == Answer::Source::heuristics &&
        asked.insert(use.request).second)
      undecided.push_back(&use);
  if (follows_) {
    for (const EngineUse* use : undecided) adopt(*use);
    return;
  }
  for (const EngineUse* use : undecided) left_.insert(use->request);
  if (!undecided.empty() && !is_late() && make_flush()) {
    for (std::size_t done = 0; done < undecided.size(); ++done) {
      show_progress(done, undecided.size());
      if (is_late() || !decide(*undecided[done])) break;
      left_.erase(undecided[done]->request);
      cache_.save();  // a run that is killed meanwhile leaves what it knows
    }
  }
  report_.left = left_.size();
  workspace_ = DeviceBytes();
  flush_ = DeviceBytes();
  report_.seconds = elapsed();
}

// Right elsewhere is not right here: this GPU may be broken.
void Autotuner::adopt(const EngineUse& use) {
  std::optional<Engine> engine = engines_.known(use.request, *use.graph);
  if (engine && fault(*engine, use).empty()) engines_.choose(use.request, std::move(*engine));
}

// False where there is too little memory.
bool Autotuner::make_flush() try {
  flush_ = DeviceBytes(2 * l2_bytes());  // twice: the cache does not drop what is oldest for sure
  return true;
} catch (const Error& failure) {
  if (failure.code() != Exit::usage) throw;
  report_.dropped.push_back(fmt::format("what empties the L2 cache: {}", failure.what()));
  return false;
}

void Autotuner::show_progress(std::size_t done, std::size_t all) {
  const double now = settings_.clock();
  if (!settings_.progress || now - told_ < settings_.progress_seconds) return;
  told_ = now;
  settings_.progress(
      fmt::format("autotune: {} of {} kinds of steps, {:.0f} s", done, all, elapsed()));
}

// False where time is up before all proposals are there.
bool Autotuner::decide(const EngineUse& use) {
  std::vector<Engine> engines =
      engines_.candidates(*use.graph, settings_.most_candidates, workspace_limit());
  static_cast<void>(cudaGetLastError());  // of plans that were refused
  fill_inputs(use);
  make_workspace(engines, use);
  std::vector<Candidate> candidates;
  for (Engine& engine : engines) {
    if (is_late()) return false;
    if (auto candidate = prepare(engine, use)) candidates.push_back(std::move(*candidate));
  }
  time(candidates, use);
  workspace_ = DeviceBytes();  // a fused engine is checked in memory of its own
  choose(candidates, use);
  ++report_.requests;
  return true;
}

// New memory may hold zeros, with which a GPU needs less power, and so runs at a higher clock.
void Autotuner::fill_inputs(const EngineUse& use) {
  const std::vector<bool> written = use.graph->written();
  for (std::size_t i = 0; i < written.size(); ++i) {
    const OperationGraph::Value& value = use.graph->values()[i];
    if (written[i] || !value.operand || std::holds_alternative<OnesOperand>(*value.operand) ||
        lies_in(use.data[i], use.parameters))
      continue;
    repeat(noise_of(*use.graph, i), 0, static_cast<std::byte*>(use.data[i]),
           extent_of(value) * bytes_of(value.element), stream_);
  }
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

const DeviceBytes& Autotuner::noise_of(const OperationGraph& graph, std::size_t value) {
  const Operand& operand = *graph.values()[value].operand;
  const Noise& noise = fusions_.noise();
  if (std::holds_alternative<WeightsOperand>(operand)) return noise.weights;
  if (std::holds_alternative<TensorOperand>(operand))
    return is_gradient(graph, value) ? noise.gradients : noise.values;
  return graph.values()[value].element == Element::fp32 ? noise.vectors : noise.values;
}

// Memory that others need later is not known here.
std::size_t Autotuner::workspace_limit() const {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return std::min(settings_.most_workspace, workspace_.size() + free / 2);
}

// Before the first is bound to it: all share it. Those for which there is too little are dropped.
void Autotuner::make_workspace(std::vector<Engine>& engines, const EngineUse& use) {
  while (!engines.empty()) {
    const auto largest = std::ranges::max_element(engines, {}, &Engine::workspace);
    if (workspace_.size() >= largest->workspace) return;
    workspace_ = DeviceBytes();
    try {
      workspace_ = DeviceBytes(largest->workspace);
    } catch (const Error& failure) {
      drop(*largest, use, failure.what());
      engines.erase(largest);
    }
  }
}

std::optional<Autotuner::Candidate> Autotuner::prepare(Engine& engine, const EngineUse& use) try {
  ++report_.plans;
  Candidate candidate{&engine, runner_.bind(engine, *use.graph, use.data, workspace_.data()), {}};
  candidate.run();  // libraries load what they need
  candidate.graph = capture(stream_, candidate.run);
  check(cudaGraphUpload(candidate.graph.get(), stream_), "cudaGraphUpload");
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  return candidate;
} catch (const Error& failure) {
  drop(engine, use, failure.what());
  return std::nullopt;
}

void Autotuner::time(std::vector<Candidate>& candidates, const EngineUse& use) {
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < samples; ++round) {
    std::erase_if(candidates, [&](Candidate& c) {
      if (c.given_up) return false;
      try {
        c.us.push_back(sample(c));
        best = std::min(best, c.us.back());
        return false;
      } catch (const Error& failure) {
        drop(*c.engine, use, failure.what());
        return true;
      }
    });
    // One sample may have been disturbed, the first by a clock that still rises.
    for (Candidate& c : candidates)
      c.given_up = c.us.size() > 1 && *std::ranges::min_element(c.us) > settings_.too_slow * best;
  }
}

// Microseconds of a run. What one leaves in the cache is flushed before the next, and that is over
// when the run's first event is reached.
double Autotuner::sample(const Candidate& candidate) const {
  for (const Events& run : runs_) {
    check(cudaMemsetAsync(flush_.data(), 0, flush_.size(), stream_), "cudaMemsetAsync");
    check(cudaEventRecord(run.begin.get(), stream_), "cudaEventRecord");
    check(cudaGraphLaunch(candidate.graph.get(), stream_), "cudaGraphLaunch");
    check(cudaEventRecord(run.end.get(), stream_), "cudaEventRecord");
  }
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  double us = 0;
  for (const Events& run : runs_) us += microseconds(run.begin, run.end);
  return us / runs_a_sample;
}

void Autotuner::choose(std::vector<Candidate>& candidates, const EngineUse& use) {
  std::ranges::stable_sort(candidates, {}, [](const Candidate& c) { return median(c.us); });
  for (const Candidate& candidate : candidates) {
    const Engine& engine = *candidate.engine;
    if (const std::string why = fault(engine, use); !why.empty()) {
      drop(engine, use, why);
      continue;
    }
    cache_.add(use.request, {engine.place, engine.name, median(candidate.us), engine.workspace});
    return engines_.choose(use.request, std::move(*candidate.engine));
  }
  engines_.keep(use.request);
}

// There may be too little memory to check it, beside the program's: then it is not chosen.
std::string Autotuner::fault(const Engine& engine, const EngineUse& use) try {
  return fusions_.fault(use.request, engine);
} catch (const Error& failure) {
  if (failure.code() != Exit::usage) throw;
  return failure.what();
}

void Autotuner::drop(const Engine& engine, const EngineUse& use, std::string_view why) {
  report_.dropped.push_back(fmt::format("{}, {}: proposal {}, {}: {}", use.request.first,
                                        use.request.second, engine.place, engine.name, why));
  // What it has queued uses memory that goes now; and CUDA answers the next launch with its error.
  static_cast<void>(cudaGetLastError());
  if (const cudaError_t code = cudaStreamSynchronize(stream_); code != cudaSuccess)
    throw Error("--autotune",
                fmt::format("the GPU can do nothing more after {} ({}); train without --autotune",
                            report_.dropped.back(), cudaGetErrorString(code)));
}

}  // namespace ringtrain::compute::cuda
