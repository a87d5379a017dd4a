#include "io/checkpoint_writer/checkpoint_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/hash.hpp"

namespace ringtrain::io {
namespace {

// small enough to stay in the cache while it is hashed, scanned and copied
constexpr std::size_t piece_floats = 8 << 10;

std::vector<TensorInfo> infos_of(const StateLayout& layout) {
  std::vector<TensorInfo> infos;
  for (const TensorPlace& place : layout.tensors) infos.push_back(place.info);
  return infos;
}

// Exponent bits all set mean NaN or infinite: adding one to the exponent then carries into the sign
// bit. Lanes of a fixed number, because only then -O2 makes vector code of it (14 instead of 66 ms
// for 205 MB).
bool all_finite(std::span<const float> values) {
  constexpr std::size_t lanes = 16;
  const auto carried = [](float value) {
    return (std::bit_cast<std::uint32_t>(value) & 0x7f800000u) + 0x00800000u;
  };
  std::array<std::uint32_t, lanes> seen{};
  std::size_t i = 0;
  for (; i + lanes <= values.size(); i += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) seen[lane] |= carried(values[i + lane]);
  for (; i < values.size(); ++i) seen[0] |= carried(values[i]);
  return std::ranges::none_of(seen, [](std::uint32_t bits) { return (bits >> 31) != 0; });
}

/// Sends the bytes of one checkpoint behind its user block to the file, hashing them on the way.
class FileStream {
 public:
  FileStream(int file, const Hdf5Layout& hdf5, std::uint64_t start, BlockWriter& blocks)
      : hdf5_(hdf5), position_(start), blocks_(blocks) {
    blocks_.begin(file, start);
  }

  /// HDF5's own bytes up to `end`.
  void outside_until(std::uint64_t end) {
    std::vector<std::byte> bytes(std::min<std::uint64_t>(end - position_, 1 << 20));
    while (position_ < end) {
      const std::span piece(bytes.data(), std::min<std::uint64_t>(end - position_, bytes.size()));
      const ssize_t got =
          ::pread(hdf5_.image(), piece.data(), piece.size(), static_cast<off_t>(position_));
      check_storage(got < 0 ? -1 : 0, "read of the metadata from memory");
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
  BlockWriter& blocks_;
};

// Finds a full disk before time is spent on it, and keeps the blocks together. Optional: what else
// is wrong, the writes will tell.
void reserve(int file, std::uint64_t bytes) {
  if (::fallocate(file, 0, 0, static_cast<off_t>(bytes)) != 0 &&
      (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
    check_storage(-1, "fallocate");
}

}  // namespace

FileWriter::FileWriter(const StateLayout& layout)
    : places_(layout.tensors), infos_(infos_of(layout)) {
  static_cast<void>(hdf5_for({}));
}

const Hdf5Layout& FileWriter::hdf5_for(const CheckpointMetadata& metadata) {
  const std::uint64_t user_block = user_block_bytes(metadata, infos_);
  if (hdf5_ && hdf5_->fits(metadata, user_block))
    hdf5_->fill(metadata);
  else
    hdf5_.emplace(metadata, infos_, user_block);
  return *hdf5_;
}

CheckpointIndex FileWriter::new_index(const Snapshot& snapshot, const Hdf5Layout& hdf5) const {
  CheckpointIndex index{.metadata = snapshot.metadata,
                        .run_id = snapshot.run_id,
                        .lineage = snapshot.lineage,
                        .tensors = {},
                        .user_block = hdf5.user_block(),
                        .file_bytes = hdf5.bytes(),
                        .outside_hash = 0};
  for (std::size_t i = 0; i < infos_.size(); ++i) {
    const std::uint64_t bytes = element_count(infos_[i]) * sizeof(float);
    const std::uint64_t offset = bytes == 0 ? index.user_block : hdf5.offset(i);
    index.tensors.push_back({infos_[i], offset, bytes, hash_text("")});
  }
  return index;
}

void FileWriter::write_body(int file, const Snapshot& snapshot, const Hdf5Layout& hdf5,
                            CheckpointIndex& index) {
  FileStream stream(file, hdf5, index.user_block, blocks_);
  for (const StoredTensor* next : in_file_order(index)) {
    const auto i = static_cast<std::size_t>(next - index.tensors.data());
    const TensorPlace& place = places_[i];
    stream.outside_until(next->offset);
    stream.tensor(index.tensors[i], snapshot.buffers[place.buffer].subspan(
                                        place.offset, next->bytes / sizeof(float)));
  }
  stream.outside_until(index.file_bytes);
  index.outside_hash = stream.finish();
}

void FileWriter::write_head(int file, const CheckpointIndex& index) {
  blocks_.begin(file, 0);
  blocks_.append(encode(index));
  blocks_.finish();
}

std::uint64_t FileWriter::state_hash_of(const CheckpointIndex& index) const {
  std::vector<std::uint64_t> hashes;
  for (const StoredTensor& tensor : index.tensors) hashes.push_back(tensor.hash);
  return state_hash(index.metadata, infos_, hashes);
}

WrittenCheckpoint FileWriter::write(int file, const Snapshot& snapshot) {
  const Hdf5Layout& hdf5 = hdf5_for(snapshot.metadata);
  CheckpointIndex index = new_index(snapshot, hdf5);

  reserve(file, index.file_bytes);
  write_body(file, snapshot, hdf5, index);
  write_head(file, index);
  const auto length = static_cast<off_t>(index.file_bytes);
  check_storage(uninterrupted([&] { return ::ftruncate(file, length); }), "ftruncate");
  check_storage(uninterrupted([&] { return ::fsync(file); }), "fsync");
  return {index.file_bytes, state_hash_of(index)};
}

}  // namespace ringtrain::io
