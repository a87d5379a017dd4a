#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/base/file.hpp"
#include "ringtrain/base/work_progress.hpp"
#include "ringtrain/io/files/read_retries.hpp"

namespace ringtrain::io {

/// A piece of a ByteSource.
struct Part {
  std::uint64_t offset = 0, size = 0;
  std::uint64_t end() const { return offset + size; }
};

/// Bytes of which only some are looked at: so that an index of shards is made without reading
/// images.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;
  /// A part that lies within size(), valid until the next call.
  virtual std::span<const std::uint8_t> at(Part part) = 0;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  std::span<const std::uint8_t> at(Part part) override {
    return bytes_.subspan(part.offset, part.size);
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

/// A regular file, of which a few KiB are kept in memory. Reads that fail are tried again.
class FileSource final : public ByteSource {
 public:
  /// Throws Error(Exit::data) with the path and the system's words, as at() does. `progress` hears
  /// of each read; null: nobody.
  explicit FileSource(const std::string& path, WorkProgress* progress = nullptr);
  std::uint64_t size() const override { return size_; }
  std::span<const std::uint8_t> at(Part part) override;

 private:
  std::uint64_t open();

  std::string path_;
  WorkProgress* progress_;
  ReadRetries retries_;
  FileDescriptor file_;
  std::uint64_t size_ = 0, start_ = 0;
  std::vector<std::uint8_t> window_;  // the file's bytes from start_ on
};

/// Opens a file to read from; a FIFO does not make it wait. Throws ReadFailure, and as
/// check_open_files() does.
FileDescriptor open_to_read(const std::string& path);
/// Fills `into` from `offset` of a file and returns how much there was. Throws ReadFailure. Of each
/// MiB `progress` hears, here and below; null: nobody.
std::size_t read_at(const FileDescriptor& file, std::uint64_t offset, std::span<std::uint8_t> into,
                    WorkProgress* progress = nullptr);
/// Reads as read_at() does, but throws ReadFailure also where reading ends before the file's size.
std::size_t read_all_at(const FileDescriptor& file, std::uint64_t offset,
                        std::span<std::uint8_t> into, WorkProgress* progress = nullptr);

}  // namespace ringtrain::io
