// allreduce_bench sizes|overlap|wire [KEY=NUMBER...], under mpirun: how fast gradients are summed.
//
// sizes: our ring against MPI_Allreduce and, between hosts, one plain TCP stream and one in both
// directions at once, in turn.
// overlap: a step that computes `compute_ms` in 8 pieces (`idle`: sleeps, as if a GPU computed) and
// sums `kib`, with and without overlap.
// wire: sums between hosts whose numbers travel as fp32, fp16 and bf16, in turn.
// The keys and their defaults are in Settings.
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/tcp_stream.hpp"
#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"
#include "ringtrain/allreduce/make_communicator.hpp"

using namespace ringtrain;

namespace {

struct Settings {
  std::map<std::string, std::size_t> values{
      {"rounds", 15},
      {"from_kib", 64},
      {"to_kib", 65536},
      {"kib", 4200},
      {"compute_ms", 100},
      {"idle", 0},
      {"bucket_kib", allreduce::GradientReducer::default_bucket_bytes / 1024},
      {"ranks_a_host", 0},
      {"at_once", 1},
      {"overlap", 1},
      {"window", allreduce::RingTuning().window},
      {"smallest_kib", allreduce::RingTuning().smallest_segment / 256},
      {"largest_kib", allreduce::RingTuning().largest_segment / 256}};

  void read(std::string_view argument) {
    const auto equals = argument.find('=');
    const auto found = values.find(std::string(argument.substr(0, equals)));
    if (equals == std::string_view::npos || found == values.end())
      throw Error(Exit::usage, std::string(argument), "no such setting");
    found->second = std::stoul(std::string(argument.substr(equals + 1)));
  }
  std::size_t operator[](const std::string& key) const { return values.at(key); }
  allreduce::CommunicatorOptions communicator(const allreduce::MpiSession& session,
                                              bool overlap) const {
    return {{(*this)["largest_kib"] * 256, (*this)["smallest_kib"] * 256, (*this)["window"]},
            overlap,
            static_cast<int>((*this)["at_once"]),
            static_cast<int>((*this)["ranks_a_host"]),
            session.local_size() > ::get_nprocs()};
  }
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Median of the middle, and how far from it the runs usually are, as a fraction.
std::string with_spread(const std::vector<double>& values, double scale) {
  const double middle = median(values);
  std::vector<double> off;
  for (const double value : values) off.push_back(std::abs(value - middle));
  return fmt::format("{:8.3f} ±{:3.0f}%", scale * middle, 148.26 * median(off) / middle);
}

// Seconds of one call, of the slowest rank; right on rank 0 only.
double time_of(const allreduce::MpiSession& session, std::size_t calls,
               const std::function<void()>& call) {
  session.barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < calls; ++i) call();
  const double mine = seconds_since(begin) / static_cast<double>(calls);
  double slowest = 0;
  for (const auto& text : session.gather(fmt::format("{}", mine)))
    slowest = std::max(slowest, std::stod(text));
  return slowest;
}

void measure_sizes(const allreduce::MpiSession& session, const Settings& settings) {
  const auto ring = allreduce::make_communicator(
      "ring", session, settings.communicator(session, settings["overlap"] != 0));
  const auto mpi = allreduce::make_communicator("mpi", session);
  std::optional<TcpStream> stream;
  if (session.hosts() > 1) stream.emplace(session);
  const std::size_t most = settings["to_kib"] * 256;
  const Buffer ring_memory = ring->memory().allocate(most);
  const Buffer mpi_memory = mpi->memory().allocate(most);
  const double n = session.size(), bus = 2 * (n - 1) / n;
  if (session.rank() == 0)
    fmt::print(
        "{} ranks on {} hosts; GB/s; bus bandwidth = bytes / seconds * 2(n-1)/n\n"
        "{:>9} {:>15} {:>15} {:>7} {:>9} {:>15} {:>9} {:>15} {:>9}\n",
        session.size(), session.hosts(), "KiB", "ring algbw", "MPI algbw", "ratio", "ring bus",
        stream ? "TCP stream" : "", stream ? "bus/TCP" : "", stream ? "TCP both ways" : "",
        stream ? "bus/both" : "");
  for (std::size_t kib = settings["from_kib"]; kib <= settings["to_kib"]; kib *= 4) {
    const std::size_t bytes = kib * 1024;
    const auto sum = [&](allreduce::Communicator& communicator, const Buffer& memory) {
      communicator.start_allreduce(memory.view().slice(0, bytes / sizeof(float)));
      communicator.finish();
    };
    // A call of about 5 ms is longer than what a barrier leaves uneven.
    const double once = time_of(session, 2, [&] { sum(*ring, ring_memory); });
    const auto calls = std::stoul(
        session.broadcast(std::to_string(static_cast<int>(std::clamp(0.005 / once, 1.0, 500.0)))));
    std::vector<double> ring_rates, mpi_rates, stream_rates, both_rates, ratios;
    for (std::size_t round = 0; round < settings["rounds"]; ++round) {
      const double size = static_cast<double>(bytes) * 1e-9;
      ring_rates.push_back(size / time_of(session, calls, [&] { sum(*ring, ring_memory); }));
      mpi_rates.push_back(size / time_of(session, calls, [&] { sum(*mpi, mpi_memory); }));
      ratios.push_back(ring_rates.back() / mpi_rates.back());
      if (!stream) continue;
      stream_rates.push_back(size / time_of(session, calls, [&] { stream->carry(bytes); }));
      both_rates.push_back(size / time_of(session, calls, [&] { stream->exchange(bytes); }));
    }
    if (session.rank() != 0) continue;
    fmt::print("{:>9} {:>15} {:>15} {:>7.2f} {:>9.3f}", kib, with_spread(ring_rates, 1),
               with_spread(mpi_rates, 1), median(ratios), bus * median(ring_rates));
    if (stream)
      for (const auto& rates : {stream_rates, both_rates})
        fmt::print(" {:>15} {:>9.3f}", with_spread(rates, 1),
                   bus * median(ring_rates) / median(rates));
    fmt::print("\n");
    std::fflush(stdout);
  }
}

void measure_wire(const allreduce::MpiSession& session, const Settings& settings) {
  const auto ring =
      allreduce::make_communicator("ring", session, settings.communicator(session, true));
  const Buffer memory = ring->memory().allocate(settings["to_kib"] * 256);
  if (session.rank() == 0)
    fmt::print("{} ranks on {} hosts; milliseconds a sum\n{:>9} {:>15} {:>15} {:>6} {:>15} {:>6}\n",
               session.size(), session.hosts(), "KiB", "fp32", "fp16", "ratio", "bf16", "ratio");
  for (std::size_t kib = settings["from_kib"]; kib <= settings["to_kib"]; kib *= 4) {
    std::map<Element, std::vector<double>> times, ratios;
    for (std::size_t round = 0; round < settings["rounds"]; ++round)
      for (const Element wire : {Element::fp32, Element::fp16, Element::bf16}) {
        times[wire].push_back(time_of(session, 1, [&] {
          ring->start_allreduce(memory.view().slice(0, kib * 256), {.wire = wire});
          ring->finish();
        }));
        ratios[wire].push_back(times[Element::fp32].back() / times[wire].back());
      }
    if (session.rank() != 0) continue;
    fmt::print("{:>9} {:>15}", kib, with_spread(times[Element::fp32], 1e3));
    for (const Element wire : {Element::fp16, Element::bf16})
      fmt::print(" {:>15} {:>6.2f}", with_spread(times[wire], 1e3), median(ratios[wire]));
    fmt::print("\n");
    std::fflush(stdout);
  }
}

// Arithmetic that needs nothing but a core.
double compute(std::size_t iterations) {
  double x = 0.5;
  for (std::size_t i = 0; i < iterations; ++i) x = x * 0.999999 + 1e-7;
  return x;
}

std::size_t iterations_for(const allreduce::MpiSession& session, double seconds) {
  std::size_t iterations = 20'000'000;
  volatile double keep = 0;
  // again with what came out: a core that has just woken, or was just lent, is slow at first
  for (int trial = 0; trial < 4; ++trial) {
    std::vector<double> times;
    for (int i = 0; i < 5; ++i)
      times.push_back(time_of(session, 1, [&] { keep = compute(iterations); }));
    const double factor = seconds / median(times);
    iterations = std::stoul(session.broadcast(
        std::to_string(static_cast<std::size_t>(static_cast<double>(iterations) * factor))));
  }
  return iterations;
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](timeval t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

void measure_overlap(const allreduce::MpiSession& session, const Settings& settings) {
  constexpr std::size_t pieces = 8;
  const std::size_t count = settings["kib"] * 256;
  const std::size_t iterations =
      iterations_for(session, static_cast<double>(settings["compute_ms"]) * 1e-3) / pieces;
  const auto with =
      allreduce::make_communicator("ring", session, settings.communicator(session, true));
  const auto without =
      allreduce::make_communicator("ring", session, settings.communicator(session, false));
  const Buffer memory_with = with->memory().allocate(count);
  const Buffer memory_without = without->memory().allocate(count);
  const std::size_t bucket = settings["bucket_kib"] * 1024;
  allreduce::GradientReducer overlapped(*with, memory_with, bucket),
      plain(*without, memory_without, bucket);
  volatile double keep = 0;
  const auto step = [&](allreduce::GradientReducer* reducer, bool computes) {
    for (std::size_t left = pieces; left-- > 0;) {
      if (computes && settings["idle"])
        std::this_thread::sleep_for(std::chrono::milliseconds(settings["compute_ms"]) / pieces);
      else if (computes)
        keep = compute(iterations);
      if (reducer != nullptr) reducer->final_from(count * left / pieces);
    }
    if (reducer != nullptr) reducer->finish();
  };
  std::map<std::string, std::vector<double>> times;
  std::vector<double> against_longest, cores;
  for (std::size_t round = 0; round < settings["rounds"]; ++round) {
    const auto time = [&](allreduce::GradientReducer* reducer, bool computes) {
      return time_of(session, 1, [&] { step(reducer, computes); });
    };
    const double alone = time(nullptr, true);
    const double cpu_before = cpu_seconds();
    double cpu = 0;
    const double exchange = time_of(session, 1, [&] {
      step(&plain, false);
      cpu = cpu_seconds() - cpu_before;
    });
    cores.push_back(cpu / exchange);
    times["compute alone"].push_back(alone);
    times["exchange alone"].push_back(exchange);
    times["step, overlap off"].push_back(time(&plain, true));
    times["step, overlap on"].push_back(time(&overlapped, true));
    against_longest.push_back(times["step, overlap on"].back() / std::max(alone, exchange));
  }
  if (session.rank() != 0) return;
  fmt::print("{} ranks on {} hosts, {} KiB in buckets of {} KiB; milliseconds\n", session.size(),
             session.hosts(), settings["kib"], settings["bucket_kib"]);
  for (const auto& [what, values] : times)
    fmt::print("{:>20} {}\n", what, with_spread(values, 1e3));
  fmt::print("{:>20} {:8.3f}\n{:>20} {:8.3f}\n", "on / longer alone", median(against_longest),
             "cores exchanging", median(cores));
}

}  // namespace

int main(int argc, char** argv) {
  const allreduce::MpiSession session;
  try {
    const std::string mode = argc > 1 ? argv[1] : "";
    Settings settings;
    for (int i = 2; i < argc; ++i) settings.read(argv[i]);
    if (mode == "sizes")
      measure_sizes(session, settings);
    else if (mode == "overlap")
      measure_overlap(session, settings);
    else if (mode == "wire")
      measure_wire(session, settings);
    else
      session.fail_together("allreduce_bench sizes|overlap|wire [KEY=NUMBER...]", Exit::usage);
  } catch (const std::exception& failure) {
    session.abort(failure);
  }
}
