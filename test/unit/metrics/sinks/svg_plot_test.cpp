#include "metrics/sinks/svg_plot.hpp"

#include <cmath>
#include <limits>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::metrics;
using Catch::Contains;

TEST_CASE("plot: ticks are round numbers within the axis") {
  CHECK(axis_ticks(0, 1, 5) == std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1});
  CHECK(axis_ticks(3, 97, 5) == std::vector<double>{20, 40, 60, 80});
  CHECK(axis_ticks(-1e6, 1e6, 4) == std::vector<double>{-1e6, -5e5, 0, 5e5, 1e6});
}

TEST_CASE("plot: thinned points are means of neighbours, and few points stay") {
  const std::vector<std::pair<double, double>> five = {{0, 0}, {1, 2}, {2, 4}, {3, 6}, {4, 9}};

  CHECK(thinned(five, 5) == five);
  CHECK(thinned(five, 3) == std::vector<std::pair<double, double>>{{0.5, 1}, {2.5, 5}, {4, 9}});
  CHECK(thinned({}, 3).empty());
}

TEST_CASE("plot: a text cannot leave its place") {
  CHECK(escaped("<b a='1'>&\"") == "&lt;b a=&#39;1&#39;&gt;&amp;&quot;");
  const std::string drawing =
      svg({"<script>", "s", "", {{"a\"b", 0, {{0, 1}, {1, 2}}}}, {{0.5, "event", "</svg>"}}});
  CHECK_THAT(drawing, !Contains("<script>"));
  CHECK_THAT(drawing, Contains("&lt;/svg&gt;"));
}

TEST_CASE("plot: layers of a stack stand on those below") {
  const std::string drawing =
      svg({"t", "s", "", {{"a", 0, {{0, 1}, {1, 1}}}, {"b", 1, {{0, 1}, {1, 3}}}}, {}, true, true});
  // 240 high, 10 and 34 left free; the axis ends at 1.05 * (1 + 3)
  CHECK_THAT(drawing, Contains("M64.0,159.3L888.0,159.3L888.0,206.0L64.0,206.0Z"));
  CHECK_THAT(drawing, Contains("M64.0,112.7L888.0,19.3L"));
}

TEST_CASE("plot: values that hardly differ are as equal ones") {
  const double almost = std::nextafter(4.6, 5.0);
  CHECK_THAT(svg({"t", "s", "", {{"a", 0, {{0, 4.6}, {1, almost}}}}}), Contains("</svg>"));
}

TEST_CASE("plot: what is no number is left out, and nothing is drawn of nothing") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(svg({"t", "s", "", {}}).empty());
  CHECK(svg({"t", "s", "", {{"a", 0, {{0, nan}}}}}).empty());
  CHECK_THAT(svg({"t", "s", "", {{"a", 0, {{0, 1}, {1, nan}, {2, 1}}}}}), !Contains("nan"));
}
