#pragma once
#include <vector>

#include "ringtrain/base/memory/memory.hpp"

namespace ringtrain::allreduce {

/// Room in which gradients are summed in 16 bits: half the bytes between the ranks. Thread: main.
class HalfBuffer {
 public:
  /// For `count` numbers between two calls of widen(). Both references outlive this object.
  /// Collective where `memory` is.
  HalfBuffer(Rounding& rounding, Memory& memory, std::size_t count);
  /// factor * values as `element`, which stays until widen(). Never waits.
  NarrowView round(float factor, View values, Element element);
  /// What round() gave since the last call goes back, as it is now, to where it came from. Never
  /// waits.
  void widen();

 private:
  struct Rounded {
    View values;
    NarrowView halves;
  };

  Rounding& rounding_;
  const std::size_t count_;
  const Buffer memory_;
  std::size_t free_;  // numbers in front of those in use
  std::vector<Rounded> rounded_;
};

}  // namespace ringtrain::allreduce
