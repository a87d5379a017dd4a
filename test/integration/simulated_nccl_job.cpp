// Under mpirun, on simulated GPUs: what the communicator makes of the simulated NCCL, and what that
// one promises.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "allreduce/nccl/nccl_api.hpp"
#include "allreduce/nccl/nccl_communicator.hpp"
#include "compute/cuda/runtime/runtime.hpp"
#include "ringtrain/allreduce/nccl/gpu_assignment.hpp"
#include "ringtrain/base/error.hpp"
#include "support/host_gpu/host_gpu.hpp"
#include "support/job.hpp"

using namespace ringtrain;
using test::require;

namespace {

template <class T>
std::vector<T> read(const void* from, std::size_t count) {
  std::vector<T> values(count);
  compute::cuda::read_and_wait(values.data(), from, count * sizeof(T));
  return values;
}

// By the host, which waits for the GPU; the program's is a kernel.
class RoundingByHost final : public Rounding {
 public:
  void round(float factor, View values, NarrowView rounded) override {
    const auto of = [&]<class T>(T) {
      std::vector<T> halves;
      for (const float value : read<float>(values.data(), values.size()))
        halves.push_back(static_cast<T>(factor * value));
      compute::cuda::write_and_wait(rounded.data(), halves.data(), 2 * halves.size());
    };
    rounded.element() == Element::fp16 ? of(__half{}) : of(__nv_bfloat16{});
  }
  void widen(NarrowView rounded, View values) override {
    const auto of = [&]<class T>(T) {
      std::vector<float> wide;
      for (const T half : read<T>(rounded.data(), rounded.size()))
        wide.push_back(static_cast<float>(half));
      compute::cuda::write_and_wait(values.data(), wide.data(), wide.size() * sizeof(float));
    };
    rounded.element() == Element::fp16 ? of(__half{}) : of(__nv_bfloat16{});
  }
};

// One rank and its GPU.
struct Here {
  const allreduce::MpiSession& session;
  compute::cuda::Stream compute = compute::cuda::make_stream();
  RoundingByHost rounding = {};
  std::unique_ptr<allreduce::Communicator> sums;

  explicit Here(const allreduce::MpiSession& job, bool registered = false) : session(job) {
    allreduce::GpuSums settings{.compute_stream = compute.get(), .register_memory = registered};
    settings.device = allreduce::choose_gpu(session, true, {});
    settings.deadline_s = 20;
    settings.rounding = &rounding;
    settings.rounded = 16 * static_cast<std::size_t>(session.size());
    sums = allreduce::make_nccl_communicator(session, settings, allreduce::make_nccl_calls());
  }
  int rank() const { return session.rank(); }
  int size() const { return session.size(); }

  template <class T>
  void write(const std::vector<T>& values, void* to) const {
    compute::cuda::write_and_wait(to, values.data(), values.size() * sizeof(T));
  }
};

float value_of(int rank, std::size_t i) {
  return static_cast<float>((rank + 1) * (static_cast<int>(i) % 97 + 1));
}

void check_exact_sums(const Here& here, std::size_t count) {
  const Buffer buffer = here.sums->memory().allocate(count);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value_of(here.rank(), i);
  here.write(values, buffer.view().data());

  here.sums->start_allreduce(buffer);
  here.sums->finish();

  const auto ranks = static_cast<float>(here.size() * (here.size() + 1) / 2);
  const auto sums = read<float>(buffer.view().data(), count);
  for (std::size_t i = 0; i < count; ++i)
    require(sums[i] == ranks * value_of(0, i), fmt::format("sum {} of {}", i, count));
}

// Numbers of which each order of additions makes another sum.
float awkward(int rank, std::size_t i) {
  return 1.0f / (1 + static_cast<float>(rank) * 3 + static_cast<float>(i % 7));
}

// As ring_sum.hpp says. Numbers of 16 bits are averages of what is as many times as large.
template <class T>
float in_ring_order(int size, std::size_t i, std::size_t part, bool averaged) {
  const auto ranks = static_cast<float>(size);
  const auto number = [&](std::size_t rank) {
    const float own = awkward(static_cast<int>(rank % static_cast<std::size_t>(size)), i);
    if (!averaged) return static_cast<T>(own);
    return static_cast<T>(static_cast<float>(static_cast<T>(ranks * own)) * (1 / ranks));
  };
  const std::size_t last = i / part;
  T total = number(last + 1);
  for (std::size_t hop = 2; hop <= static_cast<std::size_t>(size); ++hop)
    total = static_cast<T>(static_cast<float>(total) + static_cast<float>(number(last + hop)));
  return static_cast<float>(total);
}

template <class T>
void check_order(const Here& here, Element element) {
  const std::size_t part = 16, count = part * static_cast<std::size_t>(here.size()) - 3;
  const Buffer buffer = here.sums->memory().allocate(count);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = awkward(here.rank(), i);
  here.write(values, buffer.view().data());

  here.sums->start_allreduce(buffer, {.wire = element});
  here.sums->finish();

  const auto sums = read<float>(buffer.view().data(), count);
  for (std::size_t i = 0; i < count; ++i)
    require(sums[i] == in_ring_order<T>(here.size(), i, part, element != Element::fp32),
            fmt::format("the ring's order of number {} in {}", i, name_of(element)));
}

// A sum in parts and the sums of parts are the same to the bit, and gathered they are all.
void check_parts(const Here& here) {
  const auto ranks = static_cast<std::size_t>(here.size()),
             own = static_cast<std::size_t>(here.rank());
  const std::size_t part = 12, count = part * ranks;
  const Buffer whole = here.sums->memory().allocate(count),
               parts = here.sums->memory().allocate(count),
               numbers = here.sums->memory().allocate(ranks);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = awkward(here.rank(), i);
  here.write(values, whole.view().data());
  here.write(values, parts.view().data());

  here.sums->start_allreduce(whole);
  here.sums->start_reduce_scatter(parts);
  here.sums->finish();

  const auto sums = read<float>(whole.view().data(), count);
  auto scattered = read<float>(parts.view().data(), count);
  for (std::size_t i = 0; i < count; ++i)
    require(scattered[i] == (i / part == own ? sums[i] : values[i]),
            fmt::format("number {} of a reduce-scatter", i));
  std::vector<float> expected(ranks), mine(ranks, -1);
  std::iota(expected.begin(), expected.end(), 1.0f);
  mine[own] = expected[own];
  here.write(mine, numbers.view().data());
  here.sums->start_allgather(std::vector{parts.view(), numbers.view()});
  here.sums->finish();
  require(read<float>(parts.view().data(), count) == sums, "all parts, gathered");
  require(read<float>(numbers.view().data(), ranks) == expected, "those of a second view");
}

void check_broadcast(const Here& here) {
  const Buffer buffer = here.sums->memory().allocate(5);
  for (int root = 0; root < here.size(); ++root) {
    here.write(std::vector<float>(5, static_cast<float>(here.rank())), buffer.view().data());
    here.sums->broadcast(buffer, root);
    const auto values = read<float>(buffer.view().data(), 5);
    require(std::ranges::count(values, static_cast<float>(root)) == 5, "the root's numbers");
  }
}

// Each launch sums again; one rank launches late.
void check_graph(const Here& here) {
  const Buffer buffer = here.sums->memory().allocate(8);
  here.write(std::vector<float>(8, 1), buffer.view().data());
  {
    const compute::cuda::Graph graph = compute::cuda::capture(here.compute.get(), [&] {
      here.sums->start_allreduce(buffer.view().slice(4, 4));
      here.sums->start_allreduce(buffer.view().slice(0, 4));
      here.sums->finish();
    });
    for (int launch = 0; launch < 2; ++launch) {
      if (here.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      compute::cuda::check(cudaGraphLaunch(graph.get(), here.compute.get()), "cudaGraphLaunch");
    }
    compute::cuda::check(cudaStreamSynchronize(here.compute.get()), "cudaStreamSynchronize");
  }
  const auto values = read<float>(buffer.view().data(), 8);
  require(std::ranges::count(values, static_cast<float>(here.size() * here.size())) == 8,
          "two launches, two sums");
}

// A GPU goes on while its host waits for another rank, who waits for that GPU.
void check_progress(const Here& here) {
  const Buffer buffer = here.sums->memory().allocate(4);
  here.sums->start_allreduce(buffer);
  here.sums->finish();
  if (here.rank() == 0) here.session.barrier();
  compute::cuda::check(cudaStreamSynchronize(here.compute.get()), "cudaStreamSynchronize");
  if (here.rank() != 0) here.session.barrier();
}

// Of rank 0 nobody joins the sum: another thread ends it.
void check_abort(const Here& here) {
  if (here.size() > 1 && here.rank() == 0) {
    const Buffer buffer = here.sums->memory().allocate(4);
    here.sums->start_allreduce(buffer);
    here.sums->finish();
    std::thread([&] { here.sums->abort(); }).join();
    compute::cuda::check(cudaStreamSynchronize(here.compute.get()), "cudaStreamSynchronize");
  }
  here.session.barrier();
  here.sums->abort();
}

void run(const allreduce::MpiSession& session) {
  {
    const Here here(session, true);
    for (const std::size_t count : {1, 3, 4, 5, 1000}) check_exact_sums(here, count);
    check_order<float>(here, Element::fp32);
    check_order<__half>(here, Element::fp16);
    check_order<__nv_bfloat16>(here, Element::bf16);
    check_parts(here);
    check_broadcast(here);
    check_graph(here);
    check_progress(here);
    here.sums->close();
  }
  check_abort(Here(session));
  for (const std::string& complaint : host_gpu::complaints())
    throw Error("simulated_nccl_job", complaint);
}

}  // namespace

int main() { test::run_job(run); }
