#include <fmt/ranges.h>

#include <memory>

#include "ringtrain/compute/backend.hpp"

namespace ringtrain::compute {

std::vector<std::string> available_backends() { return {"reference", "onednn"}; }

std::unique_ptr<Backend> make_backend(const std::string& name) {
  if (name == "reference") return make_reference_backend();
  if (name == "onednn") return make_onednn_backend();
  throw Error(Exit::usage, "backend " + name,
              fmt::format("unknown; there are {}", fmt::join(available_backends(), ", ")));
}

}  // namespace ringtrain::compute
