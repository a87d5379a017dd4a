// How exact the activations of CPUs are, by vector exponentials and polynomials of ours, over a
// dense range. The other tests' tolerances are of whole tensors and would not see it.
#include "compute/onednn/kernels/activation.hpp"

#include <cmath>
#include <iterator>
#include <limits>

#include "compute/reference/state.hpp"
#include "support/activations.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;

namespace {

// The largest errors: of values in units in the last place of fp32 and absolute, of slopes
// absolute.
struct Errors {
  double units = 0, value = 0, slope = 0;
};

template <class T>
Errors errors_of(Activation f, double from, double to) {
  using Lanes = onednn::Vec<4>;
  Errors worst;
  for (double x = from; x <= to; x += 1e-3) {
    const Lanes all = Lanes{} + float(x), one = Lanes{} + 1;
    const double exact = reference::value_of(f, all[0]),
                 saved = facts_of(f).slope_of_output ? float(exact) : all[0];
    const double value = onednn::value_of<4, onednn::Knows::all, T>(f, all)[0],
                 slope = onednn::gradient_of<4, onednn::Knows::all, T>(f, Lanes{} + float(saved),
                                                                       one)[0];
    const double unit = std::ldexp(1.0, std::max(-126, std::ilogb(exact)) - 23),
                 error = std::abs(value - exact);
    if (exact != 0) worst.units = std::max(worst.units, error / unit);
    worst.value = std::max(worst.value, error);
    worst.slope = std::max(worst.slope, std::abs(slope - reference::slope_of(f, saved)));
  }
  return worst;
}

// What of an activation's errors is allowed, by Activation: of values in units of fp32 from -4 to
// 4, of bf16's variant in bf16's units, and absolute from -20 to 20.
struct Bound {
  double units, units_of_bf16, value, slope;
};
constexpr Bound bounds[] = {
    {0, 0, 0, 0},            // none
    {0, 0, 0, 0},            // relu
    {4, 0.05, 2e-6, 1e-6},   // silu
    {0, 0, 0, 0},            // relu6
    {4, 0.05, 2e-7, 1e-7},   // sigmoid
    {2, 0.001, 2e-7, 1e-7},  // hard_sigmoid
    {2, 0.001, 2e-6, 3e-7},  // hard_swish
    {28, 0.05, 5e-7, 1e-6},  // gelu
    {20, 0.05, 6e-7, 2e-6},  // gelu_tanh
};
static_assert(std::size(bounds) == std::size(activation_facts));

constexpr double bf16_over_fp32 = 1 << 16;  // their units in the last place

}  // namespace

TEST_CASE("onednn: activations err by a few units in the last place") {
  const Activation f = any_activation();
  const Bound& bound = bounds[static_cast<std::size_t>(f)];

  const Errors near = errors_of<float>(f, -4, 4), far = errors_of<float>(f, -20, 20),
               of_bf16 = errors_of<Bf16>(f, -4, 4);

  const double units_of_bf16 = of_bf16.units / bf16_over_fp32;
  CAPTURE(name_of(f), near.units, far.value, far.slope, units_of_bf16, of_bf16.slope);
  CHECK(near.units <= bound.units);
  CHECK(far.value <= bound.value);
  CHECK(far.slope <= bound.slope);
  CHECK(units_of_bf16 <= bound.units_of_bf16);
  CHECK(of_bf16.slope <= 3e-4);
}

TEST_CASE("onednn: activations of huge numbers, infinities and NaN") {
  const Activation f = any_activation();
  const float x = GENERATE(-1e6f, -3e4f, -100.f, 100.f, 3e4f, 1e6f);
  CAPTURE(name_of(f), x);
  using Lanes = onednn::Vec<4>;
  const Lanes nan = Lanes{} + std::numeric_limits<float>::quiet_NaN();
  const double saved = facts_of(f).slope_of_output ? reference::value_of(f, x) : x;

  const float value = onednn::value_of<4>(f, Lanes{} + x)[0],
              slope = onednn::gradient_of<4>(f, Lanes{} + float(saved), Lanes{} + 1)[0];

  CHECK(value == Approx(reference::value_of(f, x)).margin(1e-6));
  CHECK(slope == Approx(reference::slope_of(f, saved)).margin(1e-6));
  CHECK(std::isnan(onednn::value_of<4>(f, nan)[0]));
}
