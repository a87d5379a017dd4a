#include "io/dataset/encoded_dataset.hpp"

#include "io/image/decoder.hpp"

namespace ringtrain::io {
namespace {

/// Runs `decode`, naming the sample's place when it is undecodable.
template <class Decode>
auto naming(const EncodedDataset& data, std::uint64_t sample, Decode decode) {
  try {
    return decode();
  } catch (const Undecodable& failure) {
    throw UnreadableSample("decode " + data.place(sample), failure.what());
  }
}

class EncodedReader final : public SampleReader {
 public:
  EncodedReader(const EncodedDataset& data, std::uint64_t max_pixels)
      : data_(data), decoder_(make_image_decoder(max_pixels)) {}

  void share(ReadRetries& retries) override { retries_ = &retries; }
  Extent open(std::uint64_t sample) override {
    sample_ = sample;
    const auto bytes = data_.encoded(sample, buffer_, *retries_);
    return naming(data_, sample_, [&] { return decoder_->open(bytes); });
  }
  PixelView pixels(const CropRequest& need) override {
    return naming(data_, sample_, [&] { return decoder_->pixels(need, image_); });
  }

 private:
  const EncodedDataset& data_;
  std::unique_ptr<Decoder> decoder_;
  ReadRetries own_retries_;
  ReadRetries* retries_ = &own_retries_;
  std::uint64_t sample_ = 0;
  std::vector<std::uint8_t> buffer_;
  Image image_;
};

}  // namespace

std::unique_ptr<SampleReader> EncodedDataset::reader() const {
  return std::make_unique<EncodedReader>(*this, max_pixels_);
}

}  // namespace ringtrain::io
