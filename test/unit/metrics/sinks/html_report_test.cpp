#include "metrics/sinks/record_sink.hpp"
#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"
#include "unit/train/no_warning.hpp"
#include "unit/train/temporary_file.hpp"

using namespace ringtrain;
using namespace ringtrain::metrics;
using Catch::Contains;

namespace {

StepRecord reported_step(std::int64_t step) {
  StepRecord record{.step = step,
                    .epoch = 0.5,
                    .loss = 2.0 / double(step),
                    .learning_rate = 0.1,
                    .examples_per_second = 100,
                    .seconds_per_batch = 0.1,
                    .phases = {}};
  record.phases[Phase::forward] = 0.1;
  return record;
}

StepRecord of_two_ranks(StepRecord record) {
  record.ranks.emplace();
  record.ranks->own_work = {.min = 0.1, .median = 0.1, .max = 0.2, .max_rank = 1};
  return record;
}

}  // namespace

TEST_CASE("report: a page of its own tells what happened") {
  const TemporaryFile file;
  const auto report = make_report(file.path(), no_warning);

  report->write(ScalingResult{{100, 1}, {190, 2}, {1.9, 0.1}, 0.95, "two ranks are well used"});
  report->write(StartRecord{R"({"model":"mlp","lr":0.25})", "b1", 2, {"node<1>", "node2"}});
  for (int step = 1; step < 30; ++step) report->write(reported_step(step));
  CHECK_THAT(file.text(), !Contains("[100.0,100.0,200.0]"));
  report->write(of_two_ranks(reported_step(30)));
  report->write(CheckpointRecord{.step = 20, .file = "d/step-20.h5", .bytes = 5'000'000});
  report->write(EventRecord{"save_failed", 0, "disk & more full"});
  report->write(EvalRecord{.step = 29, .top1 = 0.625, .examples = 2000});
  PhaseSeconds fast, slow;
  fast[Phase::forward] = 1;
  slow[Phase::forward] = slow[Phase::communication] = 1;
  report->write(ScalingForecast{
      .ranks = 2, .bytes = 4e6, .step = {.compute_s = 0.1, .exposed_s = 0.025}, .target = 0.5});
  report->write(EndRecord{.steps = 29,
                          .examples_per_second = 123.5,
                          .ranks = {fast, slow},
                          .sums = SumsReached{117e6, 0.25},
                          .efficiency = 0.75});

  const std::string page = file.text();
  CHECK_THAT(page, Contains("<h1>mlp</h1>") && Contains("node&#60;1&#62;") && Contains("</html>"));
  CHECK_THAT(page, Contains("new Dygraph(") && Contains("Vanderkam"));  // with its licence
  CHECK_THAT(page, Contains(R"(,29,0.0,62.5,0.0]],"events":[[)"));
  CHECK_THAT(page, Contains(R"(save_failed: disk & more full)"));
  CHECK_THAT(page, Contains("62.50 %") && Contains("123.5"));
  CHECK_THAT(page, Contains("95.0 %") && Contains("two ranks are well used"));
  CHECK_THAT(page, Contains("125.0 ms a step expected, efficiency 80 %"));
  CHECK_THAT(page, Contains("117 MB/s of bus bandwidth") && Contains("25.0 % of the time") &&
                       Contains("75.0 % of 2 times one rank"));
  CHECK_THAT(page, Contains("d/step-20.h5") && Contains("disk &#38; more full"));
  CHECK_THAT(page, Contains("exposed communication</td><td class=\"n\">0.0 %</td>"));
  CHECK_THAT(page, Contains("[100.0,100.0,200.0]"));  // a rank's own work
  CHECK_THAT(page, Contains("<code>0.25</code>"));
  CHECK_THAT(page,
             !Contains("<link") && !Contains("<script src") && !Contains("<img"));  // one file
}

TEST_CASE("report: a reader without scripts gets the figures, of forty steps at most") {
  const TemporaryFile file;
  const auto report = make_report(file.path(), no_warning);
  for (int step = 1; step <= 1000; ++step) report->write(reported_step(step));
  report->write(EvalRecord{.step = 1000, .top1 = 0.625});

  const std::string page = file.text();
  const std::size_t begin = page.find("<noscript>");
  const std::string figures = page.substr(begin, page.find("</noscript>") - begin);
  CHECK_THAT(figures, Contains("<td class=\"n\">1000</td><td class=\"n\">0.002</td>") &&
                          Contains("<td class=\"n\">62.5</td>"));
  std::size_t rows = 0;
  for (std::size_t at = 0; (at = figures.find("<tr>", at)) != figures.npos; ++at) ++rows;
  CHECK(rows <= 2 + 40 + 1);
  CHECK(rows > 30);
}

TEST_CASE("report: no text of a run ends the script that holds it") {
  const TemporaryFile file;
  const auto report = make_report(file.path(), no_warning);
  report->write(EventRecord{"save_failed", 0, "</script><b>"});
  report->write(EndRecord{});

  CHECK_THAT(file.text(), Contains(R"(\u003c/script>\u003cb>)") && !Contains("</script><b>"));
}

TEST_CASE("report: a run without an evaluation or an end has a page, too") {
  const TemporaryFile file;
  const auto report = make_report(file.path(), no_warning);
  CHECK(file.text().empty());  // an earlier run's would still be there
  report->write(StartRecord{});
  CHECK_THAT(file.text(), Contains("</html>"));
  report->write(EvalRecord{.step = 1});
  CHECK_THAT(file.text(), Contains("as of"));
}

TEST_CASE("report: a file that cannot be is an error before training") {
  CHECK_THROWS_WITH(make_report("/nowhere/report.html", no_warning),
                    Contains("--report /nowhere/report.html") && Contains("No such file"));
  CHECK_THROWS_WITH(make_report("/dev/null", no_warning), Contains("what lies in /dev"));
}

TEST_CASE("report: a file that fails later is told once, and training goes on") {
  const std::string folder = TemporaryFile().path();
  std::filesystem::create_directory(folder);
  std::vector<std::string> warnings;
  const auto report =
      make_report(folder + "/r.html", [&](std::string_view text) { warnings.emplace_back(text); });
  std::filesystem::remove_all(folder);

  report->write(EvalRecord{});
  report->write(EvalRecord{});

  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains("training goes on"));
}
