#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "metrics/sinks/html_style.hpp"
#include "metrics/sinks/run_history.hpp"
#include "metrics/sinks/svg_plot.hpp"
#include "ringtrain/metrics/log_text.hpp"

namespace ringtrain::metrics {
namespace {

constexpr std::array<int, ledger_phases.size()> phase_colours = {1, 5, 0, 4, 3, 2, 6, 7};

// With the time behind zero as x, in minutes when the run was long.
struct Clock {
  double unit_s = 1;
  std::string name = "s";
};

Clock clock_of(const RunHistory& run) {
  const double seconds = run.steps.empty() ? 0 : run.steps.back().seconds;
  if (seconds > 3 * 3600) return {3600, "h"};
  if (seconds > 300) return {60, "min"};
  return {};
}

template <class Value>
Series of_steps(const RunHistory& run, const Clock& clock, std::string name, int colour,
                const Value& value) {
  Series series{std::move(name), colour, {}};
  for (const auto& [seconds, step] : run.steps)
    series.points.emplace_back(seconds / clock.unit_s, value(step));
  return series;
}

std::vector<Mark> marks_of(const RunHistory& run, const Clock& clock) {
  std::vector<Mark> marks;
  for (const auto& [seconds, r] : run.evaluations)
    marks.push_back(
        {seconds / clock.unit_s, "evaluation",
         fmt::format("evaluation after step {}: top-1 {:.2f} %", r.step, 100 * r.top1)});
  for (const auto& [seconds, r] : run.events)
    marks.push_back({seconds / clock.unit_s, "event", r.what + ": " + r.text});
  return marks;
}

std::string tile(const std::string& what, const std::string& value, const std::string& more) {
  return fmt::format(
      "<div class=\"tile\"><span class=\"soft\">{}</span><b>{}</b><small>{}</small></div>",
      escaped(what), escaped(value), escaped(more));
}

std::string tiles(const RunHistory& run) {
  std::string text;
  if (run.end)
    text +=
        tile("trained", fmt::format("{} steps", run.end->steps),
             fmt::format("{} images in {}", run.end->examples, duration_words(run.end->seconds)));
  else if (!run.steps.empty())
    text += tile("training", fmt::format("step {}", run.steps.back().record.step),
                 fmt::format("epoch {:.2f}", run.steps.back().record.epoch));
  if (run.end)
    text += tile("throughput", fmt::format("{:.1f}", run.end->examples_per_second),
                 "images/s, median, " + ranks_text(run.start.ranks));
  else if (!run.steps.empty())
    text += tile("throughput", fmt::format("{:.1f}", run.steps.back().record.examples_per_second),
                 "images/s lately, " + ranks_text(run.start.ranks));
  if (!run.evaluations.empty()) {
    const EvalRecord& last = run.evaluations.back().record;
    text += tile("accuracy", fmt::format("{:.2f} %", 100 * last.top1),
                 fmt::format("top-1 of {} images after step {}", last.examples, last.step));
  }
  if (run.baseline)
    text +=
        tile("efficiency", fmt::format("{:.1f} %", 100 * run.baseline->efficiency),
             fmt::format("speed-up {:.2f} of {}", run.baseline->speed_up.median, run.start.ranks));
  if (!run.checkpoints.empty()) {
    const CheckpointRecord& last = run.checkpoints.back().record;
    text += tile("checkpoints", fmt::format("{}", run.checkpoints.size()),
                 fmt::format("the last of step {}", last.step));
  }
  return "<div class=\"tiles\">" + text + "</div>\n";
}

std::string ledger(const RunHistory& run, const Clock& clock) {
  Plot plot{"Where a step's time went, on rank 0", clock.name, "ms a step", {}, {}, true, true};
  for (const Phase phase : ledger_phases) {
    const Series series = of_steps(run, clock, std::string(phase_names(phase).words),
                                   phase_colours.at(ledger_place(phase)),
                                   [phase](const StepRecord& r) { return 1e3 * r.phases[phase]; });
    if (std::ranges::any_of(series.points, [](const auto& p) { return p.second > 0; }))
      plot.series.push_back(series);
  }
  return svg(plot);
}

// Where ranks lie apart, all wait for the slowest.
std::string work_of_ranks(const RunHistory& run, const Clock& clock) {
  Series least{"least", 2, {}}, median{"median", 0, {}}, most{"most", 3, {}};
  for (const auto& [seconds, step] : run.steps) {
    if (!step.ranks) continue;
    const double at = seconds / clock.unit_s;
    least.points.emplace_back(at, 1e3 * step.ranks->own_work.min);
    median.points.emplace_back(at, 1e3 * step.ranks->own_work.median);
    most.points.emplace_back(at, 1e3 * step.ranks->own_work.max);
  }
  return svg({"A rank's own work, over the ranks",
              clock.name,
              "ms a step",
              {least, median, most},
              {},
              false,
              true});
}

std::string learning(const RunHistory& run) {
  Plot loss{"Loss", "step", "", {}, {}, false, false};
  Series training{"training", 0, {}}, evaluation{"evaluation", 1, {}}, top1{"top-1", 2, {}},
      top5{"top-5", 7, {}}, rate{"learning rate", 4, {}};
  for (const auto& [seconds, r] : run.steps) {
    training.points.emplace_back(r.step, r.loss);
    rate.points.emplace_back(r.step, r.learning_rate);
  }
  for (const auto& [seconds, r] : run.evaluations) {
    evaluation.points.emplace_back(r.step, r.loss);
    top1.points.emplace_back(r.step, 100 * r.top1);
    top5.points.emplace_back(r.step, 100 * r.top5);
  }
  loss.series = {training, evaluation};
  return svg(loss) + svg({"Accuracy", "step", "%", {top1, top5}}) +
         svg({"Learning rate", "step", "", {rate}, {}, false, true});
}

std::string ranks(const RunHistory& run) {
  if (!run.end || run.end->ranks.empty()) return "";
  std::string rows;
  for (const Phase phase : ledger_phases) {
    std::vector<double> shares;
    for (const PhaseSeconds& rank : run.end->ranks)
      shares.push_back(rank.total() > 0 ? 100 * rank[phase] / rank.total() : 0);
    const auto [least, most] = std::ranges::minmax_element(shares);
    if (*most == 0) continue;
    std::vector<double> sorted = shares;
    std::ranges::sort(sorted);
    rows += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{:.1f} %</td><td class=\"n\">{:.1f} %</td>"
        "<td class=\"n\">{:.1f} %</td><td class=\"n\">{}</td></tr>",
        phase_names(phase).words, *least, sorted[sorted.size() / 2], *most, most - shares.begin());
  }
  return "<h2>Time by rank</h2><table><tr><th>phase</th><th class=\"n\">least</th><th "
         "class=\"n\">median"
         "</th><th class=\"n\">most</th><th class=\"n\">on rank</th></tr>" +
         rows + "</table>\n";
}

std::string scaling(const RunHistory& run) {
  if (!run.baseline) return "";
  const ScalingResult& b = *run.baseline;
  return fmt::format(
      "<h2>Scaling</h2><table><tr><th></th><th class=\"n\">images/s</th><th "
      "class=\"n\">+-</th></tr>"
      "<tr><td>one rank</td><td class=\"n\">{:.1f}</td><td class=\"n\">{:.1f}</td></tr>"
      "<tr><td>{}</td><td class=\"n\">{:.1f}</td><td "
      "class=\"n\">{:.1f}</td></tr></table><p>{}</p>\n",
      b.alone.median, b.alone.deviation, ranks_text(run.start.ranks), b.together.median,
      b.together.deviation, escaped(b.verdict));
}

std::string links(const RunHistory& run) {
  std::string text;
  if (run.links)
    for (const std::string& line : told(*run.links, false)) text += "<p>" + escaped(line) + "</p>";
  if (run.end && run.end->sums)
    text += fmt::format(
        "<p>The sums of the whole run reached {:.0f} MB/s of bus bandwidth from the start of the "
        "first to the end of the last; {:.1f} % of the time was exposed communication{}.</p>",
        1e-6 * run.end->sums->bus_bandwidth, 100 * run.end->sums->exposed_share,
        run.end->efficiency ? fmt::format("; {:.1f} % of {} times one rank alone",
                                          100 * *run.end->efficiency, run.start.ranks)
                            : "");
  return text.empty() ? "" : "<h2>Links</h2>" + text + "\n";
}

std::string checkpoints(const RunHistory& run) {
  if (run.checkpoints.empty()) return "";
  constexpr std::ptrdiff_t most = 20;
  std::string rows;
  const auto count = std::ssize(run.checkpoints);
  for (auto i = std::max<std::ptrdiff_t>(0, count - most); i < count; ++i) {
    const CheckpointRecord& r = run.checkpoints[static_cast<std::size_t>(i)].record;
    rows += fmt::format(
        "<tr><td class=\"n\">{}</td><td class=\"n\">{:.1f}</td><td class=\"n\">{:.2f}</td>"
        "<td class=\"n\">{:.1f}</td><td>{}</td></tr>",
        r.step, 1e-6 * double(r.bytes), r.seconds, 1e3 * r.stall_seconds, escaped(r.file));
  }
  return fmt::format(
      "<h2>Checkpoints</h2><p class=\"soft\">{} durable; the last {} below.</p><table><tr>"
      "<th class=\"n\">step</th><th class=\"n\">MB</th><th class=\"n\">s until durable</th>"
      "<th class=\"n\">ms of training</th><th>file</th></tr>{}</table>\n",
      count, std::min(count, most), rows);
}

std::string events(const RunHistory& run) {
  if (run.events.empty()) return "";
  std::string rows;
  for (const auto& [seconds, r] : run.events)
    rows +=
        fmt::format("<tr><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
                    duration_words(seconds), escaped(r.what), r.rank, escaped(r.text));
  return "<h2>Events</h2><table><tr><th class=\"n\">after</th><th>what</th><th "
         "class=\"n\">rank</th><th></th></tr>" +
         rows + "</table>\n";
}

std::string configuration(const RunHistory& run) {
  std::string rows;
  const auto options = nlohmann::ordered_json::parse(
      run.start.configuration.empty() ? "{}" : run.start.configuration, nullptr, false);
  for (const auto& [name, value] : options.items())
    rows += fmt::format("<tr><td>{}</td><td><code>{}</code></td></tr>", escaped(name),
                        escaped(value.dump()));
  return fmt::format(
      "<details><summary>Configuration (build {})</summary><table>{}</table></details>\n",
      escaped(run.start.build), rows);
}

std::string model_of(const RunHistory& run) {
  const auto options = nlohmann::json::parse(run.start.configuration, nullptr, false);
  return options.is_object() && options.contains("model") && options["model"].is_string()
             ? options["model"].get<std::string>()
             : "training";
}

}  // namespace

std::string report_page(const RunHistory& run, const std::string& written) {
  const Clock clock = clock_of(run);
  const std::set<std::string> hosts(run.start.hosts.begin(), run.start.hosts.end());
  const std::string model = escaped(model_of(run));
  const Series rate = of_steps(run, clock, "images/s of all ranks", 0,
                               [](const StepRecord& r) { return r.examples_per_second; });
  const Plot throughput{"Throughput",         clock.name, "images/s", {rate},
                        marks_of(run, clock), false,      true};
  return fmt::format(
             "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
             "content=\"width=device-width\"><title>ringtrain: {0}</title><style>{1}</style>\n"
             "<h1>{0}</h1><p class=\"soft\">{2} on {3}; {4} {5}</p>\n",
             model, report_style, ranks_text(run.start.ranks),
             escaped(fmt::format("{}", fmt::join(hosts, ", "))), run.end ? "ended" : "as of",
             escaped(written)) +
         tiles(run) + "<h2>Speed</h2>" + svg(throughput) + ledger(run, clock) +
         work_of_ranks(run, clock) + ranks(run) + scaling(run) + links(run) + "<h2>Learning</h2>" +
         learning(run) + checkpoints(run) + events(run) + configuration(run) +
         fmt::format("<script>{}</script></html>\n", report_script);
}

}  // namespace ringtrain::metrics
