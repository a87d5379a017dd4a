#pragma once
#include <string>
#include <string_view>

namespace ringtrain {

/// `data` as a record of a TFRecord file: its length, a checksum of that, `data`, a checksum of it.
std::string tfrecord_frame(std::string_view data);

}  // namespace ringtrain
