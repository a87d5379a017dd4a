#include "ringtrain/metrics/reporter/reporter.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "support/catch.hpp"
#include "unit/train/temporary_file.hpp"

using namespace ringtrain;
using namespace ringtrain::metrics;
using Catch::Contains;
using Catch::EndsWith;
using Catch::StartsWith;

namespace {

const std::chrono::system_clock::time_point eight_o_clock{
    std::chrono::microseconds{1795248000123456}};

void use_utc() {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
}

StepRecord shown_step() {
  StepRecord record{.step = 240,
                    .epoch = 1.5,
                    .loss = 1.5912,
                    .learning_rate = 0.1,
                    .examples_per_second = 225.61,
                    .seconds_per_batch = 0.0712,
                    .phases = {}};
  record.phases[Phase::data_wait] = 0.0002;
  record.phases[Phase::communication] = 0.0011;
  return record;
}

ProgressState state_at(std::int64_t step) {
  return {.step = step,
          .first_step = 0,
          .total_steps = 200,
          .elapsed_seconds = static_cast<double>(step),
          .examples_per_second = 1234.5,
          .loss = 0.25};
}

/// What was written where, in order, and a clock that stands still until moved.
struct Recorder {
  std::string out, err;
  double now = 0;

  ReporterSettings sinks(bool progress, bool one_terminal = true) {
    return {.out = [this](std::string_view text) { out += text; },
            .err = [this](std::string_view text) { err += text; },
            .one_terminal = one_terminal,
            .columns = 80,
            .show_progress = progress,
            .colours = false,
            .seconds = [this] { return now; }};
  }
};

/// Until end(), what this process writes to `descriptor` goes to a file.
class Redirected {
 public:
  explicit Redirected(int descriptor)
      : descriptor_(descriptor), before_(check_errno(::dup(descriptor), "dup")) {
    std::fflush(nullptr);
    const int file = check_errno(::open(file_.path().c_str(), O_WRONLY | O_APPEND), "open");
    check_errno(::dup2(file, descriptor_), "dup2");
    ::close(file);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;
  ~Redirected() { end(); }

  std::string text() const {
    std::fflush(nullptr);
    return file_.text();
  }
  std::string end() {
    std::string all = text();
    if (before_ >= 0) {
      ::dup2(before_, descriptor_);
      ::close(std::exchange(before_, -1));
    }
    return all;
  }

 private:
  TemporaryFile file_;
  int descriptor_, before_;
};

Summary small_summary(std::size_t ranks) {
  Summary s;
  s.steps = 40;
  s.examples = 10240;
  s.epochs = 4;
  s.seconds = 75;
  s.throughput = {8500.4, 12.1};
  s.ranks.resize(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    s.ranks[rank][Phase::forward] = 1;
    s.ranks[rank][Phase::communication] = static_cast<double>(rank);
  }
  return s;
}

}  // namespace

TEST_CASE("log line: has the words of the tutorial's, then what explains the speed") {
  use_utc();

  CHECK(log_line(eight_o_clock, shown_step(), LastCheckpoint{200, 41.2}) ==
        "2026-11-21 08:00:00.123456: step 240, loss = 1.59 (225.6 examples/sec; 0.071 sec/batch) | "
        "lr 0.1 | wait data 0.2 ms, comm 1.1 ms | checkpoint 200, 41 s old");
  CHECK_THAT(log_line(eight_o_clock, shown_step(), std::nullopt), EndsWith("comm 1.1 ms"));
}

TEST_CASE("log line: has the epoch, the time left, and what of the loss is L2") {
  use_utc();
  StepRecord record = shown_step();
  record.epoch = 1.284;
  record.epochs = 90;
  record.seconds_left = 4000;
  record.l2 = 0.19;

  CHECK_THAT(log_line(eight_o_clock, record, LastCheckpoint{200, 41.2}),
             EndsWith("comm 1.1 ms | epoch 1.28 of 90, 1 h 6 min left | cross-entropy 1.40, L2 "
                      "0.19 | checkpoint 200, 41 s old"));
}

TEST_CASE("log line: while the run is slower, it and the bar end in how fast it is") {
  use_utc();
  StepRecord record = shown_step();
  record.speed = SpeedShare{.share = 0.604, .reference = 1892.3, .slow = true};
  ProgressState state = state_at(50);
  state.speed = record.speed;

  CHECK_THAT(log_line(eight_o_clock, record, LastCheckpoint{200, 41.2}),
             EndsWith(" | checkpoint 200, 41 s old | 60 % of 1,892"));
  CHECK_THAT(progress_bar(state, 79), Contains("  1234.5 examples/s  60 % of 1,892  loss 0.25"));
  record.speed->slow = state.speed->slow = false;
  CHECK_THAT(log_line(eight_o_clock, record, std::nullopt), EndsWith("comm 1.1 ms"));
  CHECK_THAT(progress_bar(state, 79), !Contains("% of"));
}

TEST_CASE("log line: speeds of any size are short") {
  CHECK(share_words(0.5, 3.217) == "50 % of 3.22");
  CHECK(share_words(1, 999.4) == "100 % of 999");
  CHECK(share_words(1, 1234567) == "100 % of 1,234,567");
}

TEST_CASE("log line: an event cannot disturb the terminal") {
  CHECK_THAT(log_line(eight_o_clock, EventRecord{"bad_sample", 3, "a\x1b[2J\nb"}),
             Contains("rank 3: bad_sample: a\\x1b[2J\\x0ab"));
}

TEST_CASE("duration words: fit their size") {
  CHECK(duration_words(0.94) == "0.9 s");
  CHECK(duration_words(41.2) == "41 s");
  CHECK(duration_words(125) == "2 min 5 s");
  CHECK(duration_words(7500) == "2 h 5 min");
}

TEST_CASE("progress bar: says where the run is and fits any width") {
  CHECK(progress_bar(state_at(50), 79) ==
        "[####--------------]  25 %  step 50/200  ETA 2:30  1234.5 examples/s  loss 0.25");
  for (std::size_t columns = 0; columns < 120; ++columns)
    CHECK(progress_bar(state_at(50), columns).size() <= columns);
  CHECK_THAT(progress_bar(state_at(50), 30), StartsWith(" 25 %  step 50/200  ETA 2:30"));
}

TEST_CASE("progress bar: a resumed run's ETA counts its own steps only") {
  ProgressState state = state_at(150);
  state.first_step = 100;
  state.elapsed_seconds = 25;
  CHECK_THAT(progress_bar(state, 79), Contains("ETA 0:25"));

  state.first_step = 150;
  CHECK_THAT(progress_bar(state, 79), !Contains("ETA"));
}

TEST_CASE("progress bar: odd states are drawn too") {
  CHECK_THAT(progress_bar(state_at(0), 79), Contains("  0 %"));
  CHECK_THAT(progress_bar(state_at(199), 79), Contains(" 99 %"));
  CHECK_THAT(progress_bar(state_at(200), 79), Contains("100 %"));
  CHECK_THAT(progress_bar({}, 79), Contains("step 0/0"));
}

TEST_CASE("summary: tells throughput with its spread and each phase's share over the ranks") {
  const std::string table = summary_table(small_summary(2));

  CHECK_THAT(table, Contains("trained 40 steps, 10240 images in 75 s on 2 ranks"));
  CHECK_THAT(table, Contains("8500.4 +- 12.1 examples/s"));
  CHECK_THAT(table, Contains("forward             75.0 %    50.0 .. 100.0 %"));
  CHECK_THAT(table, Contains("communication       25.0 %     0.0 ..  50.0 %"));
  CHECK_THAT(table, !Contains("update"));
  CHECK_THAT(table, !Contains("accuracy"));
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
}

TEST_CASE("summary: names the loader where a rank waits a tenth of its time for data") {
  Summary summary = small_summary(2);
  summary.ranks[1][Phase::data_wait] = 0.09 * summary.ranks[1].total();
  CHECK_THAT(summary_table(summary), !Contains("limited by"));

  summary.ranks[1][Phase::data_wait] *= 2;
  CHECK_THAT(summary_table(summary),
             Contains("  limited by         the loader: raise --data-threads"));
}

TEST_CASE("summary: of one rank has no range, and names accuracy and checkpoint if there are") {
  Summary summary = small_summary(1);
  summary.accuracy =
      EvalRecord{.step = 40, .top1 = 0.9712, .top5 = 1, .loss = 0.1, .examples = 2000};
  summary.checkpoint = LastCheckpoint{40, 2};
  summary.checkpoint_file = "d/step-0000000040.h5";
  summary.saved = 5;
  summary.skipped = 2;

  const std::string table = summary_table(summary);

  CHECK_THAT(table, !Contains(".."));
  CHECK_THAT(table, Contains("top-1 97.12 %, top-5 100.00 % of 2000 images"));
  CHECK_THAT(table, Contains("step 40, 2.0 s old: d/step-0000000040.h5"));
  CHECK_THAT(table, Contains("5 saved, 0 failed, 2 skipped"));
}

TEST_CASE("output: in a file there are lines and no bar") {
  Recorder recorder;
  const auto output = make_reporter({}, recorder.sinks(false, false));

  output->note("threads: 2");
  output->progress(state_at(1));
  output->write(shown_step());
  output->write(EndRecord{});
  output->note("\n" + summary_table(small_summary(1)));

  CHECK_THAT(recorder.out,
             StartsWith("threads: 2\n") && Contains("step 240") && Contains("trained 40"));
  CHECK_THAT(recorder.out, EndsWith("\n") && !Contains("\x1b") && !Contains("\r"));
  CHECK(recorder.err.empty());
}

TEST_CASE("output: on a terminal, lines appear above the bar, in one stream") {
  Recorder recorder;
  const auto output = make_reporter({}, recorder.sinks(true));
  output->progress(state_at(50));
  recorder.err.clear();

  output->note("a line");

  CHECK(recorder.out.empty());
  CHECK_THAT(recorder.err, StartsWith("\r\x1b[Ka line\n[####---"));
}

TEST_CASE("output: warnings stand out where there are colours, and nowhere else") {
  Recorder recorder;
  ReporterSettings sinks = recorder.sinks(false);
  const auto plain = make_reporter({}, sinks);
  sinks.colours = true;
  const auto coloured = make_reporter({}, sinks);

  plain->write(EventRecord{"a_warning", 0, "look"});
  CHECK_THAT(recorder.err, !Contains("\x1b"));
  coloured->write(EventRecord{"a_warning", 0, "look"});
  CHECK_THAT(recorder.err, Contains("\x1b[33m") && EndsWith("look\x1b[0m\n"));
  coloured->note("a line");
  CHECK(recorder.out == "a line\n");
}

TEST_CASE("output: lines go to their own file when only the bar is on a terminal") {
  Recorder recorder;
  const auto output = make_reporter({}, recorder.sinks(true, false));
  output->progress(state_at(50));

  output->note("a line");

  CHECK(recorder.out == "a line\n");
}

TEST_CASE("output: the bar is redrawn at most ten times a second") {
  Recorder recorder;
  const auto output = make_reporter({}, recorder.sinks(true));
  output->progress(state_at(1));
  const std::string first = recorder.err;
  recorder.now = 0.0999;
  output->progress(state_at(2));
  CHECK(recorder.err == first);

  recorder.now = 0.1;
  output->progress(state_at(3));

  CHECK_THAT(recorder.err.substr(first.size()), Contains("step 3/200"));
}

TEST_CASE("output: the end leaves the last state of the bar and the summary below it") {
  Recorder recorder;
  const auto output = make_reporter({}, recorder.sinks(true));
  output->progress(state_at(199));
  output->progress(state_at(200));

  output->write(EndRecord{});
  output->note("\n" + summary_table(small_summary(1)));

  CHECK_THAT(recorder.err, Contains("step 200/200") && EndsWith("%\n"));
  CHECK(recorder.err.find("trained 40") > recorder.err.find("step 200/200"));
}

TEST_CASE("output: --quiet leaves events and metrics") {
  const TemporaryFile file;
  config::Options options;
  options.quiet = true;
  options.metrics = file.path();
  Recorder recorder;
  const auto output = make_reporter(options, recorder.sinks(false));

  output->note("threads: 2");
  output->write(shown_step());
  output->write(EventRecord{"save_failed", 0, "disk full"});
  output->write(EndRecord{});
  output->note("\n" + summary_table(small_summary(1)));

  CHECK(recorder.out.empty());
  CHECK_THAT(recorder.err, Contains("save_failed: disk full"));
  CHECK_THAT(file.text(), Contains("\"kind\":\"step\"") && Contains("\"kind\":\"end\""));
}

TEST_CASE("output: a checkpoint is in the next log line with its age") {
  Recorder recorder;
  const auto output = make_reporter({}, recorder.sinks(false));
  recorder.now = 10;
  output->write(CheckpointRecord{.step = 200, .file = "f"});
  recorder.now = 51;

  output->write(shown_step());

  CHECK_THAT(recorder.out, Contains("| checkpoint 200, 41 s old"));
}

TEST_CASE("output: a metrics file that fails is told once, and the log goes on") {
  config::Options options;
  options.metrics = "/dev/full";
  Recorder recorder;
  const auto output = make_reporter(options, recorder.sinks(false));

  output->write(shown_step());
  output->write(shown_step());

  CHECK_THAT(recorder.err, Contains("No space left"));
  CHECK(recorder.err.find("No space left") == recorder.err.rfind("No space left"));
  CHECK_THAT(recorder.out, Contains("step 240"));
}

TEST_CASE("output: the silent one of other ranks shows events only") {
  use_utc();
  const auto output = make_silent_reporter();
  Redirected out(STDOUT_FILENO), err(STDERR_FILENO);

  output->note("a note");
  output->write(StartRecord{});
  output->write(shown_step());
  output->progress(state_at(50));
  output->write(EvalRecord{});
  output->write(CheckpointRecord{.step = 200, .file = "f"});
  output->write(ScalingResult{});
  output->write(ScalingForecast{});
  output->write(EndRecord{});
  output->note("\n" + summary_table(small_summary(2)));
  const std::string before_event = err.text();
  output->write(EventRecord{"save_failed", 3, "disk full"});

  const std::string out_text = out.end(), err_text = err.end();
  CHECK(out_text.empty());
  CHECK(before_event.empty());
  CHECK_THAT(err_text, EndsWith(": rank 3: save_failed: disk full\n"));
  CHECK(std::count(err_text.begin(), err_text.end(), '\n') == 1);
}
