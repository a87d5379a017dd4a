// The descriptions of GPUs that are built in, against what cuDNN said of real ones.
#include "compute/cuda/runtime/device.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/catch.hpp"

using namespace ringtrain;

TEST_CASE("the built-in H100 and H200 are real ones") {
  const std::string name_of_gpu = GENERATE("h100", "h200");
  std::ifstream file(RINGTRAIN_SOURCE_DIR "/test/data/" + name_of_gpu + "-device-properties.json");
  const auto real = nlohmann::json::parse(file);
  const auto built_in = nlohmann::json::parse(compute::cuda::device_json(name_of_gpu));

  for (const auto& [name, value] : real.items()) {
    CAPTURE(name);
    if (name != "pciDeviceId") CHECK(built_in.at(name) == value);  // where it was plugged in
  }
}
