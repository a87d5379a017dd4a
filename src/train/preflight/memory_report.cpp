#include "train/preflight/memory_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <map>

#include "ringtrain/base/text.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/compute/gpu_planner.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/model/passes.hpp"
#include "train/engine/schedule.hpp"
#include "train/sums/reduction_buffer.hpp"

namespace ringtrain::train {
namespace {

constexpr int gpu_batch = 256;           // unless the user says otherwise: enough to fill a GPU
constexpr double launch_seconds = 2e-6;  // the least that a kernel takes within a captured graph
constexpr double program_bytes = 80e6;
constexpr int gpu_batches = 4;  // three on their way to training steps, one to evaluation

std::size_t parameters(const RunPlan& plan) { return plan.model.graph.parameter_count(); }
std::size_t learning(const RunPlan& plan) { return plan.model.graph.learning_count(); }
std::size_t rule_slots(const RunPlan& plan) {
  return compute::slots_of(plan.optimizer.kind).size();
}
bool averages(const RunPlan& plan) { return plan.optimizer.ema > 0; }
// Ranks that divide the optimizer's slots among them.
int shards(const RunPlan& plan) { return plan.shards_optimizer() ? plan.ranks : 1; }

double float_bytes(double numbers) { return numbers * sizeof(float); }

double slot_bytes(const RunPlan& plan) {
  return float_bytes(double(rule_slots(plan) * learning(plan)));
}

// Slots of a part are kept twice on CPUs, so that steps can be left out.
double own_slot_bytes(const RunPlan& plan) {
  const bool twice =
      shards(plan) > 1 && !plan.options.plan_device && plan.options.on_nan == config::OnNan::skip;
  return slot_bytes(plan) * (twice ? 2 : 1) / shards(plan);
}

// What compression keeps on the one rank of a host: of the last step, of the one under way, and for
// checkpoints.
double left_over_bytes(const RunPlan& plan) {
  std::size_t numbers = 0;
  for (const allreduce::GradientMatrix& matrix : gradient_matrices(plan.model.graph))
    if (plan.compresses()) numbers += allreduce::left_over_count(plan.options.compress, matrix);
  return float_bytes(double(3 * numbers));
}

double state_bytes(const RunPlan& plan) {
  ReservedMemory memory;
  const TrainingBuffers buffers(plan.model.graph, averages(plan), memory, memory);
  const std::size_t more =
      averages(plan) * parameters(plan) + (plan.options.accumulate > 1) * learning(plan);
  return double(memory.bytes()) + float_bytes(double(more)) + own_slot_bytes(plan) +
         left_over_bytes(plan);
}

// Of one update: reads the gradient; reads and writes parameters and slots; writes their copy. Of
// a part, the average and the copy follow the parameters once more.
double update_bytes(const RunPlan& plan, Element element) {
  const std::size_t copy = element == Element::fp32 ? 0 : bytes_of(element);
  const double rule = float_bytes(double(1 + 2 * (1 + rule_slots(plan))));
  const double follows = float_bytes(2 * averages(plan)) + double(copy);
  const double again = shards(plan) > 1 && follows > 0 ? float_bytes(1) : 0;
  return double(learning(plan)) * (rule / shards(plan) + follows + again);
}

double batch_bytes(const RunPlan& plan) {
  return double(plan.share.count) * double(plan.graph(model::Mode::training).tensors[0].features());
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

std::string speed_text(const RunPlan& run, const compute::GpuPlan& plan,
                       const compute::GpuModel& gpu, Element element) {
  const int images = run.share.count;
  const double update = update_bytes(run, element);
  const double bytes = double(plan.bytes_moved()) + update;
  const double by_memory = gpu.bytes_per_second * images / bytes;
  const double by_arithmetic =
      gpu.flops_per_second_of(element) / run.graph(model::Mode::training).training_flops();
  const double seconds = predicted_seconds(plan, gpu, element) + update / gpu.bytes_per_second;
  return fmt::format(
      "{:.{}f} MB/image\n"
      "floor: {:.0f} images/s by memory at {:.1f} TB/s, {:.0f} by arithmetic at {:.0f} TFLOP/s\n"
      "predicted: {:.2f} ms/step, {:.0f} images/s{}\n",
      bytes / images / mega, bytes / images < 10 * mega ? 2 : 0, by_memory,
      gpu.bytes_per_second * 1e-12, by_arithmetic, gpu.flops_per_second_of(element) * 1e-12,
      seconds * 1e3, images / seconds,
      gpu.measured ? "" : ", if it reaches as much of NVIDIA's figures as an H100");
}

// How many ranks there will be is not known here: told as of two.
std::string shards_text(const RunPlan& plan) {
  if (shards(plan) == 1) return "";
  return fmt::format(
      "  of it each of N ranks has 1/N of {:.3f} GB of optimizer's state: here N = {}\n",
      own_slot_bytes(plan) * shards(plan) / giga, shards(plan));
}

std::string gpu_report(const ModelSource& source, const config::Options& o) {
  const compute::GpuModel& gpu = compute::gpu_model(*o.plan_device);
  const Element element = config::element_of(o.precision);
  if (!gpu.has(element))
    throw Error(
        Exit::usage, "--plan-device " + gpu.name,
        fmt::format("{} has no {}; say --precision fp16, or fp32", gpu.title, name_of(element)));
  const auto planner = compute::make_gpu_planner(gpu, element, o.deterministic);
  const RunPlan run = plan_without_data(source, o, 2, gpu_batch);
  const auto schedule_of = [&](model::Mode mode) {
    return make_schedule(
        run,
        [&](const compute::Schedule& at, const compute::Step& step) {
          return planner->supports(at, step);
        },
        mode);
  };
  const compute::Schedule schedule = schedule_of(model::Mode::training);
  const compute::GpuPlan plan = planner->plan(schedule),
                         evaluation = planner->plan(schedule_of(model::Mode::evaluation));

  const std::size_t rounded = o.gradient_dtype == Element::fp32 ? 0 : bytes_of(o.gradient_dtype);
  const double weights =
      state_bytes(run) + double(rounded * parameters(run)) + double(plan.weights + plan.vectors);
  // Its activations lie where those of training do.
  const double evaluated =
      double(std::max(evaluation.activations, plan.activations) - plan.activations) +
      double(evaluation.workspace + evaluation.weights + evaluation.vectors);
  const double batches = gpu_batches * batch_bytes(run);
  // Of the optimizer's state a rank copies what it has.
  const double elsewhere = slot_bytes(run) * (shards(run) - 1) / shards(run);
  const double copy = o.checkpoint_dir.empty() ? 0 : checkpoint_bytes(run) - elsewhere;
  const double in_all =
      double(plan.activations + plan.workspace) + weights + evaluated + batches + copy;
  return fmt::format("{} on {} (described, not here): training, {}, {} images a step\n",
                     run.model.name, gpu.title, name_of(element), run.share.count) +
         "memory\n" + memory_line("activations", double(plan.activations)) +
         memory_line("weights, gradients, optimizer", weights) + shards_text(run) +
         memory_line("workspace of cuDNN", double(plan.workspace)) +
         memory_line("evaluation's weights and workspace", evaluated) +
         memory_line("batches", batches) + memory_line("copy of the state for checkpoints", copy) +
         memory_line("in all", in_all) +
         memory_line(in_all > gpu.memory_bytes ? "MORE than the GPU has" : "the GPU has",
                     gpu.memory_bytes) +
         traffic_table(plan, schedule, update_bytes(run, element)) + fusion_table(plan) +
         speed_text(run, plan, gpu, element);
}

std::string travel_line(const RunPlan& plan) {
  if (!plan.options.compress) return "";
  const double all = float_bytes(double(learning(plan))),
               bytes = plan.gradient_bytes({0, learning(plan)});
  return fmt::format("between two hosts: {:.2f} MB of gradients a step, {:.1f} % of {:.2f} MB\n",
                     bytes / mega, 100 * bytes / all, all / mega);
}

std::string cpu_report(const ModelSource& source, const config::Options& o) {
  check_cpu_precision(o.precision);
  const RunPlan plan = plan_without_data(source, o, 2);
  const RankMemory memory = rank_memory(plan);
  return fmt::format("{} on this CPU: a rank's training, {}, {} images a step\n", plan.model.name,
                     name_of(config::cpu_element_of(o.precision)), plan.share.count) +
         "memory\n" + memory_line("activations", memory.activations) +
         memory_line("workspace of oneDNN", memory.workspace) +
         memory_line("evaluation's activations and workspace", memory.evaluation) +
         memory_line("weights, gradients, optimizer", memory.state) + shards_text(plan) +
         memory_line("batches", memory.batches) +
         memory_line("two slots for checkpoints", memory.slots) +
         memory_line("the program and its libraries, about", memory.program) +
         memory_line("in all", memory.total()) + travel_line(plan);
}

}  // namespace

RankMemory rank_memory(const RunPlan& plan, WorkProgress* progress) {
  const Element element = config::cpu_element_of(plan.options.precision);
  const auto backend = compute::make_onednn_backend(nullptr, element);
  const auto needs = [&](model::Mode mode) {
    return compute::host_needs(make_schedule(plan, *backend, mode), progress, element);
  };
  const compute::HostNeeds training = needs(model::Mode::training),
                           evaluation = needs(model::Mode::evaluation);
  return {.activations = double(training.activations),
          .workspace = double(training.workspace),
          .evaluation = double(evaluation.activations + evaluation.workspace),
          .state = state_bytes(plan),
          .batches = 2 * (plan.data_threads + 2) * batch_bytes(plan),  // training and evaluation
          .slots = plan.options.checkpoint_dir.empty() ? 0 : 2 * checkpoint_bytes(plan),
          .program = program_bytes};
}

double checkpoint_bytes(const RunPlan& plan) {
  const double statistics = double(1 + averages(plan)) * double(plan.model.graph.statistic_count());
  return slot_bytes(plan) + float_bytes(double((1 + averages(plan)) * parameters(plan))) +
         float_bytes(statistics);
}

std::string plan_report(const ModelSource& source, const config::Options& options) {
  return options.plan_device ? gpu_report(source, options) : cpu_report(source, options);
}

}  // namespace ringtrain::train
