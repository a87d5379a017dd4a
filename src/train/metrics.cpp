#include "ringtrain/train/metrics.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "ringtrain/base/error.hpp"

namespace ringtrain {
namespace {

using Json = nlohmann::ordered_json;

std::string because() { return std::generic_category().message(errno); }

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
  for (std::size_t i = 0; i < phase_names.size(); ++i)
    object[std::string(phase_names[i])] = nine_digits(phases.seconds[i]);
  return object;
}

Json named(const OverRanks& r) {
  return {{"min", nine_digits(r.min)},
          {"median", nine_digits(r.median)},
          {"max", nine_digits(r.max)},
          {"max_rank", r.max_rank}};
}

Json named(const PhasesOfRanks& ranks) {
  Json object = Json::object();
  for (std::size_t i = 0; i < phase_names.size(); ++i)
    object[std::string(phase_names[i])] = named(ranks.phases[i]);
  object["own_work"] = named(ranks.own_work);
  return object;
}

std::string line_of(const Json& record) {
  return record.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Metrics::Metrics(const std::string& path, Warn warn)
    : path_(path),
      file_(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666)),
      warn_(std::move(warn)) {
  if (file_.get() < 0)
    throw Error(Exit::storage, "--metrics " + path,
                because() + "; name a file that can be written");
  torn_ = ends_inside_a_line(file_.get());
}

void Metrics::append(const std::string& record) {
  const std::string line = (torn_ ? "\n" : "") + record;
  const ssize_t written = ::write(file_.get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) {
    torn_ = false;
    return;
  }
  const std::string reason = written < 0 ? because() : "no space for a whole line";
  if (written > 0) torn_ = !take_back(file_.get(), written);
  if (!std::exchange(warned_, true))
    warn_(fmt::format("--metrics {}: {}; training goes on, records are missing", path_, reason));
}

void Metrics::write(const StartRecord& r) {
  append(line_of({{"kind", "start"},
                  {"configuration", Json::parse(r.configuration)},
                  {"build", r.build},
                  {"ranks", r.ranks},
                  {"hosts", r.hosts}}));
}

void Metrics::write(const StepRecord& r) {
  Json record = {{"kind", "step"},
                 {"step", r.step},
                 {"epoch", nine_digits(r.epoch)},
                 {"loss", nine_digits(r.loss)},
                 {"lr", nine_digits(r.learning_rate)},
                 {"examples_per_second", nine_digits(r.examples_per_second)},
                 {"seconds_per_batch", nine_digits(r.seconds_per_batch)},
                 {"phases", named(r.phases)}};
  if (r.ranks) record["phases_of_ranks"] = named(*r.ranks);
  append(line_of(record));
}

void Metrics::write(const EvalRecord& r) {
  append(line_of({{"kind", "eval"},
                  {"step", r.step},
                  {"top1", nine_digits(r.top1)},
                  {"top5", nine_digits(r.top5)},
                  {"loss", nine_digits(r.loss)},
                  {"examples", r.examples}}));
}

void Metrics::write(const CheckpointRecord& r) {
  append(line_of({{"kind", "checkpoint"},
                  {"step", r.step},
                  {"file", r.file},
                  {"bytes", r.bytes},
                  {"seconds", nine_digits(r.seconds)},
                  {"stall_seconds", nine_digits(r.stall_seconds)}}));
}

void Metrics::write(const EventRecord& r) {
  append(line_of({{"kind", "event"}, {"what", r.what}, {"rank", r.rank}, {"text", r.text}}));
}

void Metrics::write(const Comparison& r) {
  const auto spread = [](const Spread& s) {
    return Json{{"median", nine_digits(s.median)}, {"deviation", nine_digits(s.deviation)}};
  };
  append(line_of({{"kind", "baseline"},
                  {"alone", spread(r.alone)},
                  {"together", spread(r.together)},
                  {"speed_up", spread(r.speed_up)},
                  {"efficiency", nine_digits(r.efficiency)},
                  {"verdict", r.verdict}}));
}

void Metrics::write(const EndRecord& r) {
  Json ranks = Json::array();
  for (const PhaseSeconds& phases : r.ranks) ranks.push_back(named(phases));
  append(line_of({{"kind", "end"},
                  {"steps", r.steps},
                  {"examples", r.examples},
                  {"seconds", nine_digits(r.seconds)},
                  {"examples_per_second", nine_digits(r.examples_per_second)},
                  {"top1", r.top1 ? nine_digits(*r.top1) : Json()},
                  {"phases_of_ranks", ranks}}));
}

}  // namespace ringtrain
