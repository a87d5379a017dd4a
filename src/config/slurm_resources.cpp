#include "config/slurm_resources.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <functional>

#include "ringtrain/base/text.hpp"
#include "ringtrain/config/option_values.hpp"

namespace ringtrain::config {

template <>
inline constexpr std::array names_of<StartedBy> = {"mpirun", "srun"};

namespace {

constexpr int most = 100'000;

struct Key {
  std::string name;
  std::function<void(SlurmResources&, const std::string&)> set;
  std::function<std::string(const SlurmResources&)> value;  ///< empty while it is the default
};

template <class T>
const T& known(const T& value) {
  return value;
}
template <class T>
const T& known(const std::optional<T>& value) {
  return *value;
}

template <class T, class Member>
Key key(std::string name, Member member, const Codec<T>& codec) {
  const auto set = [member, read = codec.read](SlurmResources& job, const std::string& text) {
    job.*member = read(text);
  };
  const auto value = [member, write = codec.write](const SlurmResources& job) {
    return job.*member == SlurmResources().*member ? "" : write(known(job.*member));
  };
  return {std::move(name), set, value};
}

Codec<bool> yes_or_no() {
  const auto read = [](const std::string& text) {
    if (text != "yes" && text != "no") throw BadValue("must be yes or no");
    return text == "yes";
  };
  return {read, [](const bool& value) { return value ? "yes" : "no"; }};
}

// They stand in lines that Slurm reads.
Codec<std::string> plain_name() {
  const auto read = [](const std::string& text) {
    constexpr std::string_view allowed =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+@-";
    if (text.empty() || text.find_first_not_of(allowed) != text.npos)
      throw BadValue("must be a name of letters, digits and ._+@-");
    return text;
  };
  return {read, [](const std::string& value) { return value; }};
}

Codec<double> whole_minute() {
  const auto read = [](const std::string& text) {
    const double seconds = duration(text);
    if (seconds < 60) throw BadValue("must be a minute or more: Slurm counts in minutes");
    return seconds;
  };
  return {read, duration_text};
}

Codec<double> signal_span() {
  const auto read = [](const std::string& text) {
    const double seconds = duration(text);
    if (seconds < 1 || seconds > 65'535) throw BadValue("must be from 1s to 65535s, as for Slurm");
    return seconds;
  };
  return {read, duration_text};
}

const std::vector<Key>& keys() {
  static const std::vector<Key> all = {
      key("nodes", &SlurmResources::nodes, whole(1, most)),
      key("tasks", &SlurmResources::tasks, whole(1, most)),
      key("cpus", &SlurmResources::cpus, whole(1, most)),
      key("gpus", &SlurmResources::gpus, whole(0, most)),
      key("time", &SlurmResources::time_s, whole_minute()),
      key("signal", &SlurmResources::signal_s, signal_span()),
      key("name", &SlurmResources::name, plain_name()),
      key("partition", &SlurmResources::partition, plain_name()),
      key("account", &SlurmResources::account, plain_name()),
      key("launcher", &SlurmResources::launcher, enumerator<StartedBy>()),
      key("requeue", &SlurmResources::requeue, yes_or_no()),
      key("spot", &SlurmResources::spot, yes_or_no()),
  };
  return all;
}

const Key& find(const std::string& name) {
  const auto found = std::ranges::find(keys(), name, &Key::name);
  if (found != keys().end()) return *found;
  std::vector<std::string> names;
  for (const Key& one : keys()) names.push_back(one.name);
  throw BadValue(fmt::format("has no key '{}' (there are {}){}", name, joined(names, ", "),
                             did_you_mean(name, names)));
}

}  // namespace

SlurmResources batch_job(const std::string& text) {
  SlurmResources job;
  for (const std::string& part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == part.npos)
      throw BadValue(fmt::format("must be KEY=VALUE,... as nodes=4,time=2h; '{}' is none", part));
    const std::string name = part.substr(0, equals);
    const Key& named = find(name);
    try {
      named.set(job, part.substr(equals + 1));
    } catch (const BadValue& bad) {
      throw BadValue(named.name + " " + bad.what());
    }
  }
  return job;
}

std::string to_string(const SlurmResources& job) {
  std::vector<std::string> parts;
  for (const Key& one : keys())
    if (const std::string value = one.value(job); !value.empty())
      parts.push_back(one.name + "=" + value);
  return parts.empty() ? "nodes=1" : joined(parts, ",");
}

}  // namespace ringtrain::config
