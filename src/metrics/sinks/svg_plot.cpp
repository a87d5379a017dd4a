#include "metrics/sinks/svg_plot.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace ringtrain::metrics {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr double plot_width = 900, plot_height = 240;
constexpr double margin_left = 64, margin_right = 12, margin_top = 10, margin_bottom = 34;
constexpr std::size_t most_points = 400;

/// Values to places on the drawing.
struct Scale {
  double least = 0, most = 1, from = 0, to = 1;
  double operator()(double value) const {
    return from + (value - least) / (most - least) * (to - from);
  }
};

Scale scale_of(double least, double most, double from, double to) {
  const bool apart = most - least > 1e-9 * std::max(std::abs(least), std::abs(most));
  const double around = apart ? 0 : std::max(0.5, std::abs(least) / 2);
  return {least - around, most + around, from, to};
}

std::string number(double value) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

// Each layer on the sum of those below.
std::vector<Points> stacked(const std::vector<Series>& series) {
  std::vector<Points> tops;
  for (const Series& layer : series) {
    tops.push_back(layer.points);
    if (tops.size() < 2) continue;
    const Points& below = tops[tops.size() - 2];
    for (std::size_t i = 0; i < below.size(); ++i) tops.back()[i].second += below[i].second;
  }
  return tops;
}

std::string path_of(const Points& points, const Scale& x, const Scale& y) {
  std::string path;
  for (const auto& [at, value] : points)
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "M" : "L", x(at), y(value));
  return path;
}

std::string layers(const Plot& plot, const std::vector<Points>& lines, const Scale& x,
                   const Scale& y) {
  std::string drawing;
  for (std::size_t i = lines.size(); i-- > 0;) {
    std::string path = path_of(lines[i], x, y);
    if (plot.stacked)
      path += fmt::format("L{:.1f},{:.1f}L{:.1f},{:.1f}Z", x(lines[i].back().first), y(0),
                          x(lines[i].front().first), y(0));
    drawing += fmt::format("<path class=\"{} c{}\" d=\"{}\"/>", plot.stacked ? "area" : "line",
                           plot.series[i].colour, path);
  }
  return drawing;
}

// So that single values are seen.
std::string dots(const Plot& plot, const std::vector<Points>& lines, const Scale& x,
                 const Scale& y) {
  constexpr std::size_t many = 40;
  std::string drawing;
  for (std::size_t i = 0; i < lines.size() && !plot.stacked; ++i)
    for (const auto& [at, value] : lines[i].size() > many ? Points() : lines[i])
      drawing += fmt::format("<circle class=\"dot c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>",
                             plot.series[i].colour, x(at), y(value));
  return drawing;
}

std::string axes(const Plot& plot, const Scale& x, const Scale& y) {
  std::string drawing;
  for (const double tick : axis_ticks(y.least, y.most, 5))
    drawing += fmt::format(
        "<path class=\"grid\" d=\"M{0:.0f},{1:.1f}H{2:.0f}\"/><text x=\"{3:.0f}\" y=\"{4:.1f}\" "
        "class=\"y\">{5}</text>",
        margin_left, y(tick), plot_width - margin_right, margin_left - 8, y(tick) + 4,
        number(tick));
  for (const double tick : axis_ticks(x.least, x.most, 8))
    drawing += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" class=\"x\">{}</text>", x(tick),
                           plot_height - margin_bottom + 18, number(tick));
  return drawing + fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" class=\"unit\">{}</text>",
                               plot_width - margin_right, plot_height - 2, escaped(plot.x_unit));
}

std::string marks_of(const Plot& plot, const Scale& x) {
  std::string drawing;
  for (const Mark& mark : plot.marks)
    drawing += fmt::format(
        "<g class=\"mark {0}\"><title>{1}</title><path d=\"M{2:.1f},{3:.0f}V{4:.0f}\"/>"
        "<circle cx=\"{2:.1f}\" cy=\"{3:.0f}\" r=\"4\"/></g>",
        escaped(mark.kind), escaped(mark.text), x(mark.x), margin_top, plot_height - margin_bottom);
  return drawing;
}

std::string legend(const Plot& plot) {
  std::string text;
  for (const Series& series : plot.series)
    text +=
        fmt::format("<span><i class=\"c{}\"></i>{}</span>", series.colour, escaped(series.name));
  return text;
}

// What the page's script shows of the place under the mouse.
std::string numbers_of(const Plot& plot, const std::vector<Series>& thin, const Scale& x) {
  nlohmann::json data = {{"least", x.least}, {"most", x.most}, {"unit", plot.x_unit}};
  for (const Series& series : thin)
    data["series"].push_back(
        {{"name", series.name}, {"colour", series.colour}, {"points", series.points}});
  return escaped(data.dump());
}

std::pair<double, double> bounds(const std::vector<Points>& lines,
                                 double std::pair<double, double>::*which) {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const Points& line : lines)
    for (const auto& point : line) {
      least = std::min(least, point.*which);
      most = std::max(most, point.*which);
    }
  return {least, most};
}

}  // namespace

std::vector<double> axis_ticks(double least, double most, int count) {
  const double rough = (most - least) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= rough) step = factor * power;
  std::vector<double> ticks;
  for (double tick = std::ceil(least / step - 1e-9); tick * step <= most + 1e-9 * step; ++tick)
    ticks.push_back(tick * step);
  return ticks;
}

Points thinned(const Points& points, std::size_t count) {
  const std::size_t together = (points.size() + count - 1) / count;
  if (together <= 1) return points;
  Points means;
  for (std::size_t begin = 0; begin < points.size(); begin += together) {
    const std::size_t end = std::min(begin + together, points.size());
    std::pair<double, double> sum;
    for (std::size_t i = begin; i < end; ++i)
      sum = {sum.first + points[i].first, sum.second + points[i].second};
    const auto n = static_cast<double>(end - begin);
    means.emplace_back(sum.first / n, sum.second / n);
  }
  return means;
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string svg(const Plot& plot) {
  std::vector<Series> thin = plot.series;
  for (Series& series : thin)
    std::erase_if(series.points, [](const auto& point) { return !std::isfinite(point.second); });
  std::erase_if(thin, [](const Series& series) { return series.points.empty(); });
  if (thin.empty()) return "";
  Plot drawn = plot;
  for (Series& series : thin) series.points = thinned(series.points, most_points);
  drawn.series = thin;
  std::vector<Points> lines;
  for (const Series& series : thin) lines.push_back(series.points);
  if (plot.stacked) lines = stacked(thin);
  const auto [first, last] = bounds(lines, &std::pair<double, double>::first);
  const auto [least, most] = bounds(lines, &std::pair<double, double>::second);
  const Scale x = scale_of(first, last, margin_left, plot_width - margin_right);
  const double low = plot.stacked || plot.from_zero ? std::min(0.0, least) : least;
  const Scale y = scale_of(low, low + 1.05 * (most - low), plot_height - margin_bottom, margin_top);
  return fmt::format(
      "<figure><figcaption><b>{}</b> <small>{}</small><span class=\"legend\">{}</span></figcaption>"
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\" data-plot=\"{}\">"
      "{}{}{}{}</svg></figure>\n",
      escaped(plot.title), escaped(plot.y_unit), legend(drawn), plot_width, plot_height,
      escaped(plot.title), numbers_of(plot, thin, x), axes(plot, x, y), layers(drawn, lines, x, y),
      dots(drawn, lines, x, y), marks_of(plot, x));
}

}  // namespace ringtrain::metrics
