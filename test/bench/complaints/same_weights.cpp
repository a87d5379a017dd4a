// same_weights CHECKPOINT.h5 WEIGHTS: whether a checkpoint's weights have the bits of those that
// parameter_server saved as raw floats.
#include <fmt/core.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"

using namespace ringtrain;

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  const auto checkpoint = io::CheckpointFile::open(argv[1]);
  std::ifstream weights(argv[2], std::ios::binary);
  std::size_t compared = 0, differing = 0;
  for (std::size_t t = 0; t < checkpoint.tensors().size(); ++t) {
    if (!checkpoint.tensors()[t].name.starts_with("weights/")) continue;
    std::vector<float> ours(io::element_count(checkpoint.tensors()[t])), others(ours.size());
    const auto bytes = static_cast<std::streamsize>(ours.size() * sizeof(float));
    checkpoint.read(t, ours);
    if (!weights.read(reinterpret_cast<char*>(others.data()), bytes)) return 1;
    for (std::size_t i = 0; i < ours.size(); ++i)
      differing += std::memcmp(&ours[i], &others[i], sizeof(float)) != 0;
    compared += ours.size();
  }
  const bool ends_there = weights.peek() == std::ifstream::traits_type::eof();
  fmt::print("{} of {} weights differ\n", differing, compared);
  return compared > 0 && differing == 0 && ends_there ? 0 : 1;
}
