#include "ringtrain/metrics/trace/timeline.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "metrics/trace/chrome_trace.hpp"
#include "ringtrain/metrics/trace/save_timeline.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

using namespace ringtrain;
using namespace ringtrain::metrics;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

const Timeline::Clock::time_point origin{1000s};

json parsed(const std::string& path) { return json::parse(std::ifstream(path)); }

std::vector<json> spans_in(const json& trace) {
  std::vector<json> spans;
  for (const json& event : trace.at("traceEvents"))
    if (event.at("ph") == "X") spans.push_back(event);
  return spans;
}

}  // namespace

TEST_CASE("timeline: the newest spans are kept, in order") {
  Timeline timeline(3);
  for (int n = 1; n <= 5; ++n)
    timeline.add(Phase::step, origin + n * 1s, 0.5, static_cast<std::uint64_t>(n));

  const auto spans = timeline.spans();

  REQUIRE(spans.size() == 3);
  CHECK(spans[0].number == 3);
  CHECK(spans[2].number == 5);
  CHECK(spans[2].begin_ns == 1'005'000'000'000);
  CHECK(spans[2].end_ns == 1'005'500'000'000);
  CHECK(timeline.added() == 5);
}

TEST_CASE("timeline: an empty one has no spans") { CHECK(Timeline(4).spans().empty()); }

TEST_CASE("timeline: threads add beside each other") {
  Timeline timeline(4000);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&timeline, t] {
        for (std::uint64_t n = 0; n < 1000; ++n)
          timeline.add(Phase::batch, {origin, origin + 1ms, n}, Row::loader, t);
      });
  }

  std::array<std::uint64_t, 4> sums{};
  for (const Timeline::Span& span : timeline.spans())
    sums.at(span.row - static_cast<std::uint32_t>(Row::loader)) += span.number;
  CHECK(sums == std::array<std::uint64_t, 4>{499'500, 499'500, 499'500, 499'500});
}

TEST_CASE("timeline: a file holds every span, named, with what holds others before them") {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "t.json").string();
  Timeline timeline(10);
  timeline.add(Phase::forward, origin, 0.002, 7);
  timeline.add(Phase::step, origin, 0.005, 7);
  timeline.add(Phase::batch, {origin + 1ms, origin + 2ms, 9}, Row::loader, 1);
  const allreduce::MpiSession session;

  const std::string told = save_timeline(timeline, file, {}, {}, session).text;

  const json trace = parsed(file);
  const auto spans = spans_in(trace);
  REQUIRE(spans.size() == 3);
  CHECK(spans[0] == json::parse(R"({"name":"step","ph":"X","pid":0,"tid":0,"ts":0.0,"dur":5000.0,
                                    "args":{"step":7}})"));
  CHECK(spans[1].at("name") == "forward");
  CHECK(spans[2].at("ts") == 1000.0);
  CHECK(spans[2].at("args") == json{{"batch", 9}});
  const auto named = [&](const char* what, const std::string& name) {
    const auto& events = trace.at("traceEvents");
    return std::ranges::any_of(events, [&](const json& e) {
      return e.at("ph") == "M" && e.at("name") == what && e.at("args").value("name", "") == name;
    });
  };
  CHECK(named("process_name", "rank 0 (" + session.host() + ")"));
  CHECK(named("thread_name", "main thread"));
  CHECK(named("thread_name", "loader 1"));
  CHECK(told.starts_with("timeline: " + file));
}

TEST_CASE("timeline: spans are moved to rank 0's clock") {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "t.json").string();
  Timeline timeline(10);
  timeline.add(Phase::step, origin, 1, 1);
  timeline.add(Phase::step, origin + 10s, 1, 2);

  // 1 s of drift in 10 s
  save_timeline(timeline, file, {.at = 1000, .offset = 5}, {.at = 1010, .offset = 6},
                allreduce::MpiSession());

  const auto spans = spans_in(parsed(file));
  CHECK(spans.at(0).at("dur").get<double>() == Approx(1.1e6));
  CHECK(spans.at(1).at("ts").get<double>() == Approx(11e6));
}

TEST_CASE("timeline: what a full one lost is told, and a file that cannot be is") {
  const TemporaryFolder folder;
  Timeline timeline(1);
  timeline.add(Phase::step, origin, 1, 1);
  timeline.add(Phase::step, origin + 1s, 1, 2);
  const allreduce::MpiSession session;

  CHECK(save_timeline(timeline, (folder.path() / "t.json").string(), {}, {}, session)
            .text.find("newest 1 spans") != std::string::npos);
  const SavedTimeline nowhere = save_timeline(timeline, "/nowhere/t.json", {}, {}, session);
  CHECK_FALSE(nowhere.there);
  CHECK(nowhere.text == "/nowhere/t.json: No such file or directory");
}

TEST_CASE("timeline: host names cannot break the file") {
  const std::string names = trace_names(0, "a\"\\\x01\xff", {0});

  CHECK(json::parse(trace_head() + names + trace_tail("it's \"this\"")).is_object());
}

TEST_CASE("timeline: rank 0 can write its own part, with nobody's help") {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "t.json").string();
  Timeline timeline(10);
  timeline.add(Phase::step, origin, 1, 1);

  CHECK(save_own_timeline(timeline, file, "host") == "rank 0's own timeline is in " + file);
  CHECK(spans_in(parsed(file)).size() == 1);
}
