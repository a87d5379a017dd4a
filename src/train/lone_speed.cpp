#include "train/lone_speed.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "train/identity.hpp"
#include "train/option_values.hpp"

namespace ringtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int format = 1;
constexpr std::uintmax_t most_bytes = 1 << 20;

void replace(const fs::path& file, const std::string& text) {
  // A process of the same number may run on another host.
  const fs::path temporary = fmt::format("{}.{}-{:x}", file.string(), ::getpid(), ::gethostid());
  std::ofstream out(temporary, std::ios::binary);
  out << text << '\n' << std::flush;
  std::error_code failure;
  if (out) fs::rename(temporary, file, failure);
  if (out && !failure) return;
  std::error_code ignored;
  fs::remove(temporary, ignored);
  throw Error(Exit::storage, "write " + file.string(),
              failure ? failure.message() : "the file system refuses");
}

LoneSpeed from_json(const json& object) {
  const auto number = [&](const char* key) { return object.at(key).get<double>(); };
  LoneSpeed speed{{number("examples_per_second"), number("deviation")},
                  {},
                  object.at("measured").get<std::int64_t>()};
  for (std::size_t p = 0; p < phase_names.size(); ++p)
    speed.phases.seconds[p] = object.at("phases").at(std::string(phase_names[p])).get<double>();
  const double rate = speed.examples_per_second.median;
  if (!std::isfinite(rate) || rate <= 0) throw Error("a speed", "is not positive");
  return speed;
}

}  // namespace

std::string speed_configuration(const Plan& plan, const std::string& device) {
  const Options& o = plan.options;
  const json configuration{{"model", plan.model.name},
                           {"network", hex(plan.model.graph.structure_hash())},
                           {"batch", plan.share.count},
                           {"accumulate", o.accumulate},
                           {"optimizer", enumerator<OptimizerKind>().write(*o.optimizer)},
                           {"averaged", *o.ema > 0},
                           {"precision", enumerator<Precision>().write(o.precision)},
                           {"data", o.data.substr(0, o.data.find(':'))},
                           {"device", device},
                           {"build", program_hash()}};
  return configuration.dump(-1, ' ', true, json::error_handler_t::replace);
}

LoneSpeeds::LoneSpeeds(fs::path folder, std::string configuration)
    : configuration_(std::move(configuration)) {
  if (!folder.empty())
    file_ = folder / fmt::format("one-rank-{}.json", hex(hash_text(configuration_)));
}

std::optional<LoneSpeed> LoneSpeeds::find() const try {
  if (file_.empty() || !fs::is_regular_file(file_) || fs::file_size(file_) > most_bytes)
    return std::nullopt;
  std::ifstream in(file_, std::ios::binary);
  const json all = json::parse(in);
  if (all.at("format") != format || all.at("configuration") != json::parse(configuration_))
    return std::nullopt;
  return from_json(all);
} catch (const std::exception&) {
  return std::nullopt;  // it will be replaced
}

std::string LoneSpeeds::keep(const LoneSpeed& speed) const try {
  if (file_.empty()) return "";
  json phases = json::object();
  for (std::size_t p = 0; p < phase_names.size(); ++p)
    phases[std::string(phase_names[p])] = speed.phases.seconds[p];
  const json all{{"format", format},
                 {"configuration", json::parse(configuration_)},
                 {"examples_per_second", speed.examples_per_second.median},
                 {"deviation", speed.examples_per_second.deviation},
                 {"phases", phases},
                 {"measured", speed.measured}};
  fs::create_directories(file_.parent_path());
  replace(file_, all.dump(1));
  return "";
} catch (const std::exception& failure) {
  return failure.what();
}

}  // namespace ringtrain
