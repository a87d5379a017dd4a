#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

#include "metrics/sinks/record_sink.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/program.hpp"

namespace ringtrain::metrics {
namespace {

using Json = nlohmann::ordered_json;

std::string because() { return reason_of(errno); }

bool ends_inside_a_line(int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) return false;
  char last = '\n';
  return ::pread(file, &last, 1, status.st_size - 1) == 1 && last != '\n';
}

/// Cuts off what was just written of a line, so that the file stays readable line by line.
bool take_back(int file, ssize_t bytes) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
         ::ftruncate(file, status.st_size - bytes) == 0;
}

/// The double that is written with at most nine digits: enough to tell any two floats apart.
Json nine_digits(double value) {
  return std::strtod(fmt::format("{:.9g}", value).c_str(), nullptr);
}

Json named(const PhaseSeconds& phases) {
  Json object = Json::object();
  for (const Phase phase : ledger_phases)
    object[std::string(phase_names(phase).metric)] = nine_digits(phases[phase]);
  return object;
}

// Blocks are the largest that a sum is cut into, in bytes as fp32.
Json named(const allreduce::RingChoice& ring) {
  const auto block = [](const allreduce::RingTuning& t) {
    return t.largest_segment * sizeof(float);
  };
  Json trials = Json::array();
  for (const allreduce::RingTrial& trial : ring.measured.trials)
    trials.push_back({{"block_bytes", block(trial.tuning)},
                      {"adapts", trial.tuning.smallest_segment < trial.tuning.largest_segment},
                      {"seconds", nine_digits(trial.seconds)}});
  const allreduce::RingTable& m = ring.measured;
  return {{"hosts", m.hosts},
          {"hop_seconds", nine_digits(m.hop_s)},
          {"bytes_per_second", nine_digits(m.bytes_a_second)},
          {"block_bytes", block(ring.plan.ring)},
          {"sums_at_once", ring.plan.at_once},
          {"sums_start", ring.plan.late ? "late" : "early"},
          {"trial_bytes", m.bytes},
          {"trials", trials}};
}

Json named(const BestEvaluation& best) {
  return {{"metric", best.metric}, {"value", nine_digits(best.value)}, {"step", best.step}};
}

Json named(const RankStatistics& r) {
  return {{"min", nine_digits(r.min)},
          {"median", nine_digits(r.median)},
          {"max", nine_digits(r.max)},
          {"max_rank", r.max_rank}};
}

Json named(const PhaseSpread& ranks) {
  Json object = Json::object();
  for (const Phase phase : ledger_phases)
    object[std::string(phase_names(phase).metric)] = named(ranks[phase]);
  object["own_work"] = named(ranks.own_work);
  return object;
}

Json named(const SumsReached& sums) {
  return {{"bus_bandwidth", nine_digits(sums.bus_bandwidth)},
          {"exposed_share", nine_digits(sums.exposed_share)}};
}

// Only where there is one.
template <class Value>
void add(Json& record, const char* key, const std::optional<Value>& value) {
  if (!value) return;
  if constexpr (std::is_same_v<Value, double>)
    record[key] = nine_digits(*value);
  else if constexpr (std::is_same_v<Value, int>)
    record[key] = *value;
  else
    record[key] = named(*value);
}

// As of RFC 3339.
std::string time_text() {
  const auto now = std::chrono::system_clock::now();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  const std::time_t seconds = ms.count() / 1000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     ms.count() % 1000);
}

// What each record has. `step`: of the record before.
void add_place(Json& record, const std::string& run, std::int64_t step) {
  if (!record.contains("step")) record["step"] = step;
  record["time"] = time_text();
  record["run"] = run;
}

Json json_of(const StartRecord& r) {
  return {{"kind", "start"},  {"schema", 2},
          {"step", r.step},   {"configuration", Json::parse(r.configuration)},
          {"build", r.build}, {"ranks", r.ranks},
          {"hosts", r.hosts}};
}

Json json_of(const StepRecord& r) {
  Json record = {{"kind", "step"},
                 {"step", r.step},
                 {"epoch", nine_digits(r.epoch)},
                 {"epochs", nine_digits(r.epochs)},
                 {"seconds_left", nine_digits(r.seconds_left)},
                 {"loss", nine_digits(r.loss)},
                 {"l2", nine_digits(r.l2)},
                 {"lr", nine_digits(r.learning_rate)},
                 {"examples_per_second", nine_digits(r.examples_per_second)},
                 {"seconds_per_batch", nine_digits(r.seconds_per_batch)},
                 {"phases", named(r.phases)}};
  add(record, "phases_of_ranks", r.ranks);
  add(record, "sums", r.sums);
  if (r.speed) record["speed_share"] = nine_digits(r.speed->share);
  return record;
}

Json json_of(const EvalRecord& r) {
  Json record = {{"kind", "eval"},
                 {"step", r.step},
                 {"top1", nine_digits(r.top1)},
                 {"top5", nine_digits(r.top5)},
                 {"loss", nine_digits(r.loss)},
                 {"examples", r.examples}};
  add(record, "best", r.best);
  return record;
}

Json json_of(const ClassRecord& r) {
  Json record = {{"kind", "classes"},
                 {"step", r.step},
                 {"calibration_error", nine_digits(r.calibration_error())},
                 {"classes", Json::array()},
                 {"confusions", Json::array()}};
  for (const ClassRecord::Class& c : r.classes)
    record["classes"].push_back({{"name", c.name},
                                 {"examples", c.examples},
                                 {"predicted", c.predicted},
                                 {"right", c.right},
                                 {"precision", nine_digits(c.precision())},
                                 {"recall", nine_digits(c.recall())},
                                 {"f1", nine_digits(c.f1())}});
  for (const ClassRecord::Confusion& c : r.confusions)
    record["confusions"].push_back({c.label, c.predicted, c.examples});
  return record;
}

Json json_of(const CheckpointRecord& r) {
  return {{"kind", "checkpoint"},
          {"step", r.step},
          {"file", r.file},
          {"bytes", r.bytes},
          {"seconds", nine_digits(r.seconds)},
          {"stall_seconds", nine_digits(r.stall_seconds)}};
}

Json json_of(const EventRecord& r) {
  return {{"kind", "event"}, {"what", r.what}, {"rank", r.rank}, {"text", r.text}};
}

Json json_of(const ScalingResult& r) {
  const auto spread = [](const Spread& s) {
    return Json{{"median", nine_digits(s.median)}, {"deviation", nine_digits(s.deviation)}};
  };
  return {{"kind", "baseline"},
          {"alone", spread(r.alone)},
          {"together", spread(r.together)},
          {"speed_up", spread(r.speed_up)},
          {"efficiency", nine_digits(r.efficiency)},
          {"strong_efficiency", nine_digits(r.strong_efficiency)},
          {"jitter",
           {{"alone", nine_digits(r.alone_jitter)}, {"together", nine_digits(r.together_jitter)}}},
          {"phases", {{"alone", named(r.alone_phases)}, {"together", named(r.together_phases)}}},
          {"verdict", r.verdict}};
}

Json json_of(const ScalingForecast& r) {
  const double bandwidth = bus_bandwidth(r.bytes, r.step.sums_s, r.ranks);
  Json record = {{"kind", "links"},
                 {"bytes", r.bytes},
                 {"buckets", r.buckets},
                 {"latency_seconds", nine_digits(r.link.latency_s)},
                 {"bus_bandwidth", nine_digits(bandwidth)},
                 {"sums_seconds", nine_digits(r.step.sums_s)},
                 {"compute_seconds", nine_digits(r.step.compute_s)},
                 {"exposed_seconds", nine_digits(r.step.exposed_s)},
                 {"expected_seconds_per_batch", nine_digits(r.step.step_s())},
                 {"efficiency", nine_digits(r.step.efficiency())},
                 {"target", nine_digits(r.target)}};
  if (r.ring) record["ring"] = named(*r.ring);
  add(record, "batch_for_target", r.batch);
  add(record, "accumulate_for_target", r.accumulate);
  add(record, "efficiency_in_16_bits", r.narrow);
  add(record, "efficiency_compressed", r.compressed);
  if (r.shares)
    record["shares"] = {{"of_ranks", r.shares->shares},
                        {"expected_seconds_per_batch", nine_digits(r.shares->step.step_s())}};
  if (r.larger)
    record["larger"] = {{"batch", r.larger->batch},
                        {"gradients_in_16_bits", r.larger->narrow},
                        {"expected_seconds_per_batch", nine_digits(r.larger->step.step_s())},
                        {"speed_up", nine_digits(r.larger->speed_up)}};
  return record;
}

Json json_of(const EndRecord& r) {
  Json ranks = Json::array();
  for (const PhaseSeconds& phases : r.ranks) ranks.push_back(named(phases));
  Json record = {{"kind", "end"},
                 {"steps", r.steps},
                 {"examples", r.examples},
                 {"seconds", nine_digits(r.seconds)},
                 {"examples_per_second", nine_digits(r.examples_per_second)},
                 {"top1", r.top1 ? nine_digits(*r.top1) : Json()},
                 {"phases_of_ranks", ranks}};
  add(record, "sums", r.sums);
  add(record, "expected_seconds_per_batch", r.expected_step_s);
  add(record, "efficiency", r.efficiency);
  add(record, "best", r.best);
  return record;
}

class JsonLines final : public RecordSink {
 public:
  JsonLines(const std::string& path, Warn warn)
      : path_(path),
        run_(run_id()),
        file_(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666)),
        warn_(std::move(warn)) {
    if (file_.get() < 0)
      throw Error(Exit::storage, "--metrics " + path,
                  because() + "; name a file that can be written");
    deletion_ = DeletionWatch(file_.get());
    torn_ = ends_inside_a_line(file_.get());
  }

  void write(const Record& record) override {
    Json json = std::visit([](const auto& r) { return json_of(r); }, record);
    add_place(json, run_, step_);
    step_ = json["step"];
    append(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }

 private:
  void append(const std::string& record);

  const std::string path_, run_;
  std::int64_t step_ = 0;  // of the last record
  FileDescriptor file_;
  DeletionWatch deletion_;
  const Warn warn_;
  bool torn_ = false;  // the file does not end with a whole line
  bool warned_ = false;
};

void JsonLines::append(const std::string& record) {
  const std::string line = (torn_ ? "\n" : "") + record;
  std::size_t done = 0;
  while (done < line.size()) {  // what stopped a call amid the line, the next one tells
    const ssize_t written = ::write(file_.get(), line.data() + done, line.size() - done);
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  if (done == line.size()) {
    torn_ = false;
    if (deletion_.noticed())
      warn_(fmt::format(
          "--metrics {}: the file was deleted; training goes on, its records are lost", path_));
    return;
  }
  const std::string reason = because();
  if (done > 0) torn_ = !take_back(file_.get(), static_cast<ssize_t>(done));
  if (!std::exchange(warned_, true))
    warn_(fmt::format("--metrics {}: {}; training goes on, records are missing", path_, reason));
}

}  // namespace

std::unique_ptr<RecordSink> make_json_lines(const std::string& path, RecordSink::Warn warn) {
  return std::make_unique<JsonLines>(path, std::move(warn));
}

}  // namespace ringtrain::metrics
