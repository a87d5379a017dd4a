#include "compute/cuda/engines/autotuner.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <utility>

#include "ringtrain/base/error.hpp"

namespace ringtrain::compute::cuda {
namespace {

constexpr int runs_a_sample = 4, samples = 5;
constexpr double never = std::numeric_limits<double>::infinity();

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

void Autotuner::tune(const std::vector<EngineUse>& uses) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (const EngineUse& use : uses) {
    if (engines_.answers().at(use.request).source != Answer::Source::heuristics) continue;
    if (report_.seconds + elapsed() > settings_.most_seconds) {
      ++report_.left;
      continue;
    }
    decide(use);
    cache_.save();  // a run that is killed meanwhile leaves what it knows
  }
  workspace_ = DeviceBytes();
  report_.seconds += elapsed();
}

// Memory that others need later is not known here.
std::size_t Autotuner::workspace_limit() const {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return std::min(settings_.most_workspace, workspace_.size() + free / 2);
}

void Autotuner::decide(const EngineUse& use) {
  ++report_.requests;
  std::vector<Engine> candidates =
      engines_.candidates(*use.graph, settings_.most_candidates, workspace_limit());
  static_cast<void>(cudaGetLastError());  // of plans that were refused
  std::vector<std::pair<double, Engine*>> timed;
  double best = never;
  for (Engine& engine : candidates) {
    const double us = time(engine, use, best);
    best = std::min(best, us);
    if (us < never) timed.emplace_back(us, &engine);
  }
  std::ranges::stable_sort(timed, {}, &std::pair<double, Engine*>::first);
  for (const auto& [us, engine] : timed) {
    if (const std::string why = fault(*engine, use); !why.empty()) {
      drop(*engine, use, why);
      continue;
    }
    cache_.add(use.request, {engine->place, engine->name, us, engine->workspace});
    return engines_.choose(use.request, std::move(*engine));
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

double Autotuner::time(const Engine& engine, const EngineUse& use, double best) try {
  ++report_.plans;
  if (workspace_.size() < engine.workspace) {
    workspace_ = DeviceBytes();
    workspace_ = DeviceBytes(engine.workspace);
  }
  return median_time(runner_.bind(engine, *use.graph, use.data, workspace_.data()), best);
} catch (const Error& failure) {
  drop(engine, use, failure.what());
  return never;
}

// As graphs, as training runs them: else small kernels would be as slow as the host launches them.
double Autotuner::median_time(const std::function<void()>& run, double best) const {
  run();  // libraries load what they need
  const Graph graph = capture(stream_, [&] {
    for (int i = 0; i < runs_a_sample; ++i) run();
  });
  check(cudaGraphUpload(graph.get(), stream_), "cudaGraphUpload");
  const Event begin = make_timed_event(), end = make_timed_event();
  std::vector<double> times;
  while (times.size() < samples) {
    check(cudaEventRecord(begin.get(), stream_), "cudaEventRecord");
    check(cudaGraphLaunch(graph.get(), stream_), "cudaGraphLaunch");
    check(cudaEventRecord(end.get(), stream_), "cudaEventRecord");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    times.push_back(microseconds(begin, end) / runs_a_sample);
    if (times.back() > settings_.too_slow * best) break;
  }
  return median(std::move(times));
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
