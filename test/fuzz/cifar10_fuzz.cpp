// Any bytes as the files of CIFAR-10's binary version: a data set whose labels and images are in
// range, or refused with Error. The first byte says how many bytes are the names of the classes;
// the rest is a file of images.
#include "fuzz/memory_folder.hpp"
#include "io/dataset/datasets.hpp"
#include "ringtrain/base/error.hpp"

using namespace ringtrain;
using namespace ringtrain::test;
namespace fs = std::filesystem;

namespace {

void read_all(const io::Dataset& data) {
  expect(data.class_names().size() == 10);
  const auto reader = data.reader();
  for (std::uint64_t i = 0; i < data.size(); ++i) expect(data.label(i) >= 0 && data.label(i) < 10);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const MemoryFolder folder("cifar10_fuzz");
  const std::size_t names = size == 0 ? 0 : std::min<std::size_t>(bytes[0], size - 1);
  const std::span<const std::uint8_t> all(bytes, size);
  const fs::path meta = folder.path / "batches.meta.txt";
  if (names > 0)
    write_bytes(meta, all.subspan(1, names));
  else
    fs::remove(meta);
  write_bytes(folder.path / "test_batch.bin", size == 0 ? all : all.subspan(1 + names));
  try {
    read_all(*io::open_cifar10(folder.path, io::Split::evaluation, nullptr));
  } catch (const Error& refused) {
    expect(refused.code() == Exit::data);
  }
  return 0;
}
