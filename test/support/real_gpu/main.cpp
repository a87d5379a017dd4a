// The tests of the CUDA backend on a real GPU, or skipped.
#include <array>
#include <cstdio>
#include <cstdlib>

#include "ringtrain/compute/gpu.hpp"
#include "support/host_gpu/host_gpu.hpp"

// What tests ask of the simulated GPU means nothing here.
namespace ringtrain::host_gpu {

Counts counts() { return {}; }
void set_seed(std::uint64_t) {}
void set_engine_time(EngineTime) {}
void set_engine_fault(EngineFaultOf) {}
void refuse_captures(bool) {}
void set_observer(Observer) {}
void take(std::uint64_t) {}
std::vector<std::string> complaints() { return {}; }

}  // namespace ringtrain::host_gpu

// Linked with --wrap=main: that of catch_main comes after this one.
extern "C" int __real_main(int argc, char** argv);

extern "C" int __wrap_main(int argc, char** argv) {
  if (const auto here = ringtrain::compute::gpus_here(); here.count == 0) {
    std::printf("skipped: %s\n", here.why.c_str());
    return 77;  // skipped, to CTest
  }
  // fp32 is compared to fp32: not to what tensor cores make of rounded operands.
  ::setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
  static std::array<char, 16> not_simulated{"~[simulated]"};
  std::array<char*, 3> all{argv[0], not_simulated.data(), nullptr};
  return argc == 1 ? __real_main(2, all.data()) : __real_main(argc, argv);
}
