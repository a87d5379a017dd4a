// The tests of the CUDA backend on a real GPU, or skipped.
#include <cuda_runtime_api.h>

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>

#include "ringtrain/compute/gpu.hpp"
#include "support/host_gpu/host_gpu.hpp"

// What tests ask of the simulated GPU means nothing here.
namespace ringtrain::host_gpu {

Counts counts() { return {}; }
void set_seed(std::uint64_t) {}
void set_engine_time(EngineTime) {}
std::vector<std::string> complaints() { return {}; }

}  // namespace ringtrain::host_gpu

int main(int argc, char** argv) {
  if (const auto here = ringtrain::gpus_here(); here.count == 0) {
    std::printf("skipped: %s\n", here.why.c_str());
    return 0;
  }
  // fp32 is compared to fp32: not to what tensor cores make of rounded operands.
  ::setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
  Catch::Session session;
  if (const int code = session.applyCommandLine(argc, argv); code != 0) return code;
  if (session.configData().testsOrTags.empty()) session.configData().testsOrTags = {"~[simulated]"};
  return session.run();
}
