#include "train/performance/gradient_format.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/statistics.hpp"
#include "ringtrain/config/option_values.hpp"
#include "train/checkpoint/resume.hpp"

namespace ringtrain::train {
namespace {

constexpr double worth_a_format = 0.95;  // of the step's time
constexpr int untimed_steps = 3, least_timed_steps = 3, most_timed_steps = 50;
constexpr double timed_s = 1;
constexpr int most_format_rounds = 3;
constexpr double enough_rounds_s = 15;

// The later, the more they change the gradients.
const std::array formats = {
    GradientFormat{}, GradientFormat{.element = Element::bf16},
    GradientFormat{.compression = {.kind = allreduce::Compression::Kind::powersgd, .rank = 4}}};

void take(const GradientFormat& format, RunPlan& plan) {
  plan.set_gradient_format(format.element, format.compression);
}

std::vector<double> time_steps(Stepper& trainer, io::Loader& loader,
                               const allreduce::MpiSession& session) {
  for (int step = 0; step < untimed_steps; ++step) trainer.step(loader, {});
  while (trainer.finish_step()) {
  }
  std::vector<double> seconds;
  Stopwatch watch;
  const auto time = [&](double steps) {
    while (double(seconds.size()) < steps) {
      trainer.step(loader, {});
      seconds.push_back(watch.lap());
    }
  };
  time(least_timed_steps);
  double steps =
      std::min(timed_s / spread_of(std::vector(seconds)).median, double(most_timed_steps));
  session.broadcast(std::as_writable_bytes(std::span(&steps, 1)), 0);
  watch.lap();
  time(steps);
  while (trainer.finish_step()) {
  }
  return seconds;
}

// By rank 0's clock, the same on all ranks.
std::vector<double> time_steps(const RunPlan& plan, TrainingEngine& engine,
                               const allreduce::MpiSession& session) {
  const std::unique_ptr<Stepper> trainer = engine.make_stepper({});
  io::Loader loader(*plan.training, plan.loader(io::Split::training));
  try {
    return time_steps(*trainer, loader, session);
  } catch (const std::exception& failure) {
    session.abort(failure);  // while the engine lives: MPI may write to what a sum has under way
  }
}

// Rounds in which all formats take turns, so that what else the machines do meets all alike.
std::vector<TriedFormat> try_formats(
    RunPlan& plan, const std::function<std::unique_ptr<TrainingEngine>()>& make_engine,
    const allreduce::MpiSession& session) {
  std::array<std::vector<double>, formats.size()> seconds;
  const Stopwatch watch;
  for (int round = 0; round < most_format_rounds; ++round) {
    for (std::size_t f = 0; f < formats.size(); ++f) {
      take(formats[f], plan);
      const std::unique_ptr<TrainingEngine> engine = make_engine();
      for (const double step_s : time_steps(plan, *engine, session)) seconds[f].push_back(step_s);
      engine->close();
    }
    if (!session.broadcast(watch.elapsed() < enough_rounds_s ? "" : "enough").empty()) break;
  }
  std::vector<TriedFormat> tried;
  for (std::size_t f = 0; f < formats.size(); ++f) {
    double step_s = spread_of(std::move(seconds[f])).median;
    session.broadcast(std::as_writable_bytes(std::span(&step_s, 1)), 0);
    tried.push_back({formats[f], step_s});
  }
  return tried;
}

// Of the checkpoint that rank 0 would go on from; none: there is no checkpoint, or it does not say.
std::optional<GradientFormat> saved_format(const RunPlan& plan,
                                           const allreduce::MpiSession& session,
                                           monitor::Progress& progress) {
  progress.enter(metrics::Phase::resume);
  std::string config;
  if (session.rank() == 0)
    if (const auto saved =
            saved_metadata(plan.options.resume, plan.options.checkpoint_dir, &progress))
      config = saved->config;
  return format_in(session.broadcast(config));
}

std::string trial_line(std::span<const TriedFormat> tried, std::size_t best) {
  std::vector<std::string> ways;
  for (const TriedFormat& way : tried)
    ways.push_back(fmt::format("{} {:.1f}", text_of(way.format), 1e3 * way.step_s));
  return fmt::format("links: gradients travel as {}, as --tuning all tried; ms a step: {}",
                     text_of(tried[best].format), fmt::join(ways, ", "));
}

}  // namespace

std::string text_of(const GradientFormat& format) {
  if (format.compression)
    return "--compress " + config::compression_value().write(format.compression);
  return "--gradient-dtype " + config::enumerator<Element>().write(format.element);
}

// A checkpoint's texts may be anybody's.
std::optional<GradientFormat> format_in(std::string_view config) {
  const auto object = nlohmann::json::parse(config, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  const auto text = [&](const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
  };
  try {
    return GradientFormat{config::enumerator<Element>().read(text("gradient-dtype")),
                          config::compression_value().read(text("compress"))};
  } catch (const BadValue&) {
    return std::nullopt;
  }
}

std::size_t best_format(std::span<const TriedFormat> tried) {
  std::size_t best = 0;
  for (std::size_t f = 1; f < tried.size(); ++f)
    if (tried[f].step_s < worth_a_format * tried[best].step_s) best = f;
  return best;
}

void settle_gradient_format(RunPlan& plan,
                            const std::function<std::unique_ptr<TrainingEngine>()>& make_engine,
                            const allreduce::MpiSession& session, const Tell& tell,
                            monitor::Progress& progress) {
  if (plan.options.tune.mode != config::Tune::Mode::all || plan.options.eval_only) return;
  if (session.hosts() == 1)
    return tell("--tuning all tries nothing: all ranks are on one host, where links are fast");
  if (const auto saved = saved_format(plan, session, progress)) {
    take(*saved, plan);
    return tell(
        fmt::format("links: gradients travel as {}, as in the checkpoint", text_of(*saved)));
  }
  if (!make_engine) return;
  tell(fmt::format(
      "links: --tuning all trains copies in {} gradient formats in turn, {} steps each or "
      "more, before the first step",
      formats.size(), untimed_steps + least_timed_steps));
  const std::vector<TriedFormat> tried = try_formats(plan, make_engine, session);
  const std::size_t best = best_format(tried);
  take(tried[best].format, plan);
  tell(trial_line(tried, best));
}

}  // namespace ringtrain::train
