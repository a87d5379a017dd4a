#include "ringtrain/base/tfrecord_frame.hpp"

#include <cstring>

#include "ringtrain/base/crc32c.hpp"

namespace ringtrain {
namespace {

template <class T>
void append(std::string& bytes, T number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::uint32_t checksum(std::string_view bytes) {
  return masked_crc32c({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

}  // namespace

std::string tfrecord_frame(std::string_view data) {
  std::string record;
  append(record, std::uint64_t{data.size()});
  append(record, checksum(record));
  record += data;
  append(record, checksum(data));
  return record;
}

}  // namespace ringtrain
