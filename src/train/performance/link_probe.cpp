#include "train/performance/link_probe.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "ringtrain/base/program.hpp"
#include "ringtrain/base/statistics.hpp"
#include "ringtrain/host/launcher.hpp"
#include "train/performance/batch_shares.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {
namespace {

constexpr int rounds = 3;
constexpr double most_link_s = 1;
constexpr double usual_target = 0.9;
constexpr double slow_s_per_byte = 1 / 300e6;  // of 2.4 Gbit/s
constexpr double enough_s = 1;                 // a busy machine's speed changes within less
constexpr double most_batches_s = 2;           // of timing a larger one
constexpr double least_growing = 0.1;          // of a batch; less is noise
constexpr double far_above = 2;                // the recipe's learning rate

// Backward makes the tail final first.
std::vector<Range> in_order_of_sums(const std::vector<std::uint64_t>& bounds) {
  std::vector<Range> buckets;
  for (std::size_t i = bounds.size(); i-- > 1;)
    buckets.push_back({bounds[i - 1], bounds[i] - bounds[i - 1]});
  return buckets;
}

}  // namespace

LinkProbe::LinkProbe(const RunPlan& plan, EngineProbe& engine, const allreduce::MpiSession& session,
                     monitor::Progress& progress, metrics::Reporter& output, Position start)
    : plan_(plan),
      engine_(engine),
      session_(session),
      progress_(progress),
      output_(output),
      start_(start.step),
      due_(start_ + least_steps),
      buckets_(in_order_of_sums(engine.bucket_bounds())),
      leads_s_(buckets_.size()) {
  link_ = metrics::fit_link(time_sums(progress));
  link_.busy_s_per_byte = link_.s_per_byte;
  if (const allreduce::RingChoice* const ring = engine.ring();
      ring && !ring->measured.trials.empty())
    link_.busy_s_per_byte = ring->measured.carried_s(1);
}

// Rank 0's clock is what counts, so that all ranks do the same and come to the same.
double LinkProbe::seconds_of(const Range& bucket, monitor::Progress& progress) {
  progress.enter(metrics::Phase::ranks);
  session_.barrier();
  progress.enter(metrics::Phase::communication);
  Stopwatch watch;
  engine_.sum(bucket);
  double seconds = watch.lap();
  session_.broadcast(std::as_writable_bytes(std::span(&seconds, 1)), 0);
  return seconds;
}

std::vector<metrics::TimedSum> LinkProbe::time_sums(monitor::Progress& progress) {
  const Range smallest = *std::ranges::min_element(buckets_, {}, &Range::count);
  static_cast<void>(seconds_of(smallest, progress));  // connects the ranks
  double spent_s = 0;
  std::vector<std::vector<double>> seconds(buckets_.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t b = 0; b < buckets_.size() && spent_s < most_link_s; ++b) {
      seconds[b].push_back(seconds_of(buckets_[b], progress));
      spent_s += seconds[b].back();
    }
  std::vector<metrics::TimedSum> sums;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (!seconds[b].empty()) sums.push_back({bytes_of(buckets_[b]), median_of(seconds[b])});
  return sums;
}

void LinkProbe::see(const StepReport& report, double wall_s) {
  if (expected_ || seen_++ < warm_up) return;
  seen_s_ += wall_s;
  const int batches = plan_.options.accumulate;
  compute_s_.push_back(wall_s - report.seconds[metrics::Phase::communication]);
  waits_s_.push_back(report.seconds[metrics::Phase::data_wait]);
  update_s_.push_back(report.seconds[metrics::Phase::update]);
  const std::vector<double> leads =
      engine_.bucket_leads(report.seconds[metrics::Phase::backward] / batches);
  for (std::size_t b = 0; b < std::min(leads.size(), leads_s_.size()); ++b)
    leads_s_[b].push_back(leads[b]);
}

bool LinkProbe::is_due(const Position& next) const { return !expected_ && next.step == due_; }

void LinkProbe::judge(bool may_time) {
  if (!enough()) {
    due_ = start_ + 2 * (due_ - start_);
    return;
  }
  const config::Options& o = plan_.options;
  const allreduce::RingChoice* const ring = engine_.ring();
  if (ring != nullptr) link_.at_once = ring->plan.at_once;
  metrics::LinkSituation now{.step = parts(),
                             .link = link_,
                             .ranks = session_.size(),
                             .batch = most_of_a_rank(),
                             .accumulate = o.accumulate,
                             .may_narrow = may_narrow(),
                             .compressed = share_compressed(),
                             .target = o.require_efficiency.value_or(usual_target)};
  metrics::ScalingForecast verdict = metrics::judge(now);
  const auto shares = better_shares(now.step, verdict.step);
  const int batch = may_time ? verdict.batch.value_or(0) : 0;
  if (const auto growing_s = time_growing(now.step, batch)) {
    now.step = now.step.with_growing(*growing_s);
    verdict = metrics::judge(now);
  }
  if (ring != nullptr) verdict.ring = *ring;
  verdict.shares = shares;
  expected_ = verdict.step;
  for (const std::string& line : metrics::verdict_lines(verdict, o.baseline, command_of(verdict)))
    output_.note(line);
  if (const std::string caution = caution_of(verdict); !caution.empty()) output_.note(caution);
  output_.write(verdict);
}

std::string LinkProbe::caution_of(const metrics::ScalingForecast& verdict) const {
  if (!verdict.larger) return "";
  const double times = double(verdict.larger->batch) / most_of_a_rank();
  const double rate = plan_.learning_rate_of_batch(times);
  const auto usual = plan_.recipe_rate_of_batch(times);
  if (!usual || rate <= far_above * *usual) return "";
  return fmt::format(
      "links: --lr {:.3g}, as this run's grows with the batch, is {:.1f} times the {:.3g} of the "
      "model's recipe for that batch: training may diverge",
      rate, rate / *usual, *usual);
}

// Rates are warmed up for five epochs, as Goyal et al. do (RunPlan::learning_rate_of_batch).
// Options that are given twice: the last one counts.
std::string LinkProbe::command_of(const metrics::ScalingForecast& verdict) const {
  const config::Options& o = plan_.options;
  const bool counts_all = o.global_batch.has_value();  // --global-batch
  if (!verdict.larger || session_.rank() != 0) return "";
  const double times = double(verdict.larger->batch) / most_of_a_rank();
  const double epochs = std::max(*o.warmup_epochs, std::min(5.0, plan_.epochs / 4));
  std::vector<std::string> words = host::job_command();
  const auto set = [&](const std::string& name, const std::string& value) {
    words.push_back("--" + name);
    words.push_back(value);
  };
  if (counts_all)
    set("global-batch", std::to_string(std::lround(times * plan_.global_batch)));
  else
    set("batch", std::to_string(verdict.larger->batch));
  if (verdict.larger->narrow) set("gradient-dtype", "bf16");
  if (verdict.larger->narrow && o.tune.mode == config::Tune::Mode::all) set("tuning", "auto");
  set("lr", fmt::format("{:.3g}", plan_.learning_rate_of_batch(times)));
  if (!o.lr_schedule->warms_up()) set("warmup-epochs", fmt::format("{:.3g}", epochs));
  if (!o.checkpoint_dir.empty())
    set("checkpoint-dir", fmt::format("{}-batch{}", o.checkpoint_dir, verdict.larger->batch));
  return for_shell(words);
}

// With equal shares.
int LinkProbe::most_of_a_rank() const {
  return (plan_.micro_batch + plan_.ranks - 1) / plan_.ranks;
}

std::optional<metrics::OtherShares> LinkProbe::better_shares(const metrics::StepParts& step,
                                                             const metrics::Forecast& now) const {
  const double update_s = median_of(update_s_);
  const double images_s = std::max(median_of(compute_s_) - update_s, 1e-9);
  const std::vector<RankSpeed> speeds =
      gather_speeds({images_s / plan_.share.count, update_s}, session_);
  metrics::OtherShares other{fastest_division(plan_.micro_batch, speeds)};
  const double times = slowest_s(other.shares, speeds) / slowest_s(plan_.shares, speeds);
  other.step = metrics::forecast(step.with_images(std::min(1.0, times)), link_);
  if (other.step.step_s() > worth_other_shares * now.step_s()) return std::nullopt;
  return other;
}

// What travels between GPUs and, by our ring, between hosts can be rounded.
bool LinkProbe::may_narrow() const {
  const config::Options& o = plan_.options;
  const bool can = o.device == config::Device::cuda ||
                   (session_.hosts() > 1 && o.allreduce != config::Allreduce::mpi);
  return can && o.gradient_dtype == Element::fp32 && !o.compress && !o.shard_optimizer;
}

std::optional<double> LinkProbe::share_compressed() const {
  const config::Options& o = plan_.options;
  // By CPUs, also for GPUs, whose NCCL is faster where links are not slow.
  const bool slow = o.device != config::Device::cuda || link_.s_per_byte > slow_s_per_byte;
  const bool can = session_.hosts() > 1 && slow && o.allreduce != config::Allreduce::mpi &&
                   o.allreduce != config::Allreduce::nccl && !o.compress && !o.shard_optimizer;
  if (!can) return std::nullopt;
  const allreduce::Compression how{.kind = allreduce::Compression::Kind::powersgd, .rank = 4};
  const double numbers =
      allreduce::travelling_numbers(how, gradient_matrices(plan_.model.graph), session_.hosts());
  return sizeof(float) * numbers / plan_.gradient_bytes({0, plan_.model.graph.learning_count()});
}

// As they travel: a head of results and statistics, which is part of the last bucket, as it is.
double LinkProbe::bytes_of(const Range& bucket) const {
  const std::size_t head = buckets_.front().end() - plan_.model.graph.learning_count();
  const std::size_t first = std::max(bucket.first, head);
  return double((first - bucket.first) * sizeof(float)) +
         plan_.gradient_bytes({first - head, bucket.end() - first});
}

// As rank 0 has it.
bool LinkProbe::enough() const {
  double said = seen_s_ >= enough_s || due_ - start_ >= most_steps ? 1 : 0;
  session_.broadcast(std::as_writable_bytes(std::span(&said, 1)), 0);
  return said != 0;
}

// All wait for the slowest rank of each step, so what counts is how long that computes.
metrics::StepParts LinkProbe::parts() const {
  std::vector<double> slowest = compute_s_;
  session_.maximum(slowest);
  const bool late = engine_.ring() != nullptr && engine_.ring()->plan.late;
  metrics::StepParts step{.update_s = median_of(update_s_),
                          .overlaps = engine_.sums_overlap() && !late};
  step.images_s = std::max(0.0, median_of(slowest) - step.update_s);
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    step.buckets.push_back({bytes_of(buckets_[b]), median_of(leads_s_[b])});
  return step;
}

// All ranks compute at once, as in steps, and the slowest counts. Only rank 0's figures decide
// whether they do: those of the others may differ in rounding.
std::optional<double> LinkProbe::time_growing(const metrics::StepParts& step, int batch) const {
  const int batches = plan_.options.accumulate;
  const double usual_s = std::max(step.images_s / batches, 1e-6);
  double times = std::min(double(batch) / most_of_a_rank(),
                          most_batches_s / (EngineProbe::BatchSeconds::least_runs * usual_s) - 1);
  session_.broadcast(std::as_writable_bytes(std::span(&times, 1)), 0);
  if (times < 2) return std::nullopt;
  progress_.enter(metrics::Phase::ranks);  // a rank that waits here is not the one to blame
  session_.barrier();
  const int images = static_cast<int>(times * plan_.share.count);
  const auto timed = engine_.time_batches(images);
  const double growing_s =
      timed ? (timed->other_s - timed->usual_s) / (double(images) / plan_.share.count - 1) : 0;
  const bool clear = timed && growing_s > least_growing * timed->usual_s;
  progress_.enter(metrics::Phase::ranks);
  std::vector<double> slowest{growing_s, median_of(waits_s_), clear ? 0. : 1.};
  session_.maximum(slowest);
  if (slowest[2] > 0) return std::nullopt;
  return batches * slowest[0] + slowest[1];
}

}  // namespace ringtrain::train
