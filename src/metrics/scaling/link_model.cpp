#include "ringtrain/metrics/scaling/link_model.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace ringtrain::metrics {

namespace {

constexpr int most_times = 1024;

// The smallest whole number above `now` that reaches the target. More never makes it worse.
std::optional<int> smallest(int now, double target, const std::function<double(int)>& efficiency) {
  int low = now, high = now;
  do {
    low = high;
    if (high > std::numeric_limits<int>::max() / 2 || high / now >= most_times) return std::nullopt;
    high *= 2;
  } while (efficiency(high) < target);
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (efficiency(middle) < target ? low : high) = middle;
  }
  return high;
}

// When the last sum is over that starts at these times at the earliest, from the first one's on.
double end_of_sums(const std::vector<Bucket>& buckets, const std::vector<double>& starts,
                   const LinkModel& link) {
  const auto at_once = static_cast<std::size_t>(link.at_once);
  double carried = -std::numeric_limits<double>::infinity();
  std::vector<double> ends;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const double start = b < at_once ? starts[b] : std::max(starts[b], ends[b - at_once]);
    const double alone_s = link.seconds(buckets[b].bytes);
    const double busy_s = std::min(alone_s, buckets[b].bytes * link.busy_s_per_byte);
    carried = std::max(start, carried) + busy_s;
    ends.push_back(carried + alone_s - busy_s);
  }
  return ends.empty() ? 0 : ends.back();
}

StepParts scaled(StepParts step, double images, double leads, double bytes) {
  step.images_s *= images;
  for (Bucket& bucket : step.buckets) {
    bucket.lead_s *= leads;
    bucket.bytes *= bytes;
  }
  return step;
}

// Two factors travel in two sums, and one bucket after the other.
LinkModel of_compressed(LinkModel link) {
  link.latency_s *= 2;
  link.at_once = 1;
  return link;
}

}  // namespace

LinkModel fit_link(std::span<const TimedSum> sums) {
  // seconds = latency + bytes * slope, each equation divided by its seconds.
  double ll = 0, ls = 0, ss = 0, l = 0, s = 0;
  for (const TimedSum& sum : sums) {
    if (sum.seconds <= 0) continue;
    const double one = 1 / sum.seconds, bytes = sum.bytes / sum.seconds;
    ll += one * one;
    ls += one * bytes;
    ss += bytes * bytes;
    l += one;
    s += bytes;
  }
  if (ll == 0) return {};
  const double determinant = ll * ss - ls * ls;
  const LinkModel through_zero{0, ss > 0 ? s / ss : 0}, constant{l / ll, 0};
  if (determinant <= 1e-9 * ll * ss) return ss > 0 ? through_zero : constant;  // of one size
  const LinkModel best{(l * ss - s * ls) / determinant, (ll * s - ls * l) / determinant};
  if (best.latency_s < 0) return through_zero;
  return best.s_per_byte < 0 ? constant : best;
}

double bus_bandwidth(double bytes, double seconds, int ranks) {
  return seconds > 0 ? bytes / seconds * 2 * (ranks - 1) / ranks : 0;
}

StepParts StepParts::with_images(double times) const {
  const double computes_s = images_s + batch_s;
  return scaled(*this, times, computes_s > 0 ? (times * images_s + batch_s) / computes_s : 1, 1);
}

StepParts StepParts::with_batches(double times) const {
  StepParts step = scaled(*this, times, 1, 1);
  step.batch_s *= times;
  return step;
}

StepParts StepParts::with_growing(double seconds) const {
  StepParts step = *this;
  step.images_s = std::clamp(seconds, 0.0, images_s);
  step.batch_s += images_s - step.images_s;
  return step;
}

StepParts StepParts::with_bytes(double times) const { return scaled(*this, 1, 1, times); }

Forecast forecast(const StepParts& step, const LinkModel& link) {
  Forecast f;
  const std::vector<double> together(step.buckets.size());  // at the end of backward
  std::vector<double> starts = together;
  for (std::size_t b = 0; step.overlaps && b < starts.size(); ++b)
    starts[b] = -step.buckets[b].lead_s;
  f.sums_s = end_of_sums(step.buckets, together, link);
  f.exposed_s = std::max(0.0, end_of_sums(step.buckets, starts, link));
  f.compute_s = step.images_s + step.batch_s + step.update_s;
  return f;
}

ScalingForecast judge(const LinkSituation& now) {
  ScalingForecast verdict{.ranks = now.ranks,
                          .buckets = static_cast<int>(now.step.buckets.size()),
                          .link = now.link,
                          .step = forecast(now.step, now.link),
                          .target = now.target};
  for (const Bucket& bucket : now.step.buckets) verdict.bytes += bucket.bytes;
  if (verdict.well()) return verdict;
  const auto efficiency = [&](const StepParts& step) {
    return forecast(step, now.link).efficiency();
  };
  verdict.batch = smallest(now.batch, now.target, [&](int batch) {
    return efficiency(now.step.with_images(double(batch) / now.batch));
  });
  verdict.accumulate = smallest(now.accumulate, now.target, [&](int batches) {
    return efficiency(now.step.with_batches(double(batches) / now.accumulate));
  });
  if (verdict.batch) {
    const double times = double(*verdict.batch) / now.batch;
    const StepParts step = now.step.with_images(times).with_bytes(now.may_narrow ? 0.5 : 1);
    LargerBatch larger{*verdict.batch, now.may_narrow, forecast(step, now.link)};
    larger.speed_up = times * verdict.step.step_s() / larger.step.step_s();
    verdict.larger = larger;
  }
  if (now.may_narrow) verdict.narrow = efficiency(now.step.with_bytes(0.5));
  if (now.compressed)
    verdict.compressed =
        forecast(now.step.with_bytes(*now.compressed), of_compressed(now.link)).efficiency();
  return verdict;
}

namespace {

std::string table(const ScalingForecast& v) {
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

std::string way_out(const ScalingForecast& v) {
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

std::vector<std::string> verdict_lines(const ScalingForecast& v, bool details,
                                       const std::string& command) {
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

}  // namespace ringtrain::metrics
