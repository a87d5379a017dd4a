#include <fmt/ranges.h>

#include "ringtrain/metrics/scaling/link_model.hpp"

namespace ringtrain {
namespace {

std::string table(const LinkVerdict& v) {
  const auto row = [](const char* what, double value, const char* unit) {
    return fmt::format("\n  {:<34} {:10.2f} {}", what, value, unit);
  };
  const double all_s = v.step.sums_s;
  return "predicted step" + row("computing, slowest rank", 1e3 * v.step.compute_s, "ms") +
         row("sums, if nothing hid them", 1e3 * all_s, "ms") +
         row("sums that computing cannot hide", 1e3 * v.step.exposed_s, "ms") +
         row("step", 1e3 * v.step.step_s(), "ms") +
         row("gradients", 1e-6 * v.bytes, fmt::format("MB in {} sums", v.buckets).c_str()) +
         row("fixed time of a sum", 1e3 * v.link.latency_s, "ms") +
         row("bus bandwidth", 1e-6 * bus_bandwidth(v.bytes, all_s, v.ranks), "MB/s") +
         row("efficiency", 100 * v.step.efficiency(), "%");
}

std::string way_out(const LinkVerdict& v) {
  constexpr const char* half = "--gradient-dtype bf16";
  std::vector<std::string> ways;
  if (v.narrow && *v.narrow >= v.target) ways.emplace_back(half);
  if (v.compressed && *v.compressed >= v.target)
    ways.emplace_back("--compress powersgd:4, which learns a little otherwise");
  if (v.accumulate) ways.push_back(fmt::format("--accumulate {}", *v.accumulate));
  if (v.batch) ways.push_back(fmt::format("--batch {} where that fits into memory", *v.batch));
  const std::string goal = fmt::format("links: for {:.0f} % efficiency: ", 100 * v.target);
  if (ways.empty())
    return goal + "no batch size or accumulation suffices; fewer ranks or a faster network would";
  // Half the bytes are also half the work for the hosts' cores, of which the model knows nothing.
  const bool helps = v.narrow && *v.narrow < v.target && (v.accumulate || v.batch);
  return goal + fmt::format("{}", fmt::join(ways, ", or ")) +
         (helps ? fmt::format("; beside --accumulate or --batch, {} halves what travels", half)
                : "");
}

}  // namespace

std::vector<std::string> told(const LinkVerdict& v, bool details, const std::string& command) {
  std::vector<std::string> lines{fmt::format(
      "links: {:.1f} MB of gradients a step take {:.1f} ms ({:.0f} MB/s of bus bandwidth), {:.1f} "
      "ms "
      "of them exposed: {:.1f} ms a step expected, efficiency {:.0f} %",
      1e-6 * v.bytes, 1e3 * v.step.sums_s, 1e-6 * bus_bandwidth(v.bytes, v.step.sums_s, v.ranks),
      1e3 * v.step.exposed_s, 1e3 * v.step.step_s(), 100 * v.step.efficiency())};
  if (details) lines.push_back(table(v));
  if (v.shares)
    lines.push_back(
        fmt::format("links: some ranks compute slower than others; {:.1f} ms a step are expected "
                    "of --shares {}",
                    1e3 * v.shares->step.step_s(), fmt::join(v.shares->shares, ":")));
  if (v.well()) return lines;
  lines.push_back(way_out(v));
  if (v.larger && !command.empty())
    lines.push_back(fmt::format(
        "links: the larger batch is another training; {:.1f} ms a step and {:.2f} times as many "
        "images a second are expected of\n  {}",
        1e3 * v.larger->step.step_s(), v.larger->speed_up, command));
  return lines;
}

}  // namespace ringtrain
