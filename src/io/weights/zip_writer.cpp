#include "io/weights/zip_writer.hpp"

#include <concepts>
#include <cstring>
#include <span>

#include "io/weights/zip.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::io {
namespace {

// PKWARE's APPNOTE.TXT 6.3, sections 4.3.7 to 4.3.16.
constexpr std::uint32_t file_header = 0x04034b50, directory_header = 0x02014b50,
                        directory_end = 0x06054b50;
constexpr std::uint64_t file_header_bytes = 30, extra_head_bytes = 4, alignment = 64;
constexpr std::uint16_t version = 20, stored_method = 0, midnight = 0, first_of_1980 = 0x21;

/// Little-endian fields, one behind the other.
class Fields {
 public:
  template <std::unsigned_integral T>
  Fields& add(T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    text_.append(bytes, sizeof value);
    return *this;
  }
  Fields& add(std::string_view text) {
    text_ += text;
    return *this;
  }
  std::string_view text() const { return text_; }

 private:
  std::string text_;
};

// torch's field of padding, which brings the file's first byte to a multiple of 64.
std::string padding_behind(std::uint64_t name_end) {
  const std::uint64_t begin = name_end + extra_head_bytes;
  const auto size = static_cast<std::uint16_t>((alignment - begin % alignment) % alignment);
  return std::string(Fields().add("FB").add(size).add(std::string(size, 'Z')).text());
}

std::uint16_t short_size(std::string_view text) { return static_cast<std::uint16_t>(text.size()); }

}  // namespace

void ZipWriter::put(std::string_view bytes) {
  out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  at_ += bytes.size();
}

void ZipWriter::add(const std::string& name, std::string_view bytes) {
  expects(at_ + bytes.size() <= most_bytes, "ZipWriter: all files fit 4 GiB");
  const std::span data(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  const Entry& entry =
      entries_.emplace_back(Entry{name, crc32(data), static_cast<std::uint32_t>(bytes.size()),
                                  static_cast<std::uint32_t>(at_)});
  const std::string padding = padding_behind(at_ + file_header_bytes + name.size());
  Fields header;
  header.add(file_header).add(version).add(std::uint16_t{0}).add(stored_method);
  header.add(midnight).add(first_of_1980).add(entry.crc).add(entry.size).add(entry.size);
  header.add(short_size(name)).add(short_size(padding)).add(name).add(padding);
  put(header.text());
  put(bytes);
}

void ZipWriter::finish() {
  constexpr std::uint16_t none = 0;
  const std::uint64_t first = at_;
  for (const Entry& entry : entries_) {
    Fields header;
    header.add(directory_header).add(version).add(version).add(none).add(stored_method);
    header.add(midnight).add(first_of_1980).add(entry.crc).add(entry.size).add(entry.size);
    header.add(short_size(entry.name)).add(none).add(none).add(none).add(none);
    header.add(std::uint32_t{0}).add(entry.offset).add(entry.name);
    put(header.text());
  }
  const auto count = static_cast<std::uint16_t>(entries_.size());
  Fields end;
  end.add(directory_end).add(none).add(none).add(count).add(count);
  end.add(static_cast<std::uint32_t>(at_ - first)).add(static_cast<std::uint32_t>(first)).add(none);
  put(end.text());
}

}  // namespace ringtrain::io
