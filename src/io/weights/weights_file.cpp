#include "ringtrain/io/weights/weights_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "io/weights/weights_index.hpp"
#include "io/weights/zip.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

float from_half(std::uint16_t bits) {
  constexpr std::uint32_t exponent = 0x1f, rebias = 127 - 15;
  const std::uint32_t sign = std::uint32_t{bits} >> 15 << 31, e = bits >> 10 & exponent,
                      m = bits & 0x3ff;
  if (e == 0) return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(float(m) * 0x1p-24f));
  const std::uint32_t wide = e == exponent ? 0xff : e + rebias;
  return std::bit_cast<float>(sign | wide << 23 | m << 13);
}

template <class T>
float number_at(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<float>(value);
}
template <float (*convert)(std::uint16_t)>
float half_at(const std::uint8_t* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return convert(bits);
}

/// A type's width, and how a number of it is read.
struct NumberReader {
  std::size_t bytes;
  float (*read)(const std::uint8_t*);
};

NumberReader reader_of(StoredType type) {
  switch (type) {
    case StoredType::f64:
      return {8, number_at<double>};
    case StoredType::f32:
      return {4, number_at<float>};
    case StoredType::f16:
      return {2, half_at<from_half>};
    case StoredType::bf16:
      return {2, half_at<from_bf16>};
    case StoredType::i64:
      return {8, number_at<std::int64_t>};
    case StoredType::i32:
      return {4, number_at<std::int32_t>};
    case StoredType::i16:
      return {2, number_at<std::int16_t>};
    case StoredType::i8:
      return {1, number_at<std::int8_t>};
    case StoredType::u8:
    case StoredType::boolean:
      return {1, number_at<std::uint8_t>};
  }
  throw Error("read weights", "a type that is none");
}

// Strides may reach far: more than this, and than so many bytes for each of the tensor's, is read
// number by number.
constexpr std::uint64_t most_reach = 16 << 20, most_reach_per_byte = 4;
constexpr std::uint64_t crc_piece = 1 << 20;

/// The bytes from a tensor's first number to the last that its strides reach.
Part reach_of(const StoredWeights& tensor, std::size_t width) {
  std::uint64_t steps = 0;
  for (std::size_t d = 0; d < tensor.strides.size(); ++d)
    steps += (tensor.info.shape[d] - 1) * tensor.strides[d];
  return {tensor.storage.offset + tensor.first * width, (steps + 1) * width};
}

/// Walks the numbers of a tensor row by row, whatever its strides. `bytes_at` has the bytes of the
/// number that lies so many numbers behind the first.
template <class BytesAt>
void gather(const StoredWeights& tensor, const BytesAt& bytes_at, std::span<float> values) {
  const auto read = reader_of(tensor.type).read;
  const auto& shape = tensor.info.shape;
  const std::size_t last = shape.empty() ? 0 : shape.size() - 1;
  const std::uint64_t row = shape.empty() ? 1 : shape[last];
  const std::uint64_t step = shape.empty() ? 0 : tensor.strides[last];
  std::vector<std::uint64_t> at(last, 0);
  std::uint64_t first = 0;
  for (std::size_t done = 0; done < values.size();) {
    for (std::uint64_t i = 0; i < row; ++i) values[done++] = read(bytes_at(first + i * step));
    for (std::size_t d = last; d-- > 0;) {
      first += tensor.strides[d];
      if (++at[d] < shape[d]) break;
      first -= tensor.strides[d] * shape[d];
      at[d] = 0;
    }
  }
}

std::uint32_t crc_of(ByteSource& bytes, const Part& part) {
  std::uint32_t crc = 0;
  for (std::uint64_t at = part.offset; at < part.end(); at += crc_piece)
    crc = crc32(bytes.at({at, std::min(crc_piece, part.end() - at)}), crc);
  return crc;
}

Error refused(const std::filesystem::path& path, Exit code, std::string_view why) {
  return Error(code, "weights " + printable(path.string()), why);
}

}  // namespace

std::size_t bytes_of(StoredType type) { return reader_of(type).bytes; }

std::vector<std::uint64_t> row_major(std::span<const std::uint64_t> shape) {
  std::vector<std::uint64_t> strides(shape.size());
  std::uint64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0; stride *= shape[d]) strides[d] = stride;
  return strides;
}

void expect_within_storage(const StoredWeights& tensor) {
  const auto& [name, shape] = tensor.info;
  const auto fail = [&, &name = name](std::string_view why) {
    throw BadWeights(fmt::format("tensor {} {}", brief(name, 100), why));
  };
  if (name.empty() || name.size() > longest_weight_name) fail("has no usable name");
  if (shape.size() > most_weight_dimensions || shape.size() != tensor.strides.size())
    fail("has no usable shape");
  constexpr std::uint64_t most = std::uint64_t{1} << 60;
  std::uint64_t count = 1, last = tensor.first;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::uint64_t reach = 0;
    const std::uint64_t steps = shape[d] > 0 ? shape[d] - 1 : 0;
    if (__builtin_mul_overflow(count, shape[d], &count) ||
        __builtin_mul_overflow(steps, tensor.strides[d], &reach) ||
        __builtin_add_overflow(last, reach, &last) || count > most)
      fail("is larger than any file");
  }
  if (count > 0 && last >= tensor.storage.size / bytes_of(tensor.type))
    fail("does not lie in its storage");
}

void read_weights(ByteSource& bytes, const StoredWeights& tensor, std::span<float> values,
                  bool check) {
  if (values.empty()) return;
  if (check && tensor.crc && crc_of(bytes, tensor.storage) != *tensor.crc)
    throw BadWeights(fmt::format("the storage of tensor {} does not fit its CRC-32",
                                 brief(tensor.info.name, 100)));
  const std::size_t width = bytes_of(tensor.type);
  const Part reach = reach_of(tensor, width);
  if (reach.size > std::max(most_reach, most_reach_per_byte * width * values.size())) {
    const auto one = [&](std::uint64_t i) {
      return bytes.at({reach.offset + i * width, width}).data();
    };
    return gather(tensor, one, values);
  }
  const std::uint8_t* first = bytes.at(reach).data();
  gather(
      tensor, [&](std::uint64_t i) { return first + i * width; }, values);
}

bool WeightsFile::is_one(const std::filesystem::path& path) {
  struct stat status {};
  // a device or FIFO is not opened
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::array<std::uint8_t, weights_head_bytes> head{};
  const auto got = ::pread(file.get(), head.data(), head.size(), 0);
  return got > 0 && begins_weights(std::span(head).first(static_cast<std::size_t>(got)),
                                   static_cast<std::uint64_t>(status.st_size));
}

WeightsFile WeightsFile::open(const std::filesystem::path& path, WorkProgress* progress) try {
  at(progress, Work::read, path.native());
  auto bytes = std::make_unique<FileSource>(path, progress);
  auto index = read_weights_index(*bytes);
  if (!index) throw BadWeights("begins neither as safetensors nor as torch.save()'s files do");
  return WeightsFile(path, std::move(bytes), std::move(*index));
} catch (const BadWeights& bad) {
  throw refused(path, bad.code, bad.what());
} catch (const Error& failure) {
  if (failure.code() != Exit::data) throw;
  throw refused(path, Exit::storage, failure.what());
}

WeightsFile::WeightsFile(std::filesystem::path path, std::unique_ptr<ByteSource> bytes,
                         WeightsIndex index)
    : path_(std::move(path)),
      bytes_(std::move(bytes)),
      index_(std::make_unique<WeightsIndex>(std::move(index))) {
  for (const StoredWeights& tensor : index_->tensors) tensors_.push_back(tensor.info);
}

WeightsFile::WeightsFile(WeightsFile&&) noexcept = default;
WeightsFile& WeightsFile::operator=(WeightsFile&&) noexcept = default;
WeightsFile::~WeightsFile() = default;

std::string_view WeightsFile::format() const { return index_->format; }
const std::string& WeightsFile::section() const { return index_->section; }

void WeightsFile::read(std::size_t tensor, std::span<float> values) const try {
  expects(tensor < tensors_.size() && values.size() == element_count(tensors_[tensor]),
          "WeightsFile::read: values have the tensor's size");
  const StoredWeights& stored = index_->tensors[tensor];
  // tensors may share a storage, which is checked once
  read_weights(*bytes_, stored, values, checked_.insert(stored.storage.offset).second);
} catch (const BadWeights& bad) {
  throw refused(path_, bad.code, bad.what());
} catch (const Error& failure) {
  if (failure.code() != Exit::data) throw;
  throw refused(path_, Exit::storage, failure.what());
}

}  // namespace ringtrain::io
