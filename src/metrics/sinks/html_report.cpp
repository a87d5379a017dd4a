#include <fmt/chrono.h>
#include <fmt/core.h>

#include <ctime>
#include <utility>
#include <variant>

#include "metrics/sinks/record_sink.hpp"
#include "metrics/sinks/run_history.hpp"
#include "ringtrain/base/atomic_file.hpp"
#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::metrics {
namespace {

constexpr double rewrite_s = 60;
constexpr std::size_t most_remembered = 4000;  // remembered; then of two neighbours one

class Report final : public RecordSink {
 public:
  Report(const std::string& path, Warn warn) : path_(path), warn_(std::move(warn)) {
    if (const std::string reason = why_unwritable(path); !reason.empty())
      throw Error(Exit::storage, "--report " + path, reason + "; name a file that can be written");
  }

  void write(const Record& record) override {
    std::visit([this](const auto& r) { keep(r); }, record);
  }

 private:
  void keep(const StartRecord& record) {
    run_.start = record;
    watch_.lap();
    publish();
  }
  void keep(const StepRecord& record) {
    run_.steps.push_back({watch_.elapsed(), record});
    if (run_.steps.size() > most_remembered) forget_every_other();
    if (watch_.elapsed() - written_s_ > rewrite_s) publish();
  }
  void keep(const EvalRecord& record) {
    run_.evaluations.push_back({watch_.elapsed(), record});
    publish();
  }
  void keep(const ClassRecord& record) {
    run_.classes = record;
    publish();
  }
  void keep(const CheckpointRecord& record) {
    run_.checkpoints.push_back({watch_.elapsed(), record});
  }
  void keep(const EventRecord& record) { run_.events.push_back({watch_.elapsed(), record}); }
  void keep(const ScalingResult& record) {
    run_.baseline = record;
    publish();
  }
  void keep(const ScalingForecast& record) { run_.links = record; }
  void keep(const EndRecord& record) {
    run_.end = record;
    publish();
  }

  void forget_every_other() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < run_.steps.size(); i += 2)
      run_.steps[kept++] = std::move(run_.steps[i]);
    run_.steps.resize(kept);
  }

  void publish() {
    written_s_ = watch_.elapsed();
    const std::string reason = try_to_write();
    if (!reason.empty() && !std::exchange(warned_, true))
      warn_(fmt::format("--report {}: {}; training goes on", path_, reason));
  }

  // Why not; empty: it is there.
  std::string try_to_write() {
    // Only the last is worth waiting for the disk: the step loop would.
    const Durable durable = run_.end ? Durable::yes : Durable::in_a_while;
    return write_output(path_, durable, [this](std::ostream& file) {
      file << report_page(run_,
                          fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr))));
    });
  }

  std::string path_;
  Warn warn_;
  RunHistory run_;
  Stopwatch watch_;
  double written_s_ = 0;
  bool warned_ = false;
};

}  // namespace

std::unique_ptr<RecordSink> make_report(const std::string& path, RecordSink::Warn warn) {
  return std::make_unique<Report>(path, std::move(warn));
}

}  // namespace ringtrain::metrics
