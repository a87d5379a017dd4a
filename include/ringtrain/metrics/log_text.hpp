#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ringtrain/metrics/records.hpp"

namespace ringtrain::metrics {

/// "2026-11-21 08:00:00.123456", local time.
std::string timestamp(std::chrono::system_clock::time_point now);

/// "0.9 s", "41 s", "12 min 5 s", "3 h 20 min".
std::string duration_words(double seconds);

/// "60 % of 1,892".
std::string share_words(double share, double examples_per_second);

struct LastCheckpoint {
  std::int64_t step = 0;
  double age_seconds = 0;
};

/// The line for a step record, in the words of TensorFlow's CIFAR-10 tutorial up to the bracket:
/// 2026-11-21 08:00:00.123456: step 240, loss = 1.59 (225.6 examples/sec; 0.071 sec/batch) | lr 0.1
/// | wait data 0.2 ms, comm 1.1 ms | checkpoint 200, 41 s old
/// and where a rank holds up the others, before the checkpoint:
/// | slowest rank 3 (node2): forward 14.0 ms, median 10.0
/// and while the run is slower, at the end: | 60 % of 1,892
std::string log_line(std::chrono::system_clock::time_point now, const StepRecord& record,
                     const std::optional<LastCheckpoint>& checkpoint);
std::string log_line(std::chrono::system_clock::time_point now, const EvalRecord& record);
std::string log_line(std::chrono::system_clock::time_point now, const EventRecord& record);

/// How far a run is.
struct ProgressState {
  std::int64_t step = 0, first_step = 0;  ///< the first of this process
  std::int64_t total_steps = 0;
  double elapsed_seconds = 0;  ///< since the first step
  double examples_per_second = 0;
  std::optional<double> loss = {};
  std::optional<SpeedShare> speed = {};
};

/// One line of at most `columns` characters; what does not fit is left out, the bar first.
std::string progress_bar(const ProgressState& state, std::size_t columns);

/// What the user wants to know when a run is over.
struct Summary {
  std::int64_t steps = 0, examples = 0;  ///< of this process
  double epochs = 0, seconds = 0;
  Spread throughput;                ///< examples per second over all ranks
  std::vector<PhaseSeconds> ranks;  ///< totals of each rank
  std::optional<EvalRecord> accuracy = {};
  std::optional<LastCheckpoint> checkpoint = {};
  std::string checkpoint_file = {};
  std::optional<SumsReached> sums = {};
  std::optional<double> efficiency = {};                  ///< of the ranks, by one rank alone
  std::optional<std::pair<double, double>> steps_s = {};  ///< a step as expected, and as it was
  std::uint64_t saved = 0, failed = 0, skipped = 0;       ///< checkpoints
};

/// The closing table without a last newline, at most 80 columns wide but for the file name.
std::string summary_table(const Summary& summary);

}  // namespace ringtrain::metrics
