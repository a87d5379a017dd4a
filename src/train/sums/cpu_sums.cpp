#include "train/sums/cpu_sums.hpp"

#include <fmt/core.h>

#include "ringtrain/allreduce/hierarchical/tune_ring.hpp"
#include "ringtrain/allreduce/make_communicator.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/metrics/scaling/ring_text.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {
namespace {

bool sums_overlap(const RunPlan& plan, const allreduce::MpiSession& session) {
  const bool mpi_meanwhile =  // GPUs' statistics go by NCCL
      plan.batch_norms_together() && plan.options.device != config::Device::cuda;
  return !mpi_meanwhile || session.threads_share_mpi();
}

// What compression leaves out, and an optimizer that replaces sums, take one at a time.
bool several_sums(const RunPlan& plan, const allreduce::MpiSession& session) {
  return session.threads_share_mpi() && !plan.options.compress && !plan.shards_optimizer();
}

std::unique_ptr<allreduce::Communicator> communicator_of(const RunPlan& plan,
                                                         const allreduce::MpiSession& session,
                                                         allreduce::CommunicatorOptions options,
                                                         monitor::Progress& progress) {
  metrics::Timeline* const timeline = progress.timeline();
  const bool on_a_thread = options.overlap && session.hosts() > 1;
  if (timeline != nullptr)
    options.on_sum = [timeline, row = on_a_thread ? metrics::Row::sums : metrics::Row::main](
                         int thread, const TimeSpan& sum) {
      timeline->add(metrics::Phase::sum, sum, row, thread);
    };
  return allreduce::make_communicator(
      config::enumerator<config::Allreduce>().write(plan.options.allreduce), session, options);
}

}  // namespace

std::optional<allreduce::RingChoice> ring_of(const RunPlan& plan,
                                             const allreduce::MpiSession& session) {
  if (session.hosts() == 1 || plan.options.allreduce == config::Allreduce::mpi) return std::nullopt;
  const config::Tune& tune = plan.options.tune;
  allreduce::RingChoice ring{.plan = tune.plan};
  if (tune.measures()) {
    const double share = double(bytes_of(plan.options.gradient_dtype)) / sizeof(float);
    const double bucket = share * double(plan.bucket_bytes());
    ring = allreduce::choose_ring(allreduce::measure_ring(session, bucket), bucket);
  }
  if (!several_sums(plan, session)) ring.plan.at_once = 1;
  return ring;
}

std::vector<std::string> notes_of_sums(const RunPlan& plan, const allreduce::MpiSession& session,
                                       const std::optional<allreduce::RingChoice>& ring) {
  if (plan.options.shard_optimizer && !plan.shards_optimizer())
    return {"--shard-optimizer changes nothing: no other rank trains"};
  if (ring) return metrics::ring_lines(*ring, plan.options.tune, plan.options.baseline);
  if (session.hosts() > 1) return {};
  if (plan.options.compress)
    return {fmt::format(
        "--compress {} changes nothing: gradients are compressed between hosts, and all ranks are "
        "on one",
        config::compression_value().write(plan.options.compress))};
  const Element element = plan.options.gradient_dtype;
  if (element == Element::fp32) return {};
  return {fmt::format(
      "--gradient-dtype {} changes nothing: gradients travel in it between hosts, and all ranks "
      "are on one, where they are summed in fp32",
      name_of(element))};
}

std::unique_ptr<allreduce::Communicator> make_gradient_sums(
    const RunPlan& plan, const allreduce::MpiSession& session,
    const std::optional<allreduce::RingChoice>& ring, bool crowded, monitor::Progress& progress,
    int threads) {
  const allreduce::SumPlan sums = ring ? ring->plan : allreduce::SumPlan();
  return communicator_of(
      plan, session,
      {.ring = sums.ring,
       .overlap = sums_overlap(plan, session),
       .at_once = sums.at_once,
       .crowded = crowded,
       .compressed = {plan.options.compress, gradient_matrices(plan.model.graph), threads}},
      progress);
}

std::unique_ptr<allreduce::Communicator> make_statistics_sums(const RunPlan& plan,
                                                              const allreduce::MpiSession& session,
                                                              bool crowded,
                                                              monitor::Progress& progress) {
  if (!plan.batch_norms_together()) return nullptr;
  return communicator_of(plan, session, {.overlap = false, .crowded = crowded}, progress);
}

}  // namespace ringtrain::train
