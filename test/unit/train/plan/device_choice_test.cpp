#include "train/plan/device_choice.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

using namespace ringtrain;
using namespace ringtrain::train;
using Catch::Contains;
using Answer = GpuJudgement::Answer;

namespace {

namespace fs = std::filesystem;

// A machine as its kernel describes it, in a folder; and no variable that hides GPUs.
class FakeMachine {
 public:
  FakeMachine() {
    set("RINGTRAIN_SYSTEM_ROOT", folder_.path().string());
    unset("CUDA_VISIBLE_DEVICES");
    unset("NVIDIA_VISIBLE_DEVICES");
  }
  ~FakeMachine() {
    for (const auto& [name, value] : before_)
      value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
  }

  void set(const char* name, const std::string& value) {
    keep(name);
    ::setenv(name, value.c_str(), 1);
  }
  void unset(const char* name) {
    keep(name);
    ::unsetenv(name);
  }
  void load_driver(const std::string& line) { write("proc/driver/nvidia/version", line); }
  void list_gpu(const std::string& bus, const std::string& model) {
    write("proc/driver/nvidia/gpus/" + bus + "/information",
          "Model: \t\t " + model + "\nIRQ:   \t\t 16\n");
  }
  void plug_in(const std::string& bus, const std::string& vendor, const std::string& kind,
               const std::string& driver = "") {
    const std::string device = "sys/bus/pci/devices/" + bus;
    write(device + "/vendor", vendor + "\n");
    write(device + "/class", kind + "\n");
    if (!driver.empty())
      fs::create_symlink("../../drivers/" + driver, folder_.path() / device / "driver");
  }

 private:
  void keep(const char* name) {
    const char* value = std::getenv(name);
    before_.try_emplace(name, value ? std::optional<std::string>(value) : std::nullopt);
  }
  void write(const fs::path& path, const std::string& text) {
    const fs::path file = folder_.path() / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  TemporaryFolder folder_;
  std::map<const char*, std::optional<std::string>> before_;
};

const char* r535 =
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n";
const char* r580 =
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  "
    "(dvs-builder@U22)  Tue Sep 23 09:55:41 UTC 2025\n";

compute::InstalledGpus an_h100() {
  return {.names = {"NVIDIA H100 80GB HBM3"}, .driver = "580.95.05"};
}

// A build with CUDA 13.0 for all GPUs, on a driver for it.
compute::GpusHere good() {
  return {.count = 1,
          .cuda = 13000,
          .driver_cuda = 13000,
          .capabilities = {90},
          .kernels = "75-virtual,80-real"};
}

compute::GpusHere blind(int driver_cuda) {
  return {.count = 0, .why = "it is blind", .cuda = 13000, .driver_cuda = driver_cuda};
}

}  // namespace

TEST_CASE("installed GPUs: a machine without an NVIDIA device has none") {
  FakeMachine machine;
  machine.plug_in("0000:00:02.0", "0x8086", "0x030000", "i915");
  machine.plug_in("0000:01:00.1", "0x10de", "0x040300", "snd_hda_intel");

  const compute::InstalledGpus found = compute::find_installed_gpus();

  CHECK(found.names.empty());
  CHECK(found.driver.empty());
}

TEST_CASE("installed GPUs: the driver's list has their names and its version") {
  FakeMachine machine;
  machine.load_driver(GENERATE(as<std::string>{}, r535, r580));
  machine.list_gpu("0000:3b:00.0", "NVIDIA H100 80GB HBM3");
  machine.list_gpu("0000:5e:00.0", "NVIDIA T4");
  machine.plug_in("0000:3b:00.0", "0x10de", "0x030200", "nvidia");

  const compute::InstalledGpus found = compute::find_installed_gpus();

  CHECK(found.names == std::vector<std::string>{"NVIDIA H100 80GB HBM3", "NVIDIA T4"});
  CHECK((found.driver == "535.183.01" || found.driver == "580.95.05"));
}

TEST_CASE("installed GPUs: without a driver, the PCI bus is asked") {
  FakeMachine machine;
  machine.plug_in("0000:01:00.0", "0x10de", "0x030000", "nouveau");
  machine.plug_in("0000:02:00.0", "0x10de", "0x030200");

  const compute::InstalledGpus found = compute::find_installed_gpus();

  REQUIRE(found.names.size() == 2);
  CHECK(found.names[0] == "NVIDIA GPU at PCI 0000:01:00.0");
  CHECK(found.driver.empty());
  CHECK(found.other_driver == "nouveau");
}

TEST_CASE("installed GPUs: those handed to virtual machines are not this machine's") {
  FakeMachine machine;
  machine.plug_in("0000:01:00.0", "0x10de", "0x030000", "vfio-pci");

  CHECK(compute::find_installed_gpus().names.empty());
}

TEST_CASE("installed GPUs: a user hides them by the variables of CUDA and of containers") {
  FakeMachine machine;
  const auto [name, value, hidden] =
      GENERATE(table<const char*, std::string, bool>({{"CUDA_VISIBLE_DEVICES", "", true},
                                                      {"CUDA_VISIBLE_DEVICES", "-1", true},
                                                      {"CUDA_VISIBLE_DEVICES", "NoDevFiles", true},
                                                      {"CUDA_VISIBLE_DEVICES", "0,1", false},
                                                      {"CUDA_VISIBLE_DEVICES", "GPU-3b", false},
                                                      {"NVIDIA_VISIBLE_DEVICES", "void", true},
                                                      {"NVIDIA_VISIBLE_DEVICES", "none", true},
                                                      {"NVIDIA_VISIBLE_DEVICES", "all", false}}));
  CAPTURE(name, value);
  machine.set(name, value);

  CHECK(compute::find_installed_gpus().hidden.empty() == !hidden);
}

TEST_CASE("device: no GPU, or a hidden one, means CPUs") {
  compute::InstalledGpus hidden = an_h100();
  hidden.hidden = "CUDA_VISIBLE_DEVICES is ''";

  const GpuJudgement none = judge_gpus({}, blind(0));
  const GpuJudgement unwanted = judge_gpus(hidden, blind(13000));

  CHECK(none.answer == Answer::none);
  CHECK(none.text == "no NVIDIA GPU in this machine");
  CHECK(unwanted.answer == Answer::none);
  CHECK_THAT(unwanted.text, Contains("CUDA_VISIBLE_DEVICES is ''"));
}

TEST_CASE(
    "device: a GPU that CUDA sees is used, even where the kernel's lists are not to be read") {
  CHECK(judge_gpus(an_h100(), good()).answer == Answer::usable);
  CHECK(judge_gpus({}, good()).answer == Answer::usable);
}

TEST_CASE("device: a GPU that cannot be used ends the job, with what is there, wanted and to do") {
  compute::InstalledGpus no_driver = an_h100();
  no_driver.driver = "";
  no_driver.other_driver = "nouveau";
  compute::InstalledGpus old_driver = an_h100();
  old_driver.driver = "535.183.01";
  compute::GpusHere no_library = good();
  no_library.missing = "libcudnn.so.9: cannot open shared object file";
  compute::GpusHere old_gpu = good();
  old_gpu.capabilities = {61, 70};
  compute::GpusHere cpu_build{.in_build = false};
  const auto [installed, here, why, mend] =
      GENERATE_COPY(table<compute::InstalledGpus, compute::GpusHere, std::string, std::string>(
          {{no_driver, blind(0), "no NVIDIA driver loaded, held by nouveau", "580 or newer"},
           {old_driver, blind(12020), "driver is for CUDA 12.2, this build's CUDA 13.0 wants",
            "Install driver 580 or newer"},
           {an_h100(), blind(0), "libcuda.so.1 is not found", "docker run --gpus all"},
           {an_h100(), blind(13000), "CUDA says: it is blind", "srun --gpus 1"},
           {an_h100(), no_library, "libcudnn.so.9: cannot open", "scripts/setup.sh"},
           {an_h100(), old_gpu, "compute capability 7.0 is too old", "--device cpu"},
           {an_h100(), cpu_build, "for CPUs only", "scripts/setup.sh && cmake"}}));

  const GpuJudgement judged = judge_gpus(installed, here);

  CHECK(judged.answer == Answer::unusable);
  CHECK_THAT(judged.text, Contains("NVIDIA H100 80GB HBM3") && Contains(why) && Contains(mend) &&
                              Contains("--device cpu"));
}

TEST_CASE("device: a precision that one of the GPUs lacks ends the job, and names what it has") {
  compute::GpusHere here = good();
  here.capabilities = {90, 75};

  const GpuJudgement judged = judge_gpus(an_h100(), here, config::Precision::bf16);

  CHECK(judged.answer == Answer::unusable);
  CHECK_THAT(judged.text, Contains("7.5 has no bf16, 8.0 (Ampere)") &&
                              Contains("--precision fp16, or fp32") && Contains("--device cpu"));
  for (const config::Precision precision :
       {config::Precision::automatic, config::Precision::fp16, config::Precision::fp32})
    CHECK(judge_gpus(an_h100(), here, precision).answer == Answer::usable);
  here.capabilities = {80};
  CHECK(judge_gpus(an_h100(), here, config::Precision::bf16).answer == Answer::usable);
}

TEST_CASE("device: kernels run on later GPUs of their generation, PTX on all later ones") {
  const auto [kernels, capability, driver, runs] =
      GENERATE(table<std::string, int, int, bool>({{"75-virtual,80-real", 75, 13000, true},
                                                   {"75-virtual,80-real", 86, 12080, true},
                                                   {"75-virtual,80-real", 90, 13000, true},
                                                   {"75-virtual,80-real", 90, 12080, false},
                                                   {"80-real", 89, 12080, true},
                                                   {"80-real", 90, 13000, false},
                                                   {"90", 80, 13000, false},
                                                   {"90", 120, 13000, true},
                                                   {"90a-real", 90, 13000, true},
                                                   {"90a", 100, 13000, false},
                                                   {"native", 80, 13000, true},
                                                   {"", 80, 13000, true}}));
  CAPTURE(kernels, capability, driver);
  compute::GpusHere here = good();
  here.cuda = 13000;
  here.driver_cuda = driver;
  here.capabilities = {capability};
  here.kernels = kernels;

  CHECK((judge_gpus(an_h100(), here).answer == Answer::usable) == runs);
}

TEST_CASE("device: whoever installed the Python package is told of packages, not of a checkout") {
  FakeMachine machine;
  machine.set("RINGTRAIN_ENTRY", "/home/user/environment/bin/train");
  compute::GpusHere no_library = good();
  no_library.missing = "libcudnn.so.9: cannot open shared object file";

  const std::string lacks_library = judge_gpus(an_h100(), no_library).text;
  const std::string lacks_cuda = judge_gpus(an_h100(), {.in_build = false}).text;

  CHECK_THAT(lacks_library, Contains("pip install 'ringtrain[cuda13]'") && !Contains("setup.sh"));
  CHECK_THAT(lacks_cuda, Contains("scripts/wheel.sh") && !Contains("setup.sh"));
}

TEST_CASE("device: a variable that names GPUs that are not there is told") {
  FakeMachine machine;
  machine.set("CUDA_VISIBLE_DEVICES", "7");

  CHECK_THAT(judge_gpus(an_h100(), blind(13000)).text, Contains("CUDA_VISIBLE_DEVICES is '7'"));
}

TEST_CASE("device choice: one rank that sees several GPUs is told how to train on all") {
  CHECK_THAT(idle_gpus_note(2, 1), Contains("one of the 2 GPUs") && Contains("mpirun -np 2"));
  CHECK(idle_gpus_note(1, 1).empty());
  CHECK(idle_gpus_note(2, 2).empty());
}
