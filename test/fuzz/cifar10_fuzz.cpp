// Any bytes as the files of CIFAR-10's binary version: a data set whose labels and images are in
// range, or refused with Error. The first byte says how many bytes are the names of the classes;
// the rest is a file of images.
#include <filesystem>
#include <fstream>

#include "io/dataset/datasets.hpp"
#include "ringtrain/base/error.hpp"

using namespace ringtrain;
namespace fs = std::filesystem;

namespace {

void expect(bool kept) {
  if (!kept) __builtin_trap();
}

void write(const fs::path& path, std::span<const std::uint8_t> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

/// In memory, for as long as the process lives.
struct Folder {
  fs::path path = fs::path("/dev/shm") / ("cifar10_fuzz." + std::to_string(::getpid()));
  Folder() { fs::create_directory(path); }
  ~Folder() { fs::remove_all(path); }
};

void read_all(const io::Dataset& data) {
  expect(data.class_names().size() == 10);
  const auto reader = data.reader();
  for (std::uint64_t i = 0; i < data.size(); ++i) expect(data.label(i) >= 0 && data.label(i) < 10);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const Folder folder;
  const std::size_t names = size == 0 ? 0 : std::min<std::size_t>(bytes[0], size - 1);
  const std::span<const std::uint8_t> all(bytes, size);
  const fs::path meta = folder.path / "batches.meta.txt";
  if (names > 0)
    write(meta, all.subspan(1, names));
  else
    fs::remove(meta);
  write(folder.path / "test_batch.bin", size == 0 ? all : all.subspan(1 + names));
  try {
    read_all(*io::open_cifar10(folder.path, io::Split::evaluation, nullptr));
  } catch (const Error& refused) {
    expect(refused.code() == Exit::data);
  }
  return 0;
}
