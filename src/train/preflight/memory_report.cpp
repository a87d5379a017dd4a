#include "train/preflight/memory_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <map>
#include <thread>

#include "ringtrain/base/text.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/compute/gpu_planner.hpp"
#include "ringtrain/compute/memory_plan.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/model/passes.hpp"
#include "train/engine/schedule.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {
namespace {

constexpr int gpu_batch = 256;           // unless the user says otherwise: enough to fill a GPU
constexpr double launch_seconds = 2e-6;  // the least that a kernel takes within a captured graph
constexpr double program_bytes = 80e6;
constexpr int gpu_batches = 4;  // three on their way to training steps, one to evaluation

// The planned model and what surrounds its schedule.
struct Subject {
  model::Model model;
  int batch = 0;
  float label_smoothing = 0;
  optim::OptimizerKind optimizer = {};
  bool averaged = false;     // --ema
  bool accumulates = false;  // --accumulate above 1
  int shards = 1;            // in which the rule's slots are divided
  bool revertible = false;   // they are kept twice, so that steps can be left out
  Element gradient_dtype = Element::fp32;
  allreduce::Compression compress = {};
  model::BatchNorms batch_norms = model::BatchNorms::each_rank;
  config::ConvolutionFusion fusion = config::ConvolutionFusion::automatic;

  // fp32 numbers a parameter that the optimizer's rule keeps beside it.
  std::size_t rule_slots() const {
    constexpr std::size_t by_kind[] = {0, 1, 1, 2, 2, 2, 1};
    return by_kind[static_cast<std::size_t>(optimizer)];
  }
  // With the moving average.
  std::size_t slots() const { return rule_slots() + averaged; }
  // Of one rank's rule.
  double slot_bytes() const {
    return double(rule_slots() * parameters() * sizeof(float)) * (revertible ? 2 : 1) / shards;
  }
  std::size_t parameters() const { return model.graph.parameter_count(); }
  // Parameters, gradients, their sum over several batches, slots, average, and gradients rounded
  // for others.
  double state_bytes() const {
    const std::size_t rounded = gradient_dtype == Element::fp32 ? 0 : bytes_of(gradient_dtype);
    return double(parameters()) * double((2 + accumulates + averaged) * sizeof(float) + rounded) +
           slot_bytes() +
           double(statistic_buffers() * model.graph.statistic_count() * sizeof(float)) +
           left_over_bytes();
  }
  // Of one rank a host: of the last step and the one under way, and what a checkpoint gets.
  double left_over_bytes() const {
    std::size_t numbers = 0;
    for (const allreduce::GradientMatrix& matrix : gradient_matrices(model.graph))
      numbers += allreduce::left_over_count(compress, matrix);
    return double(3 * numbers * sizeof(float));
  }
  // What each of two hosts gives to the sums.
  double travelling_bytes() const {
    return sizeof(float) *
           allreduce::travelling_numbers(compress, gradient_matrices(model.graph), 2);
  }
  // The running ones and their average, those of the batch, and their sums over the ranks.
  std::size_t statistic_buffers() const { return 3 + averaged; }
  // Of one update: reads the gradient; reads and writes parameters and slots; writes their copy. Of
  // a part, the average and the copy follow the parameters once more.
  double update_bytes(Element element) const {
    const std::size_t copy = element == Element::fp32 ? 0 : bytes_of(element);
    const std::size_t rule = (1 + 2 * (1 + rule_slots())) * sizeof(float);
    const std::size_t follows = 2 * averaged * sizeof(float) + copy;
    const std::size_t again = shards > 1 && follows > 0 ? sizeof(float) : 0;
    return double(parameters()) * (double(rule) / shards + double(follows + again));
  }
  compute::Schedule schedule(const model::Supports& supports,
                             model::Mode mode = model::Mode::training) const {
    return model::make_schedule(model.graph, batch, mode, label_smoothing,
                                allowed(fusion, supports), true, batch_norms);
  }
  // What a checkpoint holds: parameters, slots and running statistics.
  double checkpoint_bytes() const {
    const double statistics = double(1 + averaged) * double(model.graph.statistic_count());
    return sizeof(float) * (double(parameters()) * double(1 + slots()) + statistics);
  }
  // Of it, what a rank has.
  double copied_bytes() const {
    return checkpoint_bytes() -
           double(rule_slots() * parameters() * sizeof(float)) * (shards - 1) / shards;
  }
  double batch_bytes() const { return double(batch) * double(model.input.features()); }
};

// On so many ranks.
Subject subject_of(const model::Model& model, const config::Options& o,
                   std::optional<int> usual_batch, int ranks = 1) {
  Subject s{model};
  const model::Recipe& recipe = s.model.recipe;
  s.batch = o.batch ? *o.batch : o.global_batch.value_or(usual_batch.value_or(recipe.batch));
  if (!o.batch && o.global_batch) s.batch = std::max(1, s.batch / o.accumulate);
  s.accumulates = o.accumulate > 1;
  if (o.plan_device) s.gradient_dtype = o.gradient_dtype;  // between CPUs it takes no memory
  s.compress = o.compress;
  s.fusion = o.fusion;
  if (o.sync_batchnorm) s.batch_norms = model::BatchNorms::all_ranks;
  s.label_smoothing = static_cast<float>(o.label_smoothing.value_or(recipe.label_smoothing));
  s.optimizer = o.optimizer ? *o.optimizer
                            : config::enumerator<optim::OptimizerKind>().read(recipe.optimizer);
  s.averaged = o.ema.value_or(recipe.ema) > 0;
  if (o.shard_optimizer) s.shards = ranks;
  s.revertible = s.shards > 1 && !o.plan_device && o.on_nan == config::OnNan::skip;
  return s;
}

std::string memory_line(const char* what, double bytes) {
  return fmt::format("  {:<44} {:>9.3f} GB\n", what, bytes / giga);
}

// Which kernels move the most, with what they move for one image.
std::string traffic_table(const compute::GpuPlan& plan, const compute::Schedule& schedule,
                          double update_bytes) {
  struct Row {
    int launches = 0;
    double bytes = 0;
  };
  std::map<std::string, Row> rows;
  for (std::size_t s = 0; s < plan.steps.size(); ++s)
    for (const compute::Launch& launch : plan.steps[s]) {
      const bool ours = launch.engine.starts_with("kernel");
      Row& row =
          rows[ours ? launch.engine : std::string("cudnn ") + compute::name_of(schedule.steps[s])];
      ++row.launches;
      row.bytes += double(launch.bytes());
    }
  rows["kernel update"] = {1, update_bytes};
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::ranges::stable_sort(sorted, std::greater{},
                           [](const auto& row) { return row.second.bytes; });
  std::string text = "traffic: launches, MB an image\n";
  for (const auto& [what, row] : sorted)
    text += fmt::format("  {:<44} {:>4} {:>8.2f}\n", what, row.launches,
                        row.bytes / schedule.batch / mega);
  return text;
}

std::string fusion_table(const compute::GpuPlan& plan) {
  std::string text = "fusions: steps made, shapes refused\n";
  for (const compute::Fusion& fusion : plan.fusions)
    text += fmt::format("  {:>4} {:>4}  {}{}\n", fusion.made, fusion.refused, fusion.what,
                        fusion.refused > 0 ? ": " + fusion.why : "");
  return text;
}

// Each launch takes as long as memory or arithmetic, whichever is slower, at the measured ceilings.
double predicted_seconds(const compute::GpuPlan& plan, const compute::GpuModel& gpu,
                         Element element) {
  double seconds = 0;
  for (const auto& launches : plan.steps)
    for (const compute::Launch& launch : launches)
      seconds += std::max({launch_seconds, double(launch.bytes()) / gpu.bytes_per_second,
                           launch.flops / gpu.flops_per_second_of(element)});
  return seconds;
}

std::string speed_text(const Subject& s, const compute::GpuPlan& plan, const compute::GpuModel& gpu,
                       Element element) {
  const double bytes = double(plan.bytes_moved()) + s.update_bytes(element);
  const double by_memory = gpu.bytes_per_second * s.batch / bytes;
  const double by_arithmetic = gpu.flops_per_second_of(element) / s.model.training_flops();
  const double seconds =
      predicted_seconds(plan, gpu, element) + s.update_bytes(element) / gpu.bytes_per_second;
  return fmt::format(
      "{:.{}f} MB/image\n"
      "floor: {:.0f} images/s by memory at {:.1f} TB/s, {:.0f} by arithmetic at {:.0f} TFLOP/s\n"
      "predicted: {:.2f} ms/step, {:.0f} images/s{}\n",
      bytes / s.batch / mega, bytes / s.batch < 10 * mega ? 2 : 0, by_memory,
      gpu.bytes_per_second * 1e-12, by_arithmetic, gpu.flops_per_second_of(element) * 1e-12,
      seconds * 1e3, s.batch / seconds,
      gpu.measured ? "" : ", if it reaches as much of NVIDIA's figures as an H100");
}

// How many ranks there will be is not known here: told as of two.
std::string shards_text(const Subject& s) {
  if (s.shards == 1) return "";
  return fmt::format(
      "  of it each of N ranks has 1/N of {:.3f} GB of optimizer's state: here N = {}\n",
      s.slot_bytes() * s.shards / giga, s.shards);
}

std::string gpu_report(const model::Model& model, const config::Options& o) {
  const compute::GpuModel& gpu = compute::gpu_model(*o.plan_device);
  const Element element = config::element_of(o.precision);
  if (!gpu.has(element))
    throw Error(
        Exit::usage, "--plan-device " + gpu.name,
        fmt::format("{} has no {}; say --precision fp16, or fp32", gpu.title, name_of(element)));
  const auto planner = compute::make_gpu_planner(gpu, element, o.deterministic);
  const Subject s = subject_of(model, o, gpu_batch, 2);
  const auto schedule_of = [&](model::Mode mode) {
    return s.schedule([&](const compute::Schedule& at,
                          const compute::Step& step) { return planner->supports(at, step); },
                      mode);
  };
  const compute::Schedule schedule = schedule_of(model::Mode::training);
  const compute::GpuPlan plan = planner->plan(schedule),
                         evaluation = planner->plan(schedule_of(model::Mode::evaluation));

  const double weights = s.state_bytes() + double(plan.weights + plan.vectors);
  // Its activations lie where those of training do.
  const double evaluated =
      double(std::max(evaluation.activations, plan.activations) - plan.activations) +
      double(evaluation.workspace + evaluation.weights + evaluation.vectors);
  const double batches = gpu_batches * s.batch_bytes();
  const double copy = o.checkpoint_dir.empty() ? 0 : s.copied_bytes();
  const double in_all =
      double(plan.activations + plan.workspace) + weights + evaluated + batches + copy;
  return fmt::format("{} on {} (described, not here): training, {}, {} images a step\n",
                     s.model.name, gpu.title, name_of(element), s.batch) +
         "memory\n" + memory_line("activations", double(plan.activations)) +
         memory_line("weights, gradients, optimizer", weights) + shards_text(s) +
         memory_line("workspace of cuDNN", double(plan.workspace)) +
         memory_line("evaluation's weights and workspace", evaluated) +
         memory_line("batches", batches) + memory_line("copy of the state for checkpoints", copy) +
         memory_line("in all", in_all) +
         memory_line(in_all > gpu.memory_bytes ? "MORE than the GPU has" : "the GPU has",
                     gpu.memory_bytes) +
         traffic_table(plan, schedule, s.update_bytes(element)) + fusion_table(plan) +
         speed_text(s, plan, gpu, element);
}

// Batches that a loader holds, one for training and one for evaluation.
double loader_bytes(const Subject& s, const config::Options& o) {
  const auto threads =
      o.data_threads ? unsigned(*o.data_threads) : std::thread::hardware_concurrency();
  return 2 * (threads + 2) * s.batch_bytes();
}

RankMemory rank_memory(const Subject& s, const config::Options& o,
                       WorkProgress* progress = nullptr) {
  const Element element = config::cpu_element_of(o.precision);
  const auto backend = compute::make_onednn_backend(nullptr, element);
  const auto needs = [&](model::Mode mode) {
    const auto supports = [&](const compute::Schedule& at, const compute::Step& step) {
      return backend->supports(at, step);
    };
    return compute::host_needs(s.schedule(supports, mode), progress, element);
  };
  const compute::HostNeeds training = needs(model::Mode::training),
                           evaluation = needs(model::Mode::evaluation);
  return {.activations = double(training.activations),
          .workspace = double(training.workspace),
          .evaluation = double(evaluation.activations + evaluation.workspace),
          .state = s.state_bytes(),
          .batches = loader_bytes(s, o),
          .slots = o.checkpoint_dir.empty() ? 0 : 2 * s.checkpoint_bytes(),
          .program = program_bytes};
}

std::string travel_line(const Subject& s) {
  if (!s.compress) return "";
  const double all = double(s.parameters() * sizeof(float)), bytes = s.travelling_bytes();
  return fmt::format("between two hosts: {:.2f} MB of gradients a step, {:.1f} % of {:.2f} MB\n",
                     bytes / mega, 100 * bytes / all, all / mega);
}

std::string cpu_report(const model::Model& model, const config::Options& o) {
  check_cpu_precision(o.precision);
  const Subject s = subject_of(model, o, std::nullopt, 2);
  const RankMemory memory = rank_memory(s, o);
  return fmt::format("{} on this CPU: a rank's training, {}, {} images a step\n", s.model.name,
                     name_of(config::cpu_element_of(o.precision)), s.batch) +
         "memory\n" + memory_line("activations", memory.activations) +
         memory_line("workspace of oneDNN", memory.workspace) +
         memory_line("evaluation's activations and workspace", memory.evaluation) +
         memory_line("weights, gradients, optimizer", memory.state) + shards_text(s) +
         memory_line("batches", memory.batches) +
         memory_line("two slots for checkpoints", memory.slots) +
         memory_line("the program and its libraries, about", memory.program) +
         memory_line("in all", memory.total()) + travel_line(s);
}

}  // namespace

RankMemory rank_memory(const model::Model& model, const config::Options& options, int ranks,
                       WorkProgress* progress) {
  return rank_memory(subject_of(model, options, std::nullopt, ranks), options, progress);
}

double checkpoint_bytes(const model::Model& model, const config::Options& options) {
  return subject_of(model, options, std::nullopt).checkpoint_bytes();
}

std::string plan_report(const model::Model& model, const config::Options& options) {
  return options.plan_device ? gpu_report(model, options) : cpu_report(model, options);
}

}  // namespace ringtrain::train
