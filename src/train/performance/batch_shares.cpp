#include "train/performance/batch_shares.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/statistics.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/config/option_values.hpp"
#include "train/checkpoint/resume.hpp"

namespace ringtrain::train {
namespace {

using nlohmann::json;

constexpr int halvings = 60;
constexpr int warm_up = 2, least_steps = 3, most_steps = 200;
constexpr double trial_s = 2;

int sum_of(std::span<const int> counts) { return std::accumulate(counts.begin(), counts.end(), 0); }

// What each rank computes within `limit_s`, between 1 and `samples`.
std::vector<int> within(double limit_s, int samples, std::span<const RankSpeed> speeds) {
  std::vector<int> counts;
  for (const RankSpeed& speed : speeds) {
    const double count = std::floor((limit_s - speed.fixed_s) / speed.sample_s);
    counts.push_back(static_cast<int>(std::clamp(count, 1.0, double(samples))));
  }
  return counts;
}

bool fits(const std::vector<int>& counts, int samples) {
  return std::accumulate(counts.begin(), counts.end(), 0.0) <= samples;
}

// Trains this rank's share alone, as baseline does: what it changes goes with the engine.
RankSpeed measure_speed(const RunPlan& plan, TrainingEngine& engine) {
  const std::unique_ptr<Stepper> trainer = engine.make_solo_stepper();
  io::Loader loader(*plan.training, plan.lone_loader());
  std::vector<double> images_s, fixed_s;
  const auto take = [&](const std::optional<StepReport>& report) {
    if (!report || report->position.step <= warm_up) return;
    const metrics::PhaseSeconds& s = report->seconds;
    images_s.push_back(s[metrics::Phase::data_wait] + s[metrics::Phase::copy] +
                       s[metrics::Phase::forward] + s[metrics::Phase::backward]);
    fixed_s.push_back(s[metrics::Phase::update]);
  };
  Stopwatch watch;
  for (int step = 0; step < most_steps; ++step) {
    if (step >= warm_up + least_steps && watch.elapsed() >= trial_s) break;
    take(trainer->step(loader, {}));
  }
  while (const auto report = trainer->finish_step()) take(report);
  const double images = spread_of(std::move(images_s)).median;
  return {.sample_s = images / plan.share.count, .fixed_s = spread_of(std::move(fixed_s)).median};
}

std::vector<RankSpeed> measure_speeds(const RunPlan& plan, TrainingEngine& engine,
                                      const allreduce::MpiSession& session) {
  session.barrier_asleep();  // all at once, as in steps
  return gather_speeds(measure_speed(plan, engine), session);
}

std::string of_samples(const RunPlan& plan) {
  return fmt::format("shares: {} of {} images", shares_text(plan.shares), plan.micro_batch);
}

// The weights of a list of one a rank or one a host, by rank; none: it is neither.
std::vector<double> by_rank(const std::vector<double>& list, const allreduce::MpiSession& session) {
  if (list.size() == static_cast<std::size_t>(session.size())) return list;
  if (list.size() != static_cast<std::size_t>(session.hosts())) return {};
  std::vector<double> weights;
  for (const int host : session.host_of())
    weights.push_back(list[static_cast<std::size_t>(host)] /
                      double(std::ranges::count(session.host_of(), host)));
  return weights;
}

// The shares of the checkpoint that rank 0 would go on from.
std::vector<int> saved_shares(const RunPlan& plan, const allreduce::MpiSession& session,
                              monitor::Progress& progress) {
  progress.enter(metrics::Phase::resume);
  std::string plans;
  if (session.rank() == 0)
    if (const auto saved =
            saved_metadata(plan.options.resume, plan.options.checkpoint_dir, &progress))
      plans = saved->plans;
  return shares_in(session.broadcast(plans));
}

// Of the plan's batch, as those of a checkpoint are of its own.
std::vector<int> in_proportion(const std::vector<int>& saved, const RunPlan& plan) {
  if (sum_of(saved) == plan.micro_batch) return saved;
  return divide(plan.micro_batch, std::vector<double>(saved.begin(), saved.end()));
}

bool are_open(const RunPlan& plan) {
  const std::optional<config::Shares>& request = plan.options.shares;
  return (!request || request->mode == config::Shares::Mode::automatic) && plan.ranks > 1 &&
         !plan.options.eval_only;
}

void keep(const std::vector<int>& saved, RunPlan& plan, const allreduce::MpiSession& session,
          const Tell& tell) {
  plan.take_shares(in_proportion(saved, plan), session.rank());
  plan.keeps_shares = true;
  tell(of_samples(plan) + (sum_of(saved) == plan.micro_batch
                               ? ", as in the checkpoint"
                               : ", in proportion to those in the checkpoint, of another batch"));
}

void choose(std::span<const RankSpeed> speeds, RunPlan& plan, const allreduce::MpiSession& session,
            const Tell& tell) {
  const auto [least, most] = std::ranges::minmax(speeds, {}, &RankSpeed::sample_s);
  const std::string measured = fmt::format("an image takes {:.2f} to {:.2f} ms, by rank",
                                           1e3 * least.sample_s, 1e3 * most.sample_s);
  std::vector<int> fastest = fastest_division(plan.micro_batch, speeds);
  const double equal_s = slowest_s(plan.shares, speeds), best_s = slowest_s(fastest, speeds);
  if (best_s > worth_other_shares * equal_s)
    return tell(
        fmt::format("{}, which stay equal: {}, and no division makes a step a tenth shorter",
                    of_samples(plan), measured));
  plan.take_shares(std::move(fastest), session.rank());
  tell(
      fmt::format("{}: {}; the slowest rank then computes for {:.1f} ms a step, with equal shares "
                  "for {:.1f}",
                  of_samples(plan), measured, 1e3 * best_s, 1e3 * equal_s));
}

}  // namespace

std::vector<int> divide(int samples, std::span<const double> weights) {
  const auto ranks = static_cast<int>(weights.size());
  expects(ranks > 0 && samples >= ranks, "divide: at least a sample for each rank");
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int> counts;
  std::vector<std::pair<double, int>> excess;  // over the exact share
  for (int r = 0; r < ranks; ++r) {
    const double exact = samples * (weights[r] / all);
    counts.push_back(std::max(1, static_cast<int>(exact)));
    excess.emplace_back(counts.back() - exact, r);
  }
  std::ranges::sort(excess);
  int left = samples - sum_of(counts);
  for (int i = 0; left > 0; ++i, --left) ++counts[excess[i % ranks].second];
  for (; left < 0; ++left) --*std::ranges::max_element(counts);
  return counts;
}

std::vector<int> fastest_division(int samples, std::span<const RankSpeed> speeds) {
  expects(!speeds.empty() && samples >= static_cast<int>(speeds.size()),
          "fastest_division: at least a sample for each rank");
  double low = 0, high = 0;
  for (const RankSpeed& speed : speeds) {
    expects(speed.sample_s > 0, "fastest_division: a sample takes time");
    high = std::max(high, speed.seconds(samples));
  }
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    (fits(within(middle, samples, speeds), samples) ? low : high) = middle;
  }
  std::vector<int> counts = within(low, samples, speeds);
  for (int left = samples - sum_of(counts); left > 0; --left) {
    std::size_t soonest = 0;
    for (std::size_t r = 1; r < speeds.size(); ++r)
      if (speeds[r].seconds(counts[r] + 1) < speeds[soonest].seconds(counts[soonest] + 1))
        soonest = r;
    ++counts[soonest];
  }
  return counts;
}

double slowest_s(std::span<const int> shares, std::span<const RankSpeed> speeds) {
  double slowest = 0;
  for (std::size_t r = 0; r < speeds.size(); ++r)
    slowest = std::max(slowest, speeds[r].seconds(shares[r]));
  return slowest;
}

std::vector<RankSpeed> gather_speeds(const RankSpeed& own, const allreduce::MpiSession& session) {
  const auto ranks = static_cast<std::size_t>(session.size());
  std::vector<double> values(2 * ranks);
  values[2 * static_cast<std::size_t>(session.rank())] = own.sample_s;
  values[2 * static_cast<std::size_t>(session.rank()) + 1] = own.fixed_s;
  session.sum(values);
  std::vector<RankSpeed> speeds;
  for (std::size_t r = 0; r < ranks; ++r) speeds.push_back({values[2 * r], values[2 * r + 1]});
  return speeds;
}

std::string shares_text(std::span<const int> shares) {
  return fmt::format("{}", fmt::join(shares, ":"));
}

std::string with_shares(const std::string& plans, const RunPlan& plan) {
  if (plan.shares_are_equal() && !plan.keeps_shares) return plans;
  json object = json::parse(plans);
  object["shares"] = plan.shares;
  return object.dump();
}

bool same_plans(const std::string& saved, const std::string& now, const RunPlan& plan) {
  const auto unnamed = [&](const std::string& plans) {
    json object = json::parse(plans, nullptr, false);
    if (plan.shares_are_equal() && shares_in(plans) == plan.shares) object.erase("shares");
    return object;
  };
  return saved == now || unnamed(saved) == unnamed(now);
}

// A checkpoint's texts may be anybody's.
std::vector<int> shares_in(std::string_view plans) {
  const json object = json::parse(plans, nullptr, false);
  if (!object.is_object() || !object.contains("shares") || !object["shares"].is_array()) return {};
  std::vector<int> shares;
  std::int64_t all = 0;
  for (const json& share : object["shares"]) {
    if (!share.is_number_unsigned() || share < 1 || share > most_samples) return {};
    shares.push_back(share);
    all += shares.back();
  }
  return all <= most_samples ? shares : std::vector<int>();
}

void take_given_shares(RunPlan& plan, const allreduce::MpiSession& session, const Tell& tell) {
  if (!plan.options.shares || plan.options.shares->mode != config::Shares::Mode::given) return;
  const std::string option = "--shares " + config::shares_value().write(*plan.options.shares);
  const std::vector<double> weights = by_rank(plan.options.shares->weights, session);
  if (!weights.empty()) {
    plan.take_shares(divide(plan.micro_batch, weights), session.rank());
    return tell(fmt::format("{}, as {} says", of_samples(plan), option));
  }
  const std::string why = fmt::format("has {}, but this job has {} on {}",
                                      plural(plan.options.shares->weights.size(), "number"),
                                      plural(static_cast<std::size_t>(session.size()), "rank"),
                                      plural(static_cast<std::size_t>(session.hosts()), "host"));
  if (!plan.options.as_ranks)
    throw Error(Exit::usage, option, why + "; give one a rank, or one a host");
  tell(fmt::format("{} {}: they get equal shares", option, why));
}

bool settles_otherwise(std::string_view plans, const RunPlan& plan) {
  const std::vector<int> saved = shares_in(plans);
  return are_open(plan) && saved.size() == plan.shares.size() &&
         in_proportion(saved, plan) != plan.shares;
}

void settle_shares(RunPlan& plan,
                   const std::function<std::unique_ptr<TrainingEngine>()>& make_engine,
                   const allreduce::MpiSession& session, const Tell& tell,
                   monitor::Progress& progress) {
  if (!are_open(plan)) return;
  const bool tries = plan.options.shares && make_engine;
  if (const std::vector<int> saved = saved_shares(plan, session, progress); !saved.empty()) {
    if (saved.size() == static_cast<std::size_t>(plan.ranks))
      return keep(saved, plan, session, tell);
    tell(fmt::format("shares: {} in the checkpoint are of {} ranks, this job has {}: {}",
                     shares_text(saved), saved.size(), plan.ranks,
                     tries ? "a trial follows" : "they get equal shares"));
  }
  if (!tries) return;
  tell(fmt::format("shares: all ranks train alone at once, {} steps or {:.0f} s, to find theirs",
                   warm_up + least_steps, trial_s));
  const std::unique_ptr<TrainingEngine> engine = make_engine();
  plan.keeps_shares = true;
  choose(measure_speeds(plan, *engine, session), plan, session, tell);
  engine->close();
}

}  // namespace ringtrain::train
