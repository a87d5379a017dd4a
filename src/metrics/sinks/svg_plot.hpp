#pragma once
#include <string>
#include <utility>
#include <vector>

namespace ringtrain::metrics {

/// A line of a plot, or a layer of a stack.
struct Series {
  std::string name;
  int colour = 0;  ///< 0..7, of the page's style
  std::vector<std::pair<double, double>> points;
};

/// Something that happened at `x`.
struct Mark {
  double x = 0;
  std::string kind;  ///< a class of the page's style
  std::string text;
};

struct Plot {
  std::string title, x_unit, y_unit;
  std::vector<Series> series;
  std::vector<Mark> marks = {};
  bool stacked = false;    ///< series have the same x, and stand on one another
  bool from_zero = false;  ///< the axis begins at 0
};

/// Round numbers that divide `least`..`most` into about `count` parts.
std::vector<double> axis_ticks(double least, double most, int count);

/// At most `count` points with the means of their neighbours.
std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points,
                                               std::size_t count);

/// `text` for HTML and XML, in which it means nothing but itself.
std::string escaped(const std::string& text);

/// A <figure> with title, legend and drawing, and the numbers for the page's script. Empty for a
/// plot without points.
std::string svg(const Plot& plot);

}  // namespace ringtrain::metrics
