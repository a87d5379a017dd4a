#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "support/catch.hpp"
#include "support/few_seeds.hpp"
#include "support/host_gpu/host_gpu.hpp"
#include "support/host_gpu_case.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;

namespace {

// a = source on one stream, then b = a on another that may be joined again, as a graph.
cudaError_t capture(GpuStream& one, GpuStream& other, GpuValues& a, GpuValues& b,
                    PinnedValues& source, bool joined, cudaGraph_t* graph) {
  GpuEvent fork, done;
  REQUIRE(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal) == cudaSuccess);
  a.write(source, one);
  fork.record(one);
  other.wait(fork);
  b.copy(a, other);
  done.record(other);
  if (joined) one.wait(done);
  return cudaStreamEndCapture(one, graph);
}

}  // namespace

TEST_CASE("host_gpu: a captured graph runs with what memory holds then") {
  const auto twice = [] {
    GpuStream one, other;
    GpuValues a(4), b(4);
    PinnedValues source(4, 1);
    cudaGraph_t graph = nullptr;
    REQUIRE(capture(one, other, a, b, source, true, &graph) == cudaSuccess);
    GpuGraph runnable(graph);
    runnable.launch(one);
    const float first = b.read(one);
    source.fill(2);
    runnable.launch(one);
    return first + 10 * b.read(one);
  };

  CHECK(wrong_results(21, twice) == 0);
  CHECK(host_gpu::counts().graphs == 2);
  CHECK(host_gpu::counts().copies == 2);  // those of read()
}

TEST_CASE("host_gpu: the order of a graph's branches is no promise") {
  const auto unordered = [] {
    GpuStream one, other;
    GpuEvent fork, done;
    GpuValues a(4), b(4);
    PinnedValues ones(4, 1);
    REQUIRE(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal) == cudaSuccess);
    fork.record(one);
    other.wait(fork);
    a.write(ones, one);
    b.copy(a, other);
    done.record(other);
    one.wait(done);
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(one, &graph) == cudaSuccess);
    GpuGraph runnable(graph);
    runnable.launch(one);
    return b.read(one);
  };

  const int wrong = wrong_results(1, unordered);

  CHECK(wrong > 0);
  CHECK(wrong < few_seeds);
}

TEST_CASE("host_gpu: a fork must be joined, in the stream that began the capture") {
  host_gpu::set_seed(1);
  GpuStream one, other;
  GpuValues a(4), b(4);
  PinnedValues source(4, 1);
  cudaGraph_t graph = nullptr;

  CHECK(capture(one, other, a, b, source, false, &graph) == cudaErrorStreamCaptureUnjoined);
  CHECK(graph == nullptr);
  CHECK(cudaStreamEndCapture(one, &graph) == cudaErrorIllegalState);
  GpuEvent fork;
  REQUIRE(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal) == cudaSuccess);
  fork.record(one);
  other.wait(fork);
  CHECK(cudaStreamEndCapture(other, &graph) == cudaErrorStreamCaptureUnmatched);
  CHECK(cudaStreamEndCapture(one, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(std::isnan(b.read()));
}

TEST_CASE("host_gpu: what a capture forbids spoils it") {
  host_gpu::set_seed(1);
  GpuStream one, other;
  GpuEvent outside, inside;
  GpuValues a(4);
  PinnedValues ones(4, 1);
  a.write(ones, other);
  outside.record(other);
  void* memory = nullptr;
  const auto [what, call, code] =
      GENERATE_REF(table<std::string, std::function<cudaError_t()>, cudaError_t>(
          {{"wait for an event from outside", [&] { return cudaStreamWaitEvent(one, outside, 0); },
            cudaErrorStreamCaptureIsolation},
           {"ask for a captured event", [&] { return cudaEventQuery(inside); },
            cudaErrorCapturedEvent},
           {"ask for another event", [&] { return cudaEventQuery(outside); },
            cudaErrorStreamCaptureUnsupported},
           {"wait for the stream", [&] { return cudaStreamSynchronize(one); },
            cudaErrorStreamCaptureUnsupported},
           {"wait for everything", [] { return cudaDeviceSynchronize(); },
            cudaErrorStreamCaptureUnsupported},
           {"allocate", [&] { return cudaMalloc(&memory, 16); }, cudaErrorStreamCaptureUnsupported},
           {"use the default stream", [&] { return cudaMemset(a.data(), 0, 16); },
            cudaErrorStreamCaptureImplicit}}));
  CAPTURE(what);
  REQUIRE(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal) == cudaSuccess);
  inside.record(one);

  CHECK(call() == code);

  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(one, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

TEST_CASE("host_gpu: work that waits for others lets other streams and other threads go on") {
  host_gpu::set_seed(1);
  GpuStream one, other;
  GpuValues a(4), b(4);
  PinnedValues ones(4, 1);
  std::atomic<bool> is_there = false;
  REQUIRE(host_gpu::attempt(one, "wait", [&] { return is_there.load(); }));
  a.write(ones, one);
  b.write(ones, other);

  CHECK(cudaStreamSynchronize(other) == cudaSuccess);
  CHECK(cudaStreamQuery(one) == cudaErrorNotReady);
  std::thread arrival([&] {
    host_gpu::counts();  // a call of the GPU
    is_there = true;
  });
  CHECK(cudaStreamSynchronize(one) == cudaSuccess);
  arrival.join();

  CHECK(a.read() == 1);
  CHECK(b.read() == 1);
}

TEST_CASE(
    "host_gpu: work in a graph waits at each launch, and what follows it alone waits with it") {
  host_gpu::set_seed(1);
  GpuStream one, other;
  GpuEvent fork, done;
  GpuValues a(4), b(4);
  PinnedValues ones(4, 1);
  int asked = 0;
  REQUIRE(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal) == cudaSuccess);
  fork.record(one);
  other.wait(fork);
  REQUIRE(host_gpu::attempt(other, "wait", [&] { return ++asked % 3 == 0; }));
  done.record(other);
  a.write(ones, one);
  one.wait(done);
  b.copy(a, one);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(one, &graph) == cudaSuccess);
  GpuGraph runnable(graph);

  runnable.launch(one);
  CHECK(b.read(one) == 1);
  CHECK(asked == 3);
  runnable.launch(one);
  CHECK(cudaStreamSynchronize(one) == cudaSuccess);
  CHECK(asked == 6);
}

TEST_CASE("host_gpu: the GPU goes on by itself where somebody lets it") {
  host_gpu::set_seed(1);
  GpuStream stream;
  PinnedValues in(4, 1), out(4, 0);
  GpuValues a(4);
  a.write(in, stream);
  REQUIRE(cudaMemcpyAsync(out.data(), a.data(), 16, cudaMemcpyDeviceToHost, stream) == cudaSuccess);

  for (int i = 0; i < 100; ++i) host_gpu::go_on();

  CHECK(out[0] == 1);
  CHECK(host_gpu::counts().host_waits == 0);
}
