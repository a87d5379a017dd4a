// What a copy of the training state into a slot costs the step loop, by how it is made;
// interleaved. Usage: snapshot_bench [MB of weights and momentum] [ROUNDS] [THREADS]
#include <fmt/core.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "io/checkpoint_writer/writer_protocol.hpp"
#include "optim/optimizer_kernels.hpp"
#include "ringtrain/base/memory/memory.hpp"
#include "ringtrain/host/stream_copy.hpp"

using namespace ringtrain;

namespace {

constexpr std::size_t chunk = 4096;  // as the optimizer's
constexpr optim::kernels::Factors factors{.scale = 1,
                                          .decay = 1e-4f,
                                          .lr = 0.1f,
                                          .momentum = 0.9f,
                                          .mean_square_decay = 0,
                                          .beta1 = 0,
                                          .beta2 = 0,
                                          .epsilon = 0,
                                          .root_scale = 1,
                                          .shrink = 1};

struct Candidate {
  std::string name;
  std::function<void()> run;
  std::vector<double> milliseconds{};
};

/// Weights, momentum and gradients of `count` parameters, and a slot as CheckpointWriter has them.
class Buffers {
 public:
  explicit Buffers(std::size_t count)
      : count_(count),
        w_(memory_.allocate(count)),
        m_(memory_.allocate(count)),
        g_(memory_.allocate(count)),
        slot_(io::MappedMemory::create("slot", 2 * count * sizeof(float))) {}

  void update(bool copying) {
#pragma omp parallel for schedule(static)
    for (std::size_t first = 0; first < count_; first += chunk) {
      const std::size_t size = std::min(chunk, count_ - first);
      float *w = w_.view().data() + first, *m = m_.view().data() + first;
      optim::kernels::momentum({w, g_.view().data() + first, m, nullptr, size}, factors);
      if (copying) {
        host::stream_copy({w, size}, {slot() + first, size});
        host::stream_copy({m, size}, {slot() + count_ + first, size});
      }
    }
  }
  void copy_by_memcpy() {
    std::memcpy(slot(), w_.view().data(), count_ * sizeof(float));
    std::memcpy(slot() + count_, m_.view().data(), count_ * sizeof(float));
  }
  void copy_streaming(int threads) {
    const int all = omp_get_max_threads();
    omp_set_num_threads(threads);
    host::stream_copy(w_.view().host(), {slot(), count_});
    host::stream_copy(m_.view().host(), {slot() + count_, count_});
    omp_set_num_threads(all);
  }

 private:
  float* slot() { return reinterpret_cast<float*>(slot_.bytes().data()); }

  std::size_t count_;
  HostMemory memory_;
  Buffer w_, m_, g_;
  io::MappedMemory slot_;
};

void measure(Candidate& candidate) {
  const auto start = std::chrono::steady_clock::now();
  candidate.run();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  candidate.milliseconds.push_back(took.count());
}

void print(Candidate& candidate) {
  auto& all = candidate.milliseconds;
  const double first = all.front();
  std::ranges::sort(all);
  fmt::print("{:<44} first {:7.2f}, least {:7.2f}, median {:7.2f} ms\n", candidate.name, first,
             all.front(), all[all.size() / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  const double megabytes = argc > 1 ? std::atof(argv[1]) : 205;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 21;
  const int threads = argc > 3 ? std::atoi(argv[3]) : omp_get_max_threads();
  omp_set_num_threads(threads);
  Buffers buffers(static_cast<std::size_t>(megabytes * 1e6 / 8));

  std::vector<Candidate> candidates{
      {"copy: memcpy, one thread", [&] { buffers.copy_by_memcpy(); }},
      {"copy: streaming stores, one thread", [&] { buffers.copy_streaming(1); }},
      {"copy: streaming stores, all threads", [&] { buffers.copy_streaming(threads); }},
      {"update", [&] { buffers.update(false); }},
      {"update, each chunk streamed while in cache", [&] { buffers.update(true); }}};
  for (int round = 0; round < rounds; ++round)
    for (Candidate& candidate : candidates) measure(candidate);

  fmt::print("{} MB, {} threads, {} rounds\n", megabytes, threads, rounds);
  for (Candidate& candidate : candidates) print(candidate);
}
