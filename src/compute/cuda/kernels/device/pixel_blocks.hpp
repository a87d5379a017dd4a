#pragma once

namespace ringtrain::compute::cuda::kernels {

/// One direction of an image that is stored in blocks of `side` pixels, 2 or 1. Convolution windows
/// start `before` pixels in front of the image; the first stored block has the first of these.
struct BlockAxis {
  int side, before;

  /// Tap `tap` of the window that starts in block b lies in block b + block(tap), at part(tap).
  constexpr int block(int tap) const { return (tap + lead()) / side; }
  constexpr int part(int tap) const { return (tap + lead()) % side; }
  /// The reverse of both. Blocks also hold what is no tap: before the first and past the last.
  constexpr int tap(int block, int part) const { return block * side + part - lead(); }
  /// The image's pixel at `part` of a stored block; what is outside the image is padding.
  constexpr int pixel(int block, int part) const { return tap(block, part) - before; }

 private:
  // Pixels of the first block before the first tap.
  constexpr int lead() const { return before % side; }
};

/// Without blocks an image is stored as it is, and its padding left to the convolution.
constexpr BlockAxis block_axis(bool blocks, int padding) {
  return blocks ? BlockAxis{2, padding} : BlockAxis{1, 0};
}

}  // namespace ringtrain::compute::cuda::kernels
