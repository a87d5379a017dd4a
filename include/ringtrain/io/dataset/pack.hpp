#pragma once
#include <functional>
#include <optional>
#include <string>

#include "ringtrain/io/dataset/dataset.hpp"

namespace ringtrain::io {

struct PackOptions {
  std::string source;  ///< as for `--data`, of encoded images; without a kind, an image folder
  std::string target;  ///< a directory, made where it is missing
  /// Larger images are scaled to this shorter side and encoded anew.
  std::optional<int> short_side = {};
  int images_a_file = 2048;
  /// How `source` is opened; `threads` of them pack, and `tell` hears of the progress.
  DatasetOptions data = {};
};

/// Copies the training and evaluation images of a data set, in their order, into files that
/// `records:DIR` reads. Each file appears when it is whole and on disk, and those that an earlier
/// call with the same data and options left are kept. An image that cannot be read is packed as one
/// that cannot. Throws Error: Exit::usage for a source without encoded images or a target with
/// records of something else, Exit::locked while another process packs into it, Exit::data where
/// more than 0.1 % (and more than ten) images cannot be read, Exit::storage.
void pack(const PackOptions& options);

}  // namespace ringtrain::io
