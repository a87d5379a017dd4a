#include "io/writer_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstddef>

#include "io/checkpoint_hdf5.hpp"
#include "io/checkpoint_index.hpp"
#include "io/storage_error.hpp"
#include "io/writer_blocks.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"

namespace ringtrain {
namespace {

// small enough to stay in the cache while it is hashed, scanned and copied
constexpr std::size_t piece_floats = 8 << 10;

std::vector<TensorInfo> infos_of(const StateLayout& layout) {
  std::vector<TensorInfo> infos;
  for (const TensorPlace& place : layout.tensors) infos.push_back(place.info);
  return infos;
}

CheckpointIndex index_of(const Snapshot& snapshot, const Hdf5Layout& hdf5,
                         std::uint64_t user_block) {
  CheckpointIndex index{.metadata = snapshot.metadata,
                        .run_id = snapshot.run_id,
                        .tensors = {},
                        .user_block = user_block,
                        .file_bytes = hdf5.bytes,
                        .outside_hash = 0};
  for (std::size_t i = 0; i < hdf5.offsets.size(); ++i) {
    const TensorInfo& info = snapshot.layout->tensors[i].info;
    const std::uint64_t bytes = element_count(info) * sizeof(float);
    index.tensors.push_back(
        {info, bytes == 0 ? user_block : hdf5.offsets[i], bytes, hash_text("")});
  }
  return index;
}

// Branch-free, so that the compiler makes vector code of it.
bool all_finite(std::span<const float> values) {
  std::int32_t largest = 0;
  for (const float value : values)
    largest = std::max(largest, std::bit_cast<std::int32_t>(value) & 0x7fffffff);
  return largest < 0x7f800000;
}

/// Sends the bytes of one checkpoint behind its user block to the file, hashing them on the way.
class FileStream {
 public:
  FileStream(int file, const Hdf5Layout& hdf5, std::uint64_t start)
      : hdf5_(hdf5), position_(start), blocks_(file, start) {}

  /// HDF5's own bytes up to `end`.
  void outside_until(std::uint64_t end) {
    std::vector<std::byte> bytes(std::min<std::uint64_t>(end - position_, 1 << 20));
    while (position_ < end) {
      const std::span piece(bytes.data(), std::min<std::uint64_t>(end - position_, bytes.size()));
      const ssize_t got =
          ::pread(hdf5_.image.get(), piece.data(), piece.size(), static_cast<off_t>(position_));
      expects(got == static_cast<ssize_t>(piece.size()), "the HDF5 image is complete");
      outside_.update(piece);
      write(piece);
    }
  }

  void tensor(StoredTensor& tensor, std::span<const float> values) {
    Hasher hasher;
    while (!values.empty()) {
      const auto piece = values.first(std::min(values.size(), piece_floats));
      if (!all_finite(piece))
        throw Error(Exit::not_finite, "tensor " + tensor.info.name,
                    "has a NaN or infinite value; such a state is not saved");
      hasher.update(std::as_bytes(piece));
      write(std::as_bytes(piece));
      values = values.subspan(piece.size());
    }
    tensor.hash = hasher.value();
  }

  std::uint64_t finish() {
    blocks_.finish();
    return outside_.value();
  }

 private:
  void write(std::span<const std::byte> bytes) {
    blocks_.append(bytes);
    position_ += bytes.size();
  }

  const Hdf5Layout& hdf5_;
  std::uint64_t position_;
  Hasher outside_;
  BlockWriter blocks_;
};

std::span<const float> values_of(const Snapshot& snapshot, std::size_t tensor) {
  const TensorPlace& place = snapshot.layout->tensors[tensor];
  return snapshot.buffers[place.buffer].subspan(place.offset, element_count(place.info));
}

void write_body(int file, const Snapshot& snapshot, const Hdf5Layout& hdf5,
                CheckpointIndex& index) {
  FileStream stream(file, hdf5, index.user_block);
  for (const StoredTensor* next : in_file_order(index)) {
    const auto i = static_cast<std::size_t>(next - index.tensors.data());
    stream.outside_until(next->offset);
    stream.tensor(index.tensors[i], values_of(snapshot, i));
  }
  stream.outside_until(index.file_bytes);
  index.outside_hash = stream.finish();
}

void write_head(int file, const CheckpointIndex& index) {
  BlockWriter blocks(file, 0);
  blocks.append(encode(index));
  blocks.finish();
}

// Finds a full disk before time is spent on it, and keeps the blocks together. Optional.
void reserve(int file, std::uint64_t bytes) {
  if (::fallocate(file, 0, 0, static_cast<off_t>(bytes)) != 0 && errno != EOPNOTSUPP &&
      errno != ENOSYS && errno != EINVAL)
    check_storage(-1, "fallocate");
}

std::uint64_t state_hash_of(const CheckpointIndex& index, std::span<const TensorInfo> infos) {
  std::vector<std::uint64_t> hashes;
  for (const StoredTensor& tensor : index.tensors) hashes.push_back(tensor.hash);
  return state_hash(index.metadata, infos, hashes);
}

}  // namespace

WrittenCheckpoint write_checkpoint(int file, const Snapshot& snapshot) {
  const std::vector<TensorInfo> infos = infos_of(*snapshot.layout);
  const std::uint64_t user_block = user_block_bytes(snapshot.metadata, infos);
  const Hdf5Layout hdf5 = lay_out_hdf5(snapshot.metadata, infos, user_block);
  CheckpointIndex index = index_of(snapshot, hdf5, user_block);

  reserve(file, index.file_bytes);
  write_body(file, snapshot, hdf5, index);
  write_head(file, index);
  check_storage(::ftruncate(file, static_cast<off_t>(index.file_bytes)), "ftruncate");
  check_storage(::fsync(file), "fsync");
  return {index.file_bytes, state_hash_of(index, infos)};
}

}  // namespace ringtrain
