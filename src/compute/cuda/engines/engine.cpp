#include "compute/cuda/engines/engine.hpp"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <limits>

#include "compute/cuda/engines/operation_graph.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::compute::cuda {
namespace {

// What the heuristics propose for the graph, best first.
std::vector<Descriptor> proposals(cudnnBackendHeurMode_t mode, const Descriptor& graph,
                                  const PlanTarget& target) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (target.device) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device);
  if (!heuristics.accepts()) return {};
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
        "count engine proposals");
  std::vector<Descriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i)
    raw.push_back(found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  if (count > 0)
    check(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, raw.data()),
          "read engine proposals");
  found.erase(found.begin() + count, found.end());
  return found;
}

Descriptor engine_of(const Descriptor& configuration) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
        "read the engine of a proposal");
  return engine;
}

bool compiled_at_run_time(const Descriptor& engine) {
  const auto notes = engine.read<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                                             CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  return std::ranges::count(notes, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) > 0;
}

bool allowed(const Descriptor& engine, const EngineRules& rules) {
  const auto notes = engine.read<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                              CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  const auto has = [&](auto note) { return std::ranges::count(notes, note) > 0; };
  return (rules.compiled || !compiled_at_run_time(engine)) &&
         !has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) &&
         !(rules.deterministic && has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
}

// Engines add these up with atomic operations, in any order (seen on an H100 with cuDNN 9.19),
// which their notes do not say.
bool sums_in_any_order(const OperationGraph& graph) {
  return std::ranges::any_of(graph.operations(), [](const OperationGraph::Operation& operation) {
    return operation.kind == OperationGraph::Kind::statistics ||
           operation.kind == OperationGraph::Kind::batch_norm_sums;
  });
}

// Where and how plans are made.
struct PlanSite {
  const PlanTarget& target;
  EngineRules rules;
};

std::optional<Engine> plan_of(const Descriptor& configuration, std::size_t place,
                              const PlanSite& site) try {
  const Descriptor engine = engine_of(configuration);
  if (!allowed(engine, site.rules)) return std::nullopt;
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  if (site.target.device)
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *site.target.device);
  else
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, site.target.handle);
  if (!plan.accepts()) return std::nullopt;
  const auto index = engine.read<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX).at(0);
  const auto workspace = plan.read<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE).at(0);
  return Engine{fmt::format("cudnn engine {}", index), static_cast<std::size_t>(workspace),
                std::move(plan), place};
} catch (const std::exception&) {
  return std::nullopt;  // a proposal that cannot be read is none
}

/// Plans that are refused leave an error behind, which the next launch would answer with.
struct ErrorsOfRefusals {
  ~ErrorsOfRefusals() { static_cast<void>(cudaGetLastError()); }
};

// Calls `is_last(configuration, place)` for one proposal after the other until it is true.
template <class F>
void go_through_proposals(const Descriptor& graph, const PlanTarget& target, F is_last) {
  const ErrorsOfRefusals forgotten;
  std::size_t place = 0;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (const Descriptor& configuration : proposals(mode, graph, target))
      if (is_last(configuration, place++)) return;
}

std::optional<Engine> first_choice(const Descriptor& graph, const PlanSite& site,
                                   std::size_t most_workspace) {
  std::optional<Engine> engine;
  go_through_proposals(graph, site.target, [&](const Descriptor& proposal, std::size_t place) {
    engine = plan_of(proposal, place, {site.target, {site.rules.deterministic, false}});
    if (engine && engine->workspace > most_workspace) engine.reset();
    return engine.has_value();
  });
  return engine;
}

}  // namespace

const Answer& Engines::ask(const Request& request) {
  const auto [place, is_new] = answers_.try_emplace(request.key());
  if (is_new) place->second = find(request);
  return place->second;
}

std::optional<Engine> Engines::known(const RequestKey& request, const Descriptor& graph) const {
  const Choice* const choice = known_ == nullptr ? nullptr : known_->find(request);
  std::optional<Engine> engine;
  if (choice == nullptr) return engine;
  go_through_proposals(graph, target_, [&](const Descriptor& proposal, std::size_t place) {
    if (place == choice->place) engine = plan_of(proposal, place, {target_, rules_});
    return place == choice->place;
  });
  if (engine && engine->name != choice->engine) engine.reset();
  return engine;
}

std::optional<Engine> Engines::known(const RequestKey& request, const OperationGraph& graph) const {
  return known(request, describe(graph, target_.handle));
}

Answer Engines::find(const Request& request) const {
  try {
    const OperationGraph operations = request.graph();
    if (rules_.deterministic && sums_in_any_order(operations))
      return {std::nullopt, "its sums over pixels are not deterministic"};
    const Descriptor graph = describe(operations, target_.handle);
    // Workspace is written and read.
    const std::size_t most_workspace =
        request.saved_bytes > 0 ? request.saved_bytes / 2 : std::numeric_limits<std::size_t>::max();
    auto first = first_choice(graph, {target_, rules_}, most_workspace);
    // Whether there is an engine must not depend on a file: all ranks make the same schedule.
    if (!first)
      return {std::nullopt, fmt::format("no precompiled engine{}{}",
                                        rules_.deterministic ? " that is deterministic" : "",
                                        request.saved_bytes > 0
                                            ? ", or its workspace moves more than the fusion saves"
                                            : "")};
    try {
      if (auto engine = known(request.key(), graph))
        return {std::move(engine), "", Answer::Source::cache};
    } catch (const Error&) {  // the first is there
    }
    return {std::move(first), ""};
  } catch (const Error& refusal) {
    return {std::nullopt, refusal.what()};
  }
}

std::vector<Engine> Engines::candidates(const OperationGraph& graph, std::size_t most,
                                        std::size_t workspace) const {
  std::vector<Engine> found;
  const auto add = [&](const Descriptor& proposal, std::size_t place) {
    auto engine = plan_of(proposal, place, {target_, rules_});
    if (engine && engine->workspace <= workspace) found.push_back(std::move(*engine));
    return found.size() == most;
  };
  go_through_proposals(describe(graph, target_.handle), target_, add);
  return found;
}

void Engines::choose(const RequestKey& request, Engine engine) {
  answers_.at(request).engine = std::move(engine);
  keep(request);
}

}  // namespace ringtrain::compute::cuda
