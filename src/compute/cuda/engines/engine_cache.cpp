#include "compute/cuda/engines/engine_cache.hpp"

#include <fmt/core.h>

#include <cctype>
#include <exception>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "ringtrain/base/atomic_file.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::compute::cuda {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// 1: fused engines that nobody had checked; 2, 3: times of a warm L2 cache, of all runs and of most
constexpr int format = 4;
constexpr std::uintmax_t most_bytes = 16 << 20;

// Of a device's name, what every file system takes.
std::string file_name(const EngineScope& scope) {
  std::string name = fmt::format("engines-cudnn{}-sm{}-{}{}.json", scope.cudnn, scope.capability,
                                 scope.device, scope.deterministic ? "-deterministic" : "");
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  return name;
}

json head_of(const EngineScope& scope) {
  return {{"format", format},
          {"cudnn", scope.cudnn},
          {"device", scope.device},
          {"capability", scope.capability},
          {"deterministic", scope.deterministic}};
}

json to_json(const RequestKey& request, const Choice& choice) {
  return {{"pattern", request.first}, {"shape", request.second},   {"place", choice.place},
          {"engine", choice.engine},  {"us", choice.microseconds}, {"workspace", choice.workspace}};
}

std::pair<RequestKey, Choice> from_json(const json& object) {
  const auto text = [&](const char* key) { return object.at(key).get<std::string>(); };
  return {{text("pattern"), text("shape")},
          {object.at("place").get<std::size_t>(), text("engine"), object.at("us").get<double>(),
           object.at("workspace").get<std::size_t>()}};
}

Error unusable(std::string_view why) { return Error(Exit::storage, "no engine choices", why); }

std::string text_of(const fs::path& file) {
  if (!fs::is_regular_file(file)) throw unusable("it is no regular file");
  if (fs::file_size(file) > most_bytes) throw unusable("it is too large");
  std::ifstream in(file, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in) throw unusable("it cannot be read");
  return text;
}

void replace(const fs::path& file, const std::string& text) {
  const std::string reason =
      write_atomically(file, Durable::in_a_while, [&](std::ostream& out) { out << text << '\n'; });
  if (!reason.empty()) throw Error(Exit::storage, "write " + file.string(), reason);
}

}  // namespace

EngineCache::EngineCache(const fs::path& folder, EngineScope scope) : scope_(std::move(scope)) {
  if (folder.empty()) return;
  file_ = folder / file_name(scope_);
  known_ = read(true);
}

const Choice* EngineCache::find(const RequestKey& request) const {
  const auto found = known_.find(request);
  return found == known_.end() ? nullptr : &found->second;
}

EngineCache::Choices EngineCache::parse(const std::string& text) const {
  const json all = json::parse(text);
  const json head = head_of(scope_);
  for (const auto& [key, value] : head.items())
    if (all.at(key) != value) throw unusable("it is of another " + key);
  Choices choices;
  for (const json& object : all.at("choices")) choices.insert(from_json(object));
  return choices;
}

// Whatever is wrong with the file, there is nothing to use.
EngineCache::Choices EngineCache::read(bool tell) try {
  return fs::exists(file_) ? parse(text_of(file_)) : Choices();
} catch (const std::exception& failure) {
  if (tell)
    notes_.push_back(
        fmt::format("engine choices in {} are passed over: {}", file_.string(), failure.what()));
  return {};
}

std::string EngineCache::name() const { return file_name(scope_); }

std::string EngineCache::text() const {
  Choices all_choices = added_;
  all_choices.insert(known_.begin(), known_.end());
  json all = head_of(scope_);
  json& choices = all["choices"] = json::array();
  for (const auto& [request, choice] : all_choices) choices.push_back(to_json(request, choice));
  return all.dump(1, ' ', true, json::error_handler_t::replace);
}

void EngineCache::follow(const std::string& text) {
  known_ = parse(text);
  added_.clear();
  file_.clear();
}

void EngineCache::save() try {
  if (added_.empty() || file_.empty()) return;
  for (auto& [request, choice] : read(false)) known_[request] = std::move(choice);
  for (auto& [request, choice] : std::exchange(added_, {})) known_[request] = std::move(choice);
  fs::create_directories(file_.parent_path());
  replace(file_, text());
} catch (const std::exception& failure) {
  notes_.push_back(fmt::format("engine choices are not kept: {}", failure.what()));
}

}  // namespace ringtrain::compute::cuda
