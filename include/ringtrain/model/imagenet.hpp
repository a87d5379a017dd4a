#pragma once
#include <span>
#include <string_view>

namespace ringtrain::model {

/// A class of ImageNet's challenge of 2012: WordNet's id, as folders are called, and a name.
struct ImagenetClass {
  std::string_view wnid, name;
};

/// The 1,000 classes by label, 0 to 999: as torchvision and timm count them.
std::span<const ImagenetClass> imagenet_classes();

}  // namespace ringtrain::model
