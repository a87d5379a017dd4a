// What cuDNN is asked for the first convolution is what the kernels store.
#include "support/stored_form.hpp"

#include "compute/cuda/engines/convolution.hpp"
#include "support/catch.hpp"

using namespace ringtrain;

TEST_CASE("an image of few channels and stride 2 is asked for in blocks of 2x2 pixels") {
  const compute::Window window =
      GENERATE(compute::Window{7, 7, 2, 2, 3, 3, 3, 3}, compute::Window{3, 3, 2, 2},
               compute::Window{3, 3, 2, 2, 1, 1, 1, 1}, compute::Window{3, 3, 2, 2, 0, 0, 1, 1},
               compute::Window{5, 4, 2, 2, 2, 1, 2, 1}, compute::Window{1, 1, 2, 2});
  const compute::Shape x{2, GENERATE(8, 9), GENERATE(10, 11), GENERATE(1, 3, 4)};
  CAPTURE(window.height, window.top, window.left, x.height, x.width, x.channels);
  const StoredForm form{window, x, result_of(window, x, 64), true, 16};

  const compute::cuda::Convolution at = compute::cuda::stored(window, x, form.y, Element::fp16);

  CHECK(at.window == compute::ConvolutionShape(form.stored_window()));
  CHECK(at.x == form.stored_x());
  CHECK(at.y == form.y);
}

TEST_CASE("other images of few channels are asked for with channels of zeros") {
  const auto [element, channels, stride, stored] =
      GENERATE(table<Element, int, int, int>({{Element::fp32, 3, 2, 4},
                                              {Element::fp32, 5, 2, 8},
                                              {Element::fp16, 3, 1, 8},
                                              {Element::bf16, 5, 2, 8},
                                              {Element::fp16, 8, 2, 8},
                                              {Element::fp16, 12, 2, 12}}));
  CAPTURE(element, channels, stride);
  const compute::Window window{3, 3, stride, stride, 1, 1, 1, 1};
  const compute::Shape x{2, 8, 9, channels};
  const StoredForm form{window, x, result_of(window, x, 64), false, stored};

  const compute::cuda::Convolution at = compute::cuda::stored(window, x, form.y, element);

  CHECK(at.window == compute::ConvolutionShape(window));
  CHECK(at.x == form.stored_x());
  CHECK(at.y == form.y);
}
