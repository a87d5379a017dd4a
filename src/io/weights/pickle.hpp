#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "io/weights/weights_index.hpp"

namespace ringtrain::io {

using PickleId = std::uint32_t;

/// A value of a pickle. Others are named by their place in Pickle::values.
struct PickleValue {
  enum class Kind : std::uint8_t {
    nothing,
    boolean,       ///< number
    integer,       ///< number
    real,          ///< of which nobody asks more
    text,          ///< text
    sequence,      ///< a list or tuple of items
    dictionary,    ///< items: key, value, key, value
    storage_type,  ///< number: a StoredType
    function,      ///< number: one of a table
    storage,       ///< items: type, key, count of numbers
    tensor,        ///< items: storage, first number, shape, strides
  };
  Kind kind = Kind::nothing;
  std::int64_t number = 0;
  std::string_view text = {};
  std::vector<PickleId> items = {};
};

struct Pickle {
  std::vector<PickleValue> values;
  PickleId root = 0;
  std::size_t bytes = 0;  ///< that it takes

  const PickleValue& operator[](PickleId id) const { return values[id]; }
  const PickleValue& top() const { return values[root]; }
  /// The value of a text key; null where there is none. The last one counts, as in Python.
  const PickleValue* find(const PickleValue& dictionary, std::string_view key) const;
  /// The number of an integer that is not negative. Throws BadWeights.
  std::uint64_t count(PickleId id) const;
  std::vector<std::uint64_t> counts(PickleId sequence) const;
};

/// Reads the pickle that `bytes` begin with; its texts lie in them. A pickle is a program for a
/// small stack machine: here it can build the values above, out of the few globals that
/// state dictionaries need, and nothing else. Throws BadWeights(Exit::incompatible_checkpoint) with
/// the name of any other global, and BadWeights for what is no pickle. Takes at most some ten times
/// the bytes.
Pickle read_pickle(std::span<const std::uint8_t> bytes);

}  // namespace ringtrain::io
