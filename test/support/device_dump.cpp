// device_dump [h100|h200]: cuDNN's description of this machine's first GPU, as the JSON that plans
// for absent GPUs are made from; with a name, the built-in one as cuDNN reads it, which needs no
// GPU.
#include <cstdio>
#include <exception>
#include <string>

#include "compute/cuda/runtime/device.hpp"

using namespace ringtrain::compute::cuda;

namespace {

Descriptor first_device() {
  Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, std::int32_t{0});
  device.finalize();
  return device;
}

std::string json_of(const Descriptor& device) {
  constexpr std::int64_t most = 1 << 16;  // characters; a description has some 600
  const auto text = device.read<char>(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, most);
  return std::string(text.begin(), std::find(text.begin(), text.end(), '\0'));
}

}  // namespace

int main(int argc, char** argv) try {
  const Descriptor device = argc > 1 ? describe_device(device_json(argv[1])) : first_device();
  std::puts(json_of(device).c_str());
} catch (const std::exception& failure) {
  std::fprintf(stderr, "device_dump: %s\n", failure.what());
  return 70;
}
