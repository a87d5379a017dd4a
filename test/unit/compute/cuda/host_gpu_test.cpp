#include "support/host_gpu/host_gpu.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>

#include "compute/cuda/kernels/arguments/elementwise.hpp"
#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"
#include "support/few_seeds.hpp"
#include "support/host_gpu_case.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;

namespace {

// a = 1 on one stream, b = a on another, which may or may not wait.
float copy_between_streams(bool ordered) {
  GpuStream one, other;
  GpuEvent written;
  GpuValues a(4), b(4);
  PinnedValues ones(4, 1);
  a.write(ones, one);
  written.record(one);
  if (ordered) other.wait(written);
  b.copy(a, other);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  return b.read();
}

// Whether a process that does this dies of a segmentation fault.
template <class F>
bool faults(F touch) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    touch();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

}  // namespace

TEST_CASE("host_gpu: nothing runs before somebody waits") {
  host_gpu::set_seed(1);
  GpuStream stream;
  GpuValues a(4);
  PinnedValues in(4, 1), out(4, 0);
  a.write(in, stream);
  REQUIRE(cudaMemcpyAsync(out.data(), a.data(), 16, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  CHECK(out[0] == 0);

  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);

  CHECK(out[0] == 1);
  CHECK(host_gpu::counts().host_waits == 1);
  CHECK(host_gpu::counts().copies == 2);
  CHECK(host_gpu::complaints().empty());
}

TEST_CASE("host_gpu: the source of a copy is read when the copy runs") {
  host_gpu::set_seed(1);
  GpuStream stream;
  GpuValues a(4);
  PinnedValues in(4, 1);
  a.write(in, stream);
  in.fill(2);

  CHECK(a.read() == 2);
}

TEST_CASE("host_gpu: a missing wait for an event is found within a few seeds") {
  CHECK(wrong_results(1, [] { return copy_between_streams(true); }) == 0);
  CHECK(wrong_results(1, [] { return copy_between_streams(false); }) > 0);
}

TEST_CASE("host_gpu: work on one stream runs in its order") {
  const auto overwrite = [] {
    GpuStream stream;
    GpuValues a(4);
    PinnedValues ones(4, 1), twos(4, 2);
    a.write(ones, stream);
    a.write(twos, stream);
    return a.read();
  };

  CHECK(wrong_results(2, overwrite) == 0);
}

TEST_CASE("host_gpu: a wait is for what was recorded when it was called") {
  const auto recorded = [](bool again_first) {
    GpuStream one, other;
    GpuEvent event;
    GpuValues a(4), b(4);
    PinnedValues ones(4, 1), twos(4, 2);
    a.write(ones, one);
    event.record(one);
    if (!again_first) other.wait(event);
    a.write(twos, one);
    event.record(one);
    if (again_first) other.wait(event);
    b.copy(a, other);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    return b.read();
  };

  CHECK(wrong_results(2, [&] { return recorded(true); }) == 0);
  CHECK(wrong_results(2, [&] { return recorded(false); }) > 0);
}

TEST_CASE("host_gpu: the default stream is ordered with blocking streams only") {
  const auto copy_on_default = [](unsigned flags) {
    GpuStream stream(flags);
    GpuValues a(4), b(4);
    PinnedValues ones(4, 1);
    a.write(ones, stream);
    REQUIRE(cudaMemcpy(b.data(), a.data(), 16, cudaMemcpyDeviceToDevice) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    return b.read();
  };

  CHECK(wrong_results(1, [&] { return copy_on_default(cudaStreamDefault); }) == 0);
  CHECK(wrong_results(1, [&] { return copy_on_default(cudaStreamNonBlocking); }) > 0);
}

TEST_CASE("host_gpu: asking again and again sees the work done") {
  host_gpu::set_seed(3);
  GpuStream stream;
  GpuEvent event;
  GpuValues a(4);
  PinnedValues ones(4, 1);
  CHECK(cudaEventQuery(event) == cudaSuccess);
  for (int i = 0; i < 20; ++i) a.write(ones, stream);
  event.record(stream);

  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  int asked = 1;
  for (; cudaStreamQuery(stream) == cudaErrorNotReady; ++asked) REQUIRE(asked < 1000);

  CHECK(asked > 2);
  CHECK(cudaEventQuery(event) == cudaSuccess);
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("host_gpu: pageable memory in an asynchronous copy is complained about") {
  host_gpu::set_seed(1);
  GpuStream stream;
  GpuValues a(4);
  std::vector<float> pageable(4, 1);
  const auto copy = [&] {
    return cudaMemcpyAsync(a.data(), pageable.data(), 16, cudaMemcpyHostToDevice, stream);
  };

  CHECK(copy() == cudaSuccess);
  CHECK(host_gpu::complaints().size() == 1);
  REQUIRE(cudaHostRegister(pageable.data(), 16, 0) == cudaSuccess);
  CHECK(copy() == cudaSuccess);
  CHECK(a.read() == 1);
  REQUIRE(cudaHostUnregister(pageable.data()) == cudaSuccess);
  CHECK(host_gpu::complaints().size() == 1);
}

TEST_CASE("host_gpu: a copy past the end, or from the wrong side, is refused") {
  host_gpu::set_seed(1);
  GpuStream stream;
  GpuValues a(4);
  PinnedValues in(8, 1);

  CHECK(cudaMemcpyAsync(a.data(), in.data(), 32, cudaMemcpyHostToDevice, stream) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(a.data(), in.data(), 16, cudaMemcpyDeviceToDevice, stream) ==
        cudaErrorInvalidValue);
  CHECK(host_gpu::complaints().size() == 2);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

TEST_CASE("host_gpu: freeing memory that queued work may use is refused") {
  host_gpu::set_seed(1);
  GpuStream stream;
  void* memory = nullptr;
  const std::size_t before = host_gpu::counts().live_bytes;
  REQUIRE(cudaMalloc(&memory, 100) == cudaSuccess);
  CHECK(host_gpu::counts().live_bytes == before + 100);
  REQUIRE(cudaMemsetAsync(memory, 0, 100, stream) == cudaSuccess);

  CHECK_THROWS_WITH(cudaFree(memory), Catch::Contains("work is queued"));
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);

  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(host_gpu::counts().live_bytes == before);
  CHECK(host_gpu::counts().allocations == 1);
}

TEST_CASE("host_gpu: memory is full of what is no number, and closed to the host") {
  GpuValues a(64);

  CHECK(std::isnan(a.read()));
  CHECK(faults([&] { *a.data() = 1; }));
  CHECK(!faults([&] { static_cast<void>(cudaMemset(a.data(), 0, 256)); }));
}

TEST_CASE("host_gpu: a kernel that goes past the end of memory is caught") {
  GpuStream stream;
  GpuValues a(64);
  const auto relu = [&](std::size_t count) {
    cuda::kernels::pointwise(Activation::relu, Element::fp32, count, a.data(), a.data(), stream);
    static_cast<void>(cudaDeviceSynchronize());
  };

  CHECK(!faults([&] { relu(64); }));
  CHECK(faults([&] { relu(65); }));
}

TEST_CASE("host_gpu: kernels run on their stream, also in a graph") {
  const bool captured = GENERATE(false, true);
  const auto rectified = [&] {
    GpuStream stream;
    GpuValues a(100);
    PinnedValues in(100, -3);
    cudaGraph_t graph = nullptr;
    if (captured) REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == 0);
    a.write(in, stream);
    cuda::kernels::pointwise(Activation::relu, Element::fp32, 100, a.data(), a.data(), stream);
    if (captured) {
      REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
      GpuGraph(graph).launch(stream);
    }
    return a.read(stream);
  };

  CHECK(wrong_results(0, rectified) == 0);
  CHECK(host_gpu::counts().kernels == (captured ? 0 : 1));
}
