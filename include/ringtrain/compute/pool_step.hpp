#pragma once
#include <optional>
#include <tuple>
#include <vector>

#include "ringtrain/compute/batch_norm_step.hpp"
#include "ringtrain/compute/shape.hpp"

// Steps that slide a window over each channel by itself, and what pads the image for them.
namespace ringtrain::compute {

/// Maximum over each window; padding never wins. With a prologue, what it makes of x stands for x;
/// it has neither residual nor y.
struct MaxPoolForward {
  Window window;
  TensorId x, y;
  std::optional<AppliedNorm> prologue = std::nullopt;
  static constexpr const char* name = "MaxPoolForward";
  static constexpr auto reads = std::tuple(&MaxPoolForward::x);
  static constexpr auto writes = std::tuple(&MaxPoolForward::y);
};
/// dx = the gradient of the MaxPoolForward with the same x and prologue: of each window, dy + dy2?
/// goes to the first maximum in row order. `y` is the forward result; with a prologue it is
/// no_tensor, because the maxima are then found anew, and dx is the gradient of what the prologue
/// makes of x. With an epilogue, dx is no_tensor: what would be written there is the epilogue's dy.
struct MaxPoolBackward {
  Window window;
  TensorId x, y, dy, dx, dy2 = no_tensor;
  std::optional<AppliedNorm> prologue = std::nullopt;
  std::optional<BatchNormSums> epilogue = std::nullopt;
  static constexpr const char* name = "MaxPoolBackward";
  static constexpr auto reads =
      std::tuple(&MaxPoolBackward::x, &MaxPoolBackward::y, &MaxPoolBackward::dy,
                 &MaxPoolBackward::dy2, &MaxPoolBackward::epilogue);
  static constexpr auto writes = std::tuple(&MaxPoolBackward::dx);
};
/// Mean over the pixels of each window that are not padding. Global pooling is a window as large as
/// the image.
struct AveragePoolForward {
  Window window;
  TensorId x, y;
  static constexpr const char* name = "AveragePoolForward";
  static constexpr auto reads = std::tuple(&AveragePoolForward::x);
  static constexpr auto writes = std::tuple(&AveragePoolForward::y);
};
struct AveragePoolBackward {
  Window window;
  TensorId dy, dx;
  static constexpr const char* name = "AveragePoolBackward";
  static constexpr auto reads = std::tuple(&AveragePoolBackward::dy);
  static constexpr auto writes = std::tuple(&AveragePoolBackward::dx);
};

/// y = the sum over each window of x times the window's numbers, row by row: the same for all
/// channels. Padding is zero.
struct FilterForward {
  Window window;
  std::vector<float> taps;
  TensorId x, y;
  static constexpr const char* name = "FilterForward";
  static constexpr auto reads = std::tuple(&FilterForward::x);
  static constexpr auto writes = std::tuple(&FilterForward::y);
};
struct FilterBackward {
  Window window;
  std::vector<float> taps;
  TensorId dy, dx;
  static constexpr const char* name = "FilterBackward";
  static constexpr auto reads = std::tuple(&FilterBackward::dy);
  static constexpr auto writes = std::tuple(&FilterBackward::dx);
};

/// y = x with `border` more pixels on each side, mirrored at the edge, which is not repeated: pixel
/// -1 is pixel 1. A border is narrower than the image.
struct ReflectPadForward {
  TensorId x, y;
  int border = 1;
  static constexpr const char* name = "ReflectPadForward";
  static constexpr auto reads = std::tuple(&ReflectPadForward::x);
  static constexpr auto writes = std::tuple(&ReflectPadForward::y);
};
struct ReflectPadBackward {
  TensorId dy, dx;
  int border = 1;
  static constexpr const char* name = "ReflectPadBackward";
  static constexpr auto reads = std::tuple(&ReflectPadBackward::dy);
  static constexpr auto writes = std::tuple(&ReflectPadBackward::dx);
};

/// Where pixel `at` of a line of `size` lies that is mirrored at both ends.
constexpr int reflected(int at, int size) {
  return at < 0 ? -at : at >= size ? 2 * (size - 1) - at : at;
}

}  // namespace ringtrain::compute
