#include "train/engine/gpu_settings.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/program.hpp"
#include "ringtrain/config/option_values.hpp"
#include "train/sums/reduction_buffer.hpp"

namespace ringtrain::train {
namespace {

void show_line(const std::string& line) { write_stderr(line + "\n"); }

}  // namespace

compute::GpuTrainingSettings training_settings(const RunPlan& plan, View averaged_statistics) {
  const optim::OptimizerSettings& o = plan.optimizer;
  compute::GpuTrainingSettings settings;
  settings.rule = {o.kind,    o.momentum, o.mean_square_decay, o.beta1,     o.beta2,
                   o.epsilon, o.ema,      o.trust_coefficient, o.clip_norm, o.average};
  settings.decays = optim::decay_segments(o, plan.model.graph.learning_count());
  settings.momenta = momenta_of(plan.model.graph);
  settings.averaged_statistics = averaged_statistics;
  settings.accumulates = plan.options.accumulate > 1;
  settings.graph = !plan.options.no_graph;
  // Gradients are divided by the samples of all ranks, so they are smaller by as much.
  const auto shares = std::bit_ceil(unsigned(plan.ranks * plan.options.accumulate));
  settings.first_loss_scale *= static_cast<float>(shares);
  settings.loss_scale.most *= static_cast<float>(shares);
  return settings;
}

compute::GpuSettings gpu_settings(const RunPlan& plan, int device, int rank) {
  const config::Options& o = plan.options;
  return {.device = device,
          .element = config::element_of(o.precision),
          .deterministic = o.deterministic,
          .autotune = o.autotune,
          .cache_folder = cache_folder(),
          .progress = rank == 0 ? show_line : nullptr};
}

std::vector<std::string> engine_lines(const compute::GpuEngines& engines) {
  std::vector<std::string> lines = engines.notes;
  if (engines.timed > 0)
    lines.push_back(fmt::format(
        "autotune: {} plans of {} requests to cuDNN timed in {:.1f} s; {} "
        "requests known from earlier runs{}",
        engines.plans, engines.timed, engines.seconds, engines.known,
        engines.left == 0 ? ""
                          : fmt::format("; {} are left to the next run with --autotune, because "
                                        "time or memory for this ran out",
                                        engines.left)));
  else if (engines.known > 0)
    lines.push_back(
        fmt::format("engines for {} requests to cuDNN are known from earlier runs", engines.known));
  if (!engines.dropped.empty())
    lines.push_back(fmt::format("autotune: {} plans failed, such as {}", engines.dropped.size(),
                                engines.dropped.front()));
  return lines;
}

std::string fingerprint_of(const std::vector<std::string>& ranks, const std::string& mine) {
  if (std::ranges::count(ranks, mine) == std::ssize(ranks)) return mine;
  return hex(hash_text(fmt::format("{}", fmt::join(ranks, ","))));
}

}  // namespace ringtrain::train
