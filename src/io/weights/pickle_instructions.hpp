#pragma once
#include <cstdint>
#include <string_view>

#include "io/weights/pickle.hpp"

namespace ringtrain::io {

// What of Python's pickles the files of weights use.

/// Of protocols 0 to 5.
enum class PickleInstruction : std::uint8_t {
  mark = '(',
  stop = '.',
  real_bytes = 'G',
  integer4 = 'J',
  integer1 = 'K',
  integer2 = 'M',
  none = 'N',
  persistent = 'Q',
  reduce = 'R',
  byte_text4 = 'T',
  byte_text1 = 'U',
  text4 = 'X',
  append = 'a',
  build = 'b',
  global = 'c',
  empty_dictionary = '}',
  appends = 'e',
  get1 = 'h',
  get4 = 'j',
  empty_list = ']',
  put1 = 'q',
  put4 = 'r',
  set_item = 's',
  tuple = 't',
  empty_tuple = ')',
  set_items = 'u',
  protocol = 0x80,
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  yes = 0x88,
  no = 0x89,
  long1 = 0x8a,
  text1 = 0x8c,
  text8 = 0x8d,
  stack_global = 0x93,
  memoize = 0x94,
  frame = 0x95,
};

enum class PickleFunction : std::int64_t { ordered_dict, rebuild_tensor, rebuild_parameter };

/// A name of Python's that a pickle may have, and the value that stands for it.
struct KnownGlobal {
  std::string_view module, name;
  PickleValue::Kind kind;
  std::int64_t number;
};

constexpr KnownGlobal storage_type(std::string_view name, StoredType type) {
  return {"torch", name, PickleValue::Kind::storage_type, static_cast<std::int64_t>(type)};
}

inline constexpr KnownGlobal known_globals[] = {
    {"collections", "OrderedDict", PickleValue::Kind::function,
     std::int64_t(PickleFunction::ordered_dict)},
    {"torch._utils", "_rebuild_tensor", PickleValue::Kind::function,
     std::int64_t(PickleFunction::rebuild_tensor)},
    {"torch._utils", "_rebuild_tensor_v2", PickleValue::Kind::function,
     std::int64_t(PickleFunction::rebuild_tensor)},
    {"torch._utils", "_rebuild_parameter", PickleValue::Kind::function,
     std::int64_t(PickleFunction::rebuild_parameter)},
    storage_type("DoubleStorage", StoredType::f64),
    storage_type("FloatStorage", StoredType::f32),
    storage_type("HalfStorage", StoredType::f16),
    storage_type("BFloat16Storage", StoredType::bf16),
    storage_type("LongStorage", StoredType::i64),
    storage_type("IntStorage", StoredType::i32),
    storage_type("ShortStorage", StoredType::i16),
    storage_type("CharStorage", StoredType::i8),
    storage_type("ByteStorage", StoredType::u8),
    storage_type("BoolStorage", StoredType::boolean),
};

}  // namespace ringtrain::io
