// Any bytes as a checkpoint: opened, verified, inspected and read, or refused with Error. Most
// mutants have their hashes mended, as whoever writes such a file can do, so that what lies behind
// the hashes is reached.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <span>

#include "io/checkpoint/checkpoint_index.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"
#include "unit/io/checkpoint/checkpoint_bytes.hpp"
#include "unit/io/checkpoint/checkpoint_mutants.hpp"

using namespace ringtrain;
using namespace ringtrain::test;

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* bytes, std::size_t size, std::size_t room);

namespace {

constexpr std::size_t longest_message = 16 << 10;

void expect(bool kept) {
  if (!kept) __builtin_trap();
}

/// A file in memory that is opened by its path, as any other.
struct File {
  FileDescriptor memory{::memfd_create("fuzz", MFD_CLOEXEC)};
  std::filesystem::path path = "/proc/self/fd/" + std::to_string(memory.get());

  void hold(const std::uint8_t* bytes, std::size_t size) const {
    expect(::ftruncate(memory.get(), static_cast<off_t>(size)) == 0);
    expect(::pwrite(memory.get(), bytes, size, 0) == static_cast<ssize_t>(size));
  }
};

void read_all(const io::CheckpointFile& file, std::size_t size) {
  std::uint64_t floats = 0;
  for (std::size_t i = 0; i < file.tensors().size(); ++i) {
    const std::uint64_t count = io::element_count(file.tensors()[i]);
    floats += count;
    expect(floats <= size / sizeof(float) && file.find(file.tensors()[i]) == i);
    std::vector<float> values(count);
    file.read(i, values);
  }
}

void check_message(const Error& failure, Exit code) {
  const std::string what = failure.what();
  expect(failure.code() == code);
  expect(what.size() < longest_message && printable(what) == what);
}

// What a training that needs other tensors is told of the file's.
void refuse_others(const io::CheckpointFile& file) {
  std::vector<io::TensorInfo> others = file.tensors();
  if (others.empty()) return;
  others.back().name += "?";
  expect(printable(file.misfit(others.back())) == file.misfit(others.back()));
  try {
    file.expect(others);
    expect(false);
  } catch (const Error& failure) {
    check_message(failure, Exit::incompatible_checkpoint);
  }
}

void load(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const auto lineage = io::lineage_in(bytes.first(std::min(bytes.size(), io::header_bytes)));
  const std::size_t size = bytes.size();
  try {
    const io::CheckpointFile file = io::CheckpointFile::open(path);
    expect(lineage == file.lineage());
    file.expect(file.tensors());
    refuse_others(file);
    file.verify();
    read_all(file, size);
    if (file.metadata().step % 8 == 0) io::inspect(path);  // most of it is the same once more
  } catch (const Error& failure) {
    check_message(failure, Exit::no_valid_checkpoint);
  }
}

std::string mutated(std::string text, std::size_t room) {
  const std::size_t size = text.size();
  text.resize(std::max(size, room));
  text.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(text.data()), size, text.size()));
  return text;
}

// Another number at some place of the text: as lie(), but without parsing it.
std::string with_another_number(std::string text, std::mt19937_64& random) {
  static const std::array<const char*, 12> numbers{"0",
                                                   "1",
                                                   "-1",
                                                   "4",
                                                   "4096",
                                                   "2147483648",
                                                   "4294967296",
                                                   "4611686018427387904",
                                                   "9223372036854775808",
                                                   "18446744073709551615",
                                                   "18446744073709551616",
                                                   "1e3"};
  constexpr const char* digits = "0123456789";
  const std::size_t begin = text.find_first_of(digits, random() % (text.size() + 1));
  if (begin == text.npos) return text;
  const std::size_t end = std::min(text.find_first_not_of(digits, begin), text.size());
  return text.replace(begin, end - begin, numbers[random() % numbers.size()]);
}

std::string with_mutated_index(const std::string& file, std::mt19937_64& random) {
  const std::string index = index_of(file);
  switch (random() % 4) {
    case 0:
      return with_index(file, lie(index, random));
    case 1:
      return with_index(file, with_another_number(index, random));
    default:
      return with_index(file, mutated(index, index.size() + 64));
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* bytes, std::size_t size,
                                               std::size_t room, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  if (size < header_bytes || random() % 8 == 0)
    file = mutated(std::move(file), room);
  else
    file = with_mutated_index(file, random);
  if (file.size() >= header_bytes && random() % 8 != 0)
    file = random() % 4 == 0 ? with_all_hashes(file) : with_header_hashes(file);
  file.resize(std::min(file.size(), room));
  std::memcpy(bytes, file.data(), file.size());
  return file.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const File file;
  file.hold(bytes, size);
  load(file.path, std::as_bytes(std::span(bytes, size)));
  return 0;
}
