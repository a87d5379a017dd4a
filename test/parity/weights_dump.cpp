// weights_dump FILE OUT: what WeightsFile reads of published weights, for published_weights.py:
// OUT.f32 gets all numbers, OUT.txt a line `name extent ...` each.
#include <fmt/ranges.h>

#include <cstdio>
#include <fstream>

#include "ringtrain/io/weights/weights_file.hpp"

using namespace ringtrain;

int main(int argc, char** argv) try {
  if (argc != 3) return 64;
  const io::WeightsFile file = io::WeightsFile::open(argv[1]);
  const std::string out = argv[2];
  std::ofstream values(out + ".f32", std::ios::binary), names(out + ".txt");
  for (std::size_t i = 0; i < file.tensors().size(); ++i) {
    const io::TensorInfo& tensor = file.tensors()[i];
    std::vector<float> numbers(io::element_count(tensor));
    file.read(i, numbers);
    names << fmt::format("{} {}\n", tensor.name, fmt::join(tensor.shape, " "));
    values.write(reinterpret_cast<const char*>(numbers.data()),
                 static_cast<std::streamsize>(numbers.size() * sizeof(float)));
  }
} catch (const std::exception& failure) {
  std::fprintf(stderr, "weights_dump: %s\n", failure.what());
  return 70;
}
