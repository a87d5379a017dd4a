#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>
#include <variant>

#include "events.pb.h"
#include "metrics/sinks/record_sink.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/program.hpp"

namespace ringtrain::metrics {
namespace {

namespace fs = std::filesystem;
using events::Event;

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// TensorBoard reads every file of a folder with "tfevents" in its name, in the order of names.
std::string file_name() {
  return fmt::format("events.out.tfevents.{:.6f}.{}.{}", unix_time(), own_host(), ::getpid());
}

FileDescriptor open_in(const std::string& directory) {
  std::error_code failure;
  fs::create_directories(directory, failure);  // open() tells of it, too
  const std::string path = fs::path(directory) / file_name();
  FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0)
    throw Error(Exit::storage, "--tensorboard " + directory,
                std::generic_category().message(errno) + "; name a folder that can be written");
  return file;
}

void add(events::Summary& summary, const std::string& tag, double value) {
  events::Value& added = *summary.add_value();
  added.set_tag(tag);
  added.set_simple_value(static_cast<float>(value));
}

void add_over_ranks(events::Summary& summary, std::string_view what, const RankStatistics& r) {
  add(summary, fmt::format("ranks/{}_min_ms", what), 1e3 * r.min);
  add(summary, fmt::format("ranks/{}_median_ms", what), 1e3 * r.median);
  add(summary, fmt::format("ranks/{}_max_ms", what), 1e3 * r.max);
  add(summary, fmt::format("ranks/{}_max_rank", what), r.max_rank);
}

void add_ranks(events::Summary& summary, const PhaseSpread& ranks) {
  for (const Phase phase : ledger_phases)
    add_over_ranks(summary, phase_names(phase).metric, ranks[phase]);
  add_over_ranks(summary, "own_work", ranks.own_work);
}

// Markdown, for the page "Text".
void add_text(events::Summary& summary, const std::string& tag, const std::string& text) {
  constexpr int strings = 7;
  events::Value& added = *summary.add_value();
  added.set_tag(tag);
  added.mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  added.mutable_tensor()->set_dtype(strings);
  added.mutable_tensor()->mutable_tensor_shape();  // a scalar
  added.mutable_tensor()->add_string_val(text);
}

std::string as_table(const std::string& configuration) {
  std::string text = "| option | value |\n|---|---|\n";
  const auto options = nlohmann::ordered_json::parse(configuration);
  for (const auto& [name, value] : options.items())
    text += fmt::format("| {} | `{}` |\n", name, value.dump());
  return text;
}

class TensorBoard final : public RecordSink {
 public:
  TensorBoard(const std::string& directory, Warn warn)
      : directory_(directory), file_(open_in(directory)), warn_(std::move(warn)) {
    Event event;
    event.set_file_version("brain.Event:2");
    append(event);
  }

  void write(const Record& record) override {
    std::visit([this](const auto& r) { put(r); }, record);
  }

 private:
  void put(const StartRecord& record) {
    step_ = record.step + 1;  // TensorBoard drops what it has of this step and later ones
    Event start;
    start.mutable_session_log()->set_status(events::SessionLog::START);
    append(start);
    tell([&](events::Summary& summary) {
      add_text(summary, "configuration", as_table(record.configuration));
      const std::set<std::string> hosts(record.hosts.begin(), record.hosts.end());
      add_text(summary, "job",
               fmt::format("{} on {}; build {}", ranks_text(record.ranks), fmt::join(hosts, ", "),
                           record.build));
    });
  }
  void put(const StepRecord& record) {
    step_ = record.step;
    tell([&](events::Summary& summary) {
      add(summary, "train/loss", record.loss);
      add(summary, "train/learning_rate", record.learning_rate);
      add(summary, "train/epoch", record.epoch);
      add(summary, "speed/examples_per_second", record.examples_per_second);
      add(summary, "speed/seconds_per_batch", record.seconds_per_batch);
      for (const Phase phase : ledger_phases)
        add(summary, fmt::format("ledger/{}_ms", phase_names(phase).metric),
            1e3 * record.phases[phase]);
      if (record.ranks) add_ranks(summary, *record.ranks);
      if (record.sums) add(summary, "speed/bus_bandwidth", record.sums->bus_bandwidth);
    });
  }
  void put(const EvalRecord& record) {
    step_ = record.step;
    tell([&](events::Summary& summary) {
      add(summary, "evaluation/top1", record.top1);
      add(summary, "evaluation/top5", record.top5);
      add(summary, "evaluation/loss", record.loss);
    });
  }
  void put(const ClassRecord&) {}
  void put(const CheckpointRecord& record) {
    const std::int64_t step = std::exchange(step_, record.step);
    tell([&](events::Summary& summary) {
      add(summary, "checkpoint/seconds", record.seconds);
      add(summary, "checkpoint/stall_ms", 1e3 * record.stall_seconds);
      add(summary, "checkpoint/megabytes", 1e-6 * static_cast<double>(record.bytes));
    });
    step_ = step;
  }
  void put(const EventRecord& record) {
    tell([&](events::Summary& summary) {
      add_text(summary, "event/" + record.what,
               fmt::format("rank {}: {}", record.rank, record.text));
    });
  }
  void put(const ScalingResult& record) {
    tell([&](events::Summary& summary) {
      add(summary, "baseline/efficiency", record.efficiency);
      add(summary, "baseline/speed_up", record.speed_up.median);
      add_text(summary, "baseline", record.verdict);
    });
  }
  void put(const ScalingForecast& record) {
    tell([&](events::Summary& summary) {
      add(summary, "links/efficiency", record.step.efficiency());
      add(summary, "links/expected_ms", 1e3 * record.step.step_s());
    });
  }
  void put(const EndRecord&) {
    Event stop;
    stop.mutable_session_log()->set_status(events::SessionLog::STOP);
    append(stop);
  }

  template <class Fill>
  void tell(const Fill& fill) {
    Event event;
    fill(*event.mutable_summary());
    append(event);
  }

  // TensorBoard reads on from where a record was not whole yet; it skips nothing.
  void append(Event& event) {
    if (failed_) return;
    event.set_wall_time(unix_time());
    event.set_step(step_);
    const std::string record = tfrecord_frame(event.SerializeAsString());
    const ssize_t written = ::write(file_.get(), record.data(), record.size());
    if (written == static_cast<ssize_t>(record.size())) {
      if (deletion_.noticed())
        warn_(
            fmt::format("--tensorboard {}: its event file was deleted; training goes on, what is "
                        "recorded from now on is lost",
                        directory_));
      return;
    }
    failed_ = true;
    const std::string reason = written < 0 ? std::generic_category().message(errno) : "disk full";
    warn_(fmt::format("--tensorboard {}: {}; training goes on, no more is written there",
                      directory_, reason));
  }

  std::string directory_;
  FileDescriptor file_;
  DeletionWatch deletion_{file_.get()};
  Warn warn_;
  std::int64_t step_ = 0;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<RecordSink> make_tensorboard(const std::string& directory, RecordSink::Warn warn) {
  return std::make_unique<TensorBoard>(directory, std::move(warn));
}

}  // namespace ringtrain::metrics
