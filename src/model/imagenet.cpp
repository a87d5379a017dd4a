#include "ringtrain/model/imagenet.hpp"

#include <vector>

namespace ringtrain::model {
namespace {

// Lines "WNID NAME", by label: timm's list of wnids (Apache-2.0) and torchvision's names
// (BSD-3-Clause).
constexpr std::string_view table =
#include "imagenet_classes.inc"
    ;

std::vector<ImagenetClass> read_table() {
  std::vector<ImagenetClass> classes;
  for (std::string_view rest = table; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() + 1);
    const auto space = line.find(' ');
    classes.push_back({line.substr(0, space), line.substr(space + 1)});
  }
  return classes;
}

}  // namespace

std::span<const ImagenetClass> imagenet_classes() {
  static const std::vector<ImagenetClass> classes = read_table();
  return classes;
}

}  // namespace ringtrain::model
