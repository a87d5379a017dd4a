#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "metrics/sinks/html_text.hpp"
#include "metrics/sinks/run_history.hpp"
#include "report_assets.hpp"
#include "ringtrain/metrics/log_text.hpp"

namespace ringtrain::metrics {
namespace {

using Json = nlohmann::ordered_json;

// As many digits as a plot can show.
double rounded(double value) {
  return std::isfinite(value) ? std::strtod(fmt::format("{:.5g}", value).c_str(), nullptr) : value;
}

// What the page's script draws; a page that adds this one as another run reads it, too.
std::string data_of(const RunHistory& run) {
  constexpr std::array<int, ledger_phases.size()> colours = {1, 5, 0, 4, 3, 2, 6, 7};
  Json data = {{"phases", Json::array()},
               {"steps", Json::array()},
               {"evaluations", Json::array()},
               {"events", Json::array()}};
  for (const Phase phase : ledger_phases)
    data["phases"].push_back({phase_names(phase).words, colours.at(ledger_place(phase))});
  for (const auto& [seconds, r] : run.steps) {
    Json phases = Json::array(), work;
    for (const Phase phase : ledger_phases) phases.push_back(rounded(1e3 * r.phases[phase]));
    if (const auto& ranks = r.ranks)
      for (const double s : {ranks->own_work.min, ranks->own_work.median, ranks->own_work.max})
        work.push_back(rounded(1e3 * s));
    data["steps"].push_back({rounded(seconds), r.step, rounded(r.loss), rounded(r.learning_rate),
                             rounded(r.examples_per_second), phases, work});
  }
  for (const auto& [seconds, r] : run.evaluations)
    data["evaluations"].push_back(
        {rounded(seconds), r.step, rounded(r.loss), rounded(100 * r.top1), rounded(100 * r.top5)});
  for (const auto& [seconds, r] : run.events)
    data["events"].push_back({rounded(seconds), r.what + ": " + r.text});
  std::string text = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (std::size_t at = 0; (at = text.find('<', at)) != text.npos;)
    text.replace(at, 1, "\\u003c");  // it must not end the element
  return "<script type=\"application/json\" class=\"run\">" + text + "</script>\n";
}

std::string row(std::initializer_list<std::string> cells, const char* element = "td") {
  std::string text;
  for (const std::string& cell : cells)
    text += fmt::format("<{0} class=\"n\">{1}</{0}>", element, cell);
  return "<tr>" + text + "</tr>";
}

// For readers without scripts: what the plots show, of some steps that lie evenly apart.
std::string figures(const RunHistory& run) {
  constexpr std::size_t most = 40;
  const auto number = [](double value) { return fmt::format("{:.4g}", value); };
  std::string steps =
      row({"after", "step", "loss", "learning rate", "images/s", "ms a step"}, "th");
  const std::size_t stride = run.steps.size() / most + 1;
  for (std::size_t i = (run.steps.size() + stride - 1) % stride; i < run.steps.size();
       i += stride) {
    const auto& [seconds, r] = run.steps[i];
    steps += row({duration_words(seconds), std::to_string(r.step), number(r.loss),
                  number(r.learning_rate), number(r.examples_per_second),
                  number(1e3 * r.seconds_per_batch)});
  }
  std::string evaluations = row({"after", "step", "loss", "top-1, %", "top-5, %"}, "th");
  for (const auto& [seconds, r] : run.evaluations)
    evaluations += row({duration_words(seconds), std::to_string(r.step), number(r.loss),
                        number(100 * r.top1), number(100 * r.top5)});
  return "<noscript><h2>Steps</h2><table>" + steps + "</table><h2>Evaluations</h2><table>" +
         evaluations + "</table></noscript>\n";
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
    for (const std::string& line : verdict_lines(*run.links, false))
      text += "<p>" + escaped(line) + "</p>";
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
  const auto options =
      Json::parse(run.start.configuration.empty() ? "{}" : run.start.configuration, nullptr, false);
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
  constexpr const char* choices =
      "<form id=\"choices\" hidden><label>along<select id=\"axis\"><option>time<option>step"
      "</select></label><label>other reports to compare with<input id=\"add\" type=\"file\" "
      "accept=\".html\" multiple></label><span id=\"refused\"></span>"
      "<span>drag to zoom, click twice to see all</span></form>";
  // What an evaluation alone has no lines for is there, but not seen: the script looks for it.
  const bool trains = !run.steps.empty() || !run.classes;
  const std::string plots_of_speed =
      trains ? std::string(choices) + "<h2>Speed</h2><div id=\"speed\"></div>"
             : "<div hidden>" + std::string(choices) + "<div id=\"speed\"></div>";
  const std::string plots_of_learning =
      trains ? "<h2>Learning</h2><div id=\"learning\"></div>" : "<div id=\"learning\"></div></div>";
  const std::set<std::string> hosts(run.start.hosts.begin(), run.start.hosts.end());
  return fmt::format(
             "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
             "content=\"width=device-width\"><title>ringtrain: {0}</title><style>{1}</style>\n"
             "<h1>{0}</h1><p class=\"soft\">{2} on {3}; {4} {5}</p>\n",
             escaped(model_of(run)), report_style, ranks_text(run.start.ranks),
             escaped(fmt::format("{}", fmt::join(hosts, ", "))), run.end ? "ended" : "as of",
             escaped(written)) +
         tiles(run) + plots_of_speed + ranks(run) + scaling(run) + links(run) + plots_of_learning +
         figures(run) + class_page(run) + checkpoints(run) + events(run) + configuration(run) +
         data_of(run) + fmt::format("<script>{}</script></html>\n", report_script);
}

}  // namespace ringtrain::metrics
