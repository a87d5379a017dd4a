// emulated_steps [KEY=NUMBER...], under mpirun: training steps that sleep where others compute, and
// sum gradients as training does: what a step takes beyond computing, on more hosts than there are
// cores. Rank 0 prints one JSON object. The keys and their defaults are in Settings.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"
#include "ringtrain/allreduce/hierarchical/tune_ring.hpp"
#include "ringtrain/allreduce/make_communicator.hpp"
#include "ringtrain/base/philox.hpp"

using namespace ringtrain;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::size_t pieces = 16;  // of the backward pass, after each of which gradients are final
constexpr std::size_t kib = 256;    // floats

struct Settings {
  std::map<std::string, std::size_t> values{
      {"mbit", 0},                               // of the links, only told
      {"delay_ms", 0},                           // from host to host, only told
      {"kib", 4096},                             // of gradients
      {"bucket_kib", 512}, {"compute_ms", 100},  // a step, a third of it forward
      {"jitter_pct", 0},  // standard deviation of a rank's computing in a step
      {"at_once", 0},     // sums; 0: as measure_ring() finds
      {"warm_up", 5},      {"steps", 40},
  };

  void read(std::string_view argument) {
    const auto equals = argument.find('=');
    const auto found = values.find(std::string(argument.substr(0, equals)));
    if (equals == std::string_view::npos || found == values.end())
      throw Error(Exit::usage, std::string(argument), "no such setting");
    found->second = std::stoul(std::string(argument.substr(equals + 1)));
  }
  std::size_t operator[](const std::string& key) const { return values.at(key); }
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void sleep_until(Clock::time_point begin, double seconds) {
  std::this_thread::sleep_until(
      begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
}

// What a rank saw of its steps, in seconds.
struct Seen {
  std::vector<double> steps, computing;
};

class EmulatedRank {
 public:
  EmulatedRank(const Settings& settings, const allreduce::MpiSession& session,
               allreduce::Communicator& communicator)
      : settings_(settings),
        random_(static_cast<std::uint64_t>(session.rank()), Purpose::synthetic),
        gradients_(communicator.memory().allocate(settings["kib"] * kib)),
        reducer_(communicator, gradients_, settings["bucket_kib"] * 1024) {}

  Seen run() {
    Seen seen;
    auto begin = Clock::now();
    for (std::size_t step = 0; step < settings_["warm_up"] + settings_["steps"]; ++step) {
      const double computing = compute(begin);
      reducer_.finish();
      if (step >= settings_["warm_up"]) {
        seen.steps.push_back(seconds_since(begin));
        seen.computing.push_back(computing);
      }
      begin = Clock::now();
    }
    return seen;
  }

 private:
  double compute(Clock::time_point begin) {
    const double jitter = static_cast<double>(settings_["jitter_pct"]) / 100;
    const double seconds = static_cast<double>(settings_["compute_ms"]) / 1000 *
                           std::max(0.1, 1 + jitter * random_.normal());
    for (std::size_t left = pieces; left-- > 0;) {
      const double done = double(pieces - left) / pieces;
      sleep_until(begin, seconds * (1 + 2 * done) / 3);
      reducer_.final_from(gradients_.view().size() * left / pieces);
    }
    return seconds_since(begin);
  }

  const Settings& settings_;
  Philox random_;
  const Buffer gradients_;
  allreduce::GradientReducer reducer_;
};

// Percentiles 0, 5, ..., 100, the mean of those of all ranks.
std::vector<double> percentiles(std::vector<double> values, const allreduce::MpiSession& session) {
  std::ranges::sort(values);
  std::vector<double> found;
  for (int p = 0; p <= 100; p += 5)
    found.push_back(values[(values.size() - 1) * std::size_t(p) / 100] / session.size());
  session.sum(found);
  return found;
}

void print(const Settings& settings, const allreduce::MpiSession& session,
           const allreduce::RingChoice& ring, const Seen& seen,
           const std::vector<double>& computing) {
  if (session.rank() != 0) return;
  std::string text = fmt::format(R"({{"hosts":{},"ranks":{})", session.hosts(), session.size());
  for (const auto& [key, value] : settings.values) text += fmt::format(R"(,"{}":{})", key, value);
  fmt::print(R"({},"chosen_at_once":{},"hop_s":{:.4g},"bytes_a_second":{:.4g},"sum_s":{:.4g},)",
             text, ring.plan.at_once, ring.measured.hop_s, ring.measured.bytes_a_second,
             ring.seconds);
  fmt::print("\"computing_s\":[{:.5g}],\"step_s\":[{:.5g}]}}\n", fmt::join(computing, ","),
             fmt::join(seen.steps, ","));
}

void measure(const Settings& settings, const allreduce::MpiSession& session) {
  const double bucket = static_cast<double>(settings["bucket_kib"]) * 1024;
  allreduce::RingChoice ring =
      allreduce::choose_ring(allreduce::measure_ring(session, bucket), bucket);
  if (settings["at_once"] > 0) ring.plan.at_once = static_cast<int>(settings["at_once"]);
  const auto communicator = allreduce::make_communicator(
      "ring", session, {.ring = ring.plan.ring, .at_once = ring.plan.at_once, .crowded = true});
  const Seen seen = EmulatedRank(settings, session, *communicator).run();
  print(settings, session, ring, seen, percentiles(seen.computing, session));
}

}  // namespace

int main(int argc, char** argv) {
  const allreduce::MpiSession session;
  try {
    Settings settings;
    for (int i = 1; i < argc; ++i) settings.read(argv[i]);
    measure(settings, session);
  } catch (const std::exception& failure) {
    session.abort(failure);
  }
}
