#pragma once
#include "ringtrain/io/dataset/dataset.hpp"

namespace ringtrain {

/// Reader of a data set whose `image(sample)` is a view of pixels that are already in memory.
template <class Data>
class MemoryReader final : public SampleReader {
 public:
  explicit MemoryReader(const Data& data) : data_(data) {}
  Extent open(std::uint64_t sample) override {
    current_ = data_.image(sample);
    return current_.extent;
  }
  Portion pixels(const Need&) override { return {current_}; }

 private:
  const Data& data_;
  ImageView current_;
};

}  // namespace ringtrain
