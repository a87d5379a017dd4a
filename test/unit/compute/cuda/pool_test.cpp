#include "compute/cuda/kernels/device/lrn_work.hpp"
#include "compute/cuda/kernels/device/pool_work.hpp"
#include "support/kernel_case.hpp"
#include "support/stored_form.hpp"
#include "unit/compute/cuda/kernel_inputs.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda::kernels;

namespace {

// x, a y and dy are the first tensors; the others are results.
void check_averages(KernelCase& c, const PoolOperands& o) {
  c.check(AveragePoolForward{o.window, 0, 2}, {2},
          [&](auto& queue) { work::average_pool_forward(o, c[0], c[2], queue); });
  c.check(AveragePoolBackward{o.window, 1, 3}, {3},
          [&](auto& queue) { work::average_pool_backward(o, c[1], c[3], queue); });
}

// On an image of 6 x 8. The last ones are nearly a window that covers it all, once.
Window any_average_window() {
  return GENERATE(Window{3, 3, 2, 2, 0, 0, 1, 1}, Window{2, 2, 2, 2},
                  Window{3, 3, 1, 1, 1, 1, 1, 1}, Window{6, 8, 1, 1},
                  Window{3, 3, 2, 2, 1, 1, 1, 1}, Window{5, 5, 3, 3}, Window{1, 2, 3, 3},
                  Window{3, 2, 1, 2, 1, 0, 0, 1}, Window{6, 8, 1, 1, 1, 0, 0, 0},
                  Window{6, 8, 1, 1, 0, 0, 1, 0}, Window{6, 8, 1, 1, 0, 0, 0, 1},
                  Window{6, 8, 2, 2, 1, 0, 0, 0}, Window{6, 8, 2, 2, 0, 1, 0, 0},
                  Window{5, 8, 2, 1}, Window{6, 7, 1, 2});
}

}  // namespace

TEST_CASE("cuda kernels: average pools agree with the reference, with padding on one side") {
  const Element element = any_element();
  const Window window = any_average_window();
  const int channels = any_channels(), batch = GENERATE(1, 3);
  CAPTURE(element, window.height, window.stride_y, window.top, channels, batch);
  const Shape x{batch, 6, 8, channels}, y = result_of(window, x, x.channels);
  KernelCase c(element, {x, y, y, x}, 2);

  check_averages(c, {element, window, x, y});
}

TEST_CASE("cuda kernels: average pools take tensors that are aligned to their elements only") {
  const Element element = any_element();
  const Window window = GENERATE(Window{3, 3, 2, 2}, Window{6, 8, 1, 1});
  const TensorId moved = GENERATE(0, 1, 2, 3);
  CAPTURE(element, window.height, moved);
  const Shape x{2, 6, 8, 16}, y = result_of(window, x, x.channels);
  KernelCase c(element, {x, y, y, x}, 2);
  c.misalign(moved);

  check_averages(c, {element, window, x, y});
}

TEST_CASE("cuda kernels: global averages of many channels and pixels agree with the reference") {
  const Element element = any_element();
  const int channels = GENERATE(5, 40, 264), side = GENERATE(1, 7, 20);
  CAPTURE(element, channels, side);
  const Shape x{3, side, side, channels}, y{3, 1, 1, channels};
  const Window whole{side, side, 1, 1};
  KernelCase c(element, {x, y, y, x}, 2, [](double v) { return v + 1; });
  const PoolOperands o{element, whole, x, y};

  c.check(AveragePoolForward{whole, 0, 2}, {2},
          [&](auto& queue) { work::average_pool_forward(o, c[0], c[2], queue); });
  c.check(AveragePoolBackward{whole, 1, 3}, {3},
          [&](auto& queue) { work::average_pool_backward(o, c[1], c[3], queue); });
}

TEST_CASE("cuda kernels: LRN agrees with the reference, any radius and power") {
  const Element element = any_element();
  const int channels = GENERATE(1, 8, 17, 64, 300), radius = GENERATE(1, 4, 20);
  const float beta = GENERATE(0.75f, 0.6f);
  const bool mask = GENERATE(false, true);
  CAPTURE(element, channels, radius, beta, mask);
  const Shape s{2, 5, 7, channels};
  // Rounded, so that some are zero, which a mask takes for off.
  KernelCase c(element, {s, s, s, s}, 2, [](double v) { return std::round(2 * v) / 2; });
  const LrnOperands o{element, s.pixels(), std::size_t(channels), {radius, 1.5f, 0.3f, beta}};

  c.check(LrnForward{{radius, 1.5f, 0.3f, beta}, 0, 2}, {2},
          [&](auto& queue) { work::lrn_forward(o, c[0], c[2], queue); });
  c.check(LrnBackward{{radius, 1.5f, 0.3f, beta}, 0, 1, 3, mask}, {3},
          [&](auto& queue) { work::lrn_backward(o, c[0], c[1], c[3], mask, queue); });
  c.check(LrnBackward{{radius, 1.5f, 0.3f, beta}, 0, 1, 1, mask}, {1},
          [&](auto& queue) { work::lrn_backward(o, c[0], c[1], c[1], mask, queue); });
}

TEST_CASE("cuda kernels: LRN's power holds for sums from tiny to huge") {
  const Shape s{1, 8, 8, 16};
  KernelCase c(Element::fp32, {s, s, s, s}, 2, [](double v) { return std::pow(10., 5 * v); });
  const LrnOperands o{Element::fp32, s.pixels(), 16, {0, 1e-6f, 1, 0.75f}};

  c.check(LrnForward{{0, 1e-6f, 1}, 0, 2}, {2},
          [&](auto& queue) { work::lrn_forward(o, c[0], c[2], queue); });
  c.check(LrnBackward{{0, 1e-6f, 1}, 0, 1, 3}, {3},
          [&](auto& queue) { work::lrn_backward(o, c[0], c[1], c[3], false, queue); });
}

TEST_CASE("cuda kernels: LRN takes as many channels as shared memory holds, and no more") {
  const Shape s{1, 1, 2, 3072};
  KernelCase c(Element::fp16, {s, s, s}, 2);
  LrnOperands o{Element::fp16, 2, 3072, {2, 1, 0.3f, 0.75f}};
  KernelQueue queue = KernelQueue::one_way();

  c.check(LrnBackward{{2, 1, 0.3f, 0.75f}, 0, 1, 2}, {2},
          [&](auto& q) { work::lrn_backward(o, c[0], c[1], c[2], false, q); });
  o.channels = 3073;
  CHECK_THROWS_AS(work::lrn_backward(o, c[0], c[1], c[2], false, queue), Error);
}
