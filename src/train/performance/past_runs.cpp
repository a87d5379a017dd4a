#include "train/performance/past_runs.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "ringtrain/base/atomic_file.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/program.hpp"
#include "ringtrain/config/option_values.hpp"

namespace ringtrain::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int format = 1;
constexpr std::uintmax_t most_bytes = 1 << 20;

void replace(const fs::path& file, const std::string& text) {
  const std::string reason =
      write_atomically(file, Durable::in_a_while, [&](std::ostream& out) { out << text << '\n'; });
  if (!reason.empty()) throw Error(Exit::storage, "write " + file.string(), reason);
}

PastRun from_json(const json& object) {
  const auto number = [&](const char* key) { return object.at(key).get<double>(); };
  PastRun speed{{number("examples_per_second"), number("deviation")},
                {},
                object.at("measured").get<std::int64_t>()};
  for (const metrics::Phase phase : metrics::ledger_phases)
    speed.phases[phase] =
        object.at("phases").at(std::string(metrics::phase_names(phase).metric)).get<double>();
  const double rate = speed.examples_per_second.median;
  if (!std::isfinite(rate) || rate <= 0) throw Error("a speed", "is not positive");
  return speed;
}

// Each configuration and build has a file of its own: of those that are not used, the oldest go.
void remove_oldest(const fs::path& folder, std::string_view kind) {
  std::error_code gone;  // another job may remove them, too
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  for (const auto& entry : fs::directory_iterator(folder, gone))
    if (const std::string name = entry.path().filename();
        name.starts_with(fmt::format("{}-", kind)) && name.ends_with(".json"))
      files.emplace_back(entry.last_write_time(gone), entry.path());
  if (files.size() <= PastRuns::most_files) return;
  const auto oldest_kept = files.end() - static_cast<std::ptrdiff_t>(PastRuns::most_files);
  std::ranges::nth_element(files, oldest_kept);
  std::for_each(files.begin(), oldest_kept, [&](const auto& f) { fs::remove(f.second, gone); });
}

}  // namespace

std::string speed_configuration(const RunPlan& plan, const std::string& device) {
  const config::Options& o = plan.options;
  const json configuration{
      {"model", plan.model.name},
      {"network", hex(plan.graph(model::Mode::training).structure_hash())},
      {"batch", plan.share.count},
      {"accumulate", o.accumulate},
      {"optimizer", config::enumerator<optim::OptimizerKind>().write(*o.optimizer)},
      {"averaged", *o.ema > 0},
      {"precision", config::enumerator<config::Precision>().write(o.precision)},
      {"data", o.data.substr(0, o.data.find(':'))},
      {"device", device},
      {"build", program_hash()}};
  return configuration.dump(-1, ' ', true, json::error_handler_t::replace);
}

std::string run_configuration(const RunPlan& plan, const std::string& device,
                              std::vector<std::string> hosts) {
  const config::Options& o = plan.options;
  std::ranges::sort(hosts);
  json configuration = json::parse(speed_configuration(plan, device));
  configuration.update({{"data", o.data},
                        {"bucket_bytes", plan.bucket_bytes()},
                        {"hosts", hosts},
                        {"shares", plan.shares_are_equal() ? std::vector<int>() : plan.shares},
                        {"threads", o.threads.value_or(0)},
                        {"data_threads", plan.data_threads},
                        {"allreduce", config::enumerator<config::Allreduce>().write(o.allreduce)},
                        {"bytes_of_sums", plan.sum_bytes()},
                        {"compressed", plan.compresses()},
                        {"shard_optimizer", o.shard_optimizer},
                        {"sync_batchnorm", o.sync_batchnorm},
                        {"deterministic", o.deterministic},
                        {"fusion", o.fusion == config::ConvolutionFusion::automatic}});
  return configuration.dump(-1, ' ', true, json::error_handler_t::replace);
}

PastRuns::PastRuns(const fs::path& folder, std::string_view kind, std::string configuration)
    : kind_(kind), configuration_(std::move(configuration)) {
  if (!folder.empty())
    file_ = folder / fmt::format("{}-{}.json", kind, hex(hash_text(configuration_)));
}

std::optional<PastRun> PastRuns::find() const try {
  if (file_.empty() || !fs::is_regular_file(file_) || fs::file_size(file_) > most_bytes)
    return std::nullopt;
  std::ifstream in(file_, std::ios::binary);
  const json all = json::parse(in);
  if (all.at("format") != format || all.at("configuration") != json::parse(configuration_))
    return std::nullopt;
  std::error_code refused;  // it is in use, so others are older
  fs::last_write_time(file_, fs::file_time_type::clock::now(), refused);
  return from_json(all);
} catch (const std::exception&) {
  return std::nullopt;  // it will be replaced
}

std::string PastRuns::keep(const PastRun& speed) const try {
  if (file_.empty()) return "";
  json phases = json::object();
  for (const metrics::Phase phase : metrics::ledger_phases)
    phases[std::string(metrics::phase_names(phase).metric)] = speed.phases[phase];
  const json all{{"format", format},
                 {"configuration", json::parse(configuration_)},
                 {"examples_per_second", speed.examples_per_second.median},
                 {"deviation", speed.examples_per_second.deviation},
                 {"phases", phases},
                 {"measured", speed.measured}};
  fs::create_directories(file_.parent_path());
  replace(file_, all.dump(1));
  remove_oldest(file_.parent_path(), kind_);
  return "";
} catch (const std::exception& failure) {
  return failure.what();
}

}  // namespace ringtrain::train
