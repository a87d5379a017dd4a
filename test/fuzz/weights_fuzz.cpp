// Any bytes as published weights: read, with each tensor within its storage, or refused. Pickles
// also alone, as the CRC-32 of a zip file hides them from most mutants.
#include "io/weights/pickle.hpp"
#include "ringtrain/base/text.hpp"

using namespace ringtrain;

namespace {

constexpr std::size_t longest_message = 4 << 10;

void expect(bool kept) {
  if (!kept) __builtin_trap();
}

template <class Read>
void read_or_refuse(const Read& read) {
  try {
    read();
  } catch (const io::BadWeights& bad) {
    const std::string what = bad.what();
    expect(bad.code == Exit::no_valid_checkpoint || bad.code == Exit::incompatible_checkpoint);
    expect(what.size() < longest_message && printable(what) == what);
  }
}

void read_all(std::span<const std::uint8_t> bytes) {
  io::MemorySource source(bytes);
  const auto index = io::read_weights_index(source);
  if (!index) return;
  for (const io::StoredWeights& tensor : index->tensors) {
    const std::uint64_t count = io::element_count(tensor.info);
    // a tensor of strides of 0 may have more numbers than the file
    if (count > 4 * bytes.size()) continue;
    std::vector<float> values(count);
    io::read_weights(source, tensor, values);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(data, size);
  read_or_refuse([&] { read_all(bytes); });
  read_or_refuse([&] { io::read_pickle(bytes); });
  return 0;
}
