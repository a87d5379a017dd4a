// Weights in the form in which they meet a stored image, proven by the convolution they make.
#include "compute/cuda/kernels/device/update/weights_work.hpp"
#include "support/kernel_case.hpp"
#include "support/stored_form.hpp"
#include "unit/compute/cuda/kernel_inputs.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda::kernels;
using work::WeightPlaces;

namespace {

StoredForm blocks(const Window& window, const Shape& x) {
  return {window, x, result_of(window, x, 5), true, 16};
}
StoredForm padded(const Window& window, int channels, int stored) {
  const Shape x{2, 6, 5, channels};
  return {window, x, result_of(window, x, 5), false, stored};
}

StoredForm any_form() {
  if (GENERATE(false, true))
    return padded(GENERATE(Window{3, 3, 1, 1, 1, 1, 1, 1}, Window{3, 1, 2, 2, 1, 0, 1, 0}),
                  GENERATE(1, 3, 4), GENERATE(4, 8, 12));
  const Window window =
      GENERATE(Window{7, 7, 2, 2, 3, 3, 3, 3}, Window{3, 3, 2, 2}, Window{3, 3, 2, 2, 1, 1, 1, 1},
               Window{3, 3, 2, 2, 0, 0, 1, 1}, Window{5, 4, 2, 2, 2, 1, 2, 1}, Window{1, 1, 2, 2});
  return blocks(window, {2, GENERATE(8, 9), GENERATE(10, 11), GENERATE(1, 3, 4)});
}

/// Flat weights that are aligned to their elements only, and packed ones with random numbers where
/// none belong.
struct Weights {
  StoredForm form;
  compute::cuda::kernels::work::WeightPlaces places;
  DeviceTensor flat, packed;
  Element element;

  Weights(const StoredForm& f, Element e)
      : form(f),
        places(f.weights()),
        flat(e, 1 + places.flat_count()),
        packed(e, places.stored_count()),
        element(e) {
    flat.write(random(1 + places.flat_count(), 1));
    packed.write(random(places.stored_count(), 2));
  }
  static std::vector<double> random(std::size_t count, std::uint64_t stream) {
    Philox numbers(stream, Purpose::initialise);
    std::vector<double> values(count);
    for (double& v : values) v = numbers.normal();
    return values;
  }
  std::vector<double> values() const {
    const std::vector<double> all = flat.read();
    return {all.begin() + 1, all.end()};
  }
  void pack() {
    const std::byte* first = static_cast<const std::byte*>(flat.data()) + bytes_of(element);
    run_twice({packed.bytes()}, [&](auto& queue) {
      work::pack_weights(form.weights(), element, first, packed.data(), queue);
    });
  }
  std::vector<float> unpack() {
    std::vector<float> gradient(places.flat_count());
    run_twice({bytes_of_values(gradient)}, [&](auto& queue) {
      work::unpack_weights(form.weights(), element, packed.data(), gradient.data(), queue);
    });
    return gradient;
  }
};

reference::State state_of(const Window& window, const Shape& x, const Shape& y) {
  Schedule schedule = schedule_of({x, y});
  schedule.parameters = std::size_t(y.channels) * window.height * window.width * x.channels;
  return {schedule, 0};
}

std::vector<double> convolved(const Window& window, const Shape& x, const Shape& y,
                              std::vector<double> image, std::vector<double> weights) {
  reference::State state = state_of(window, x, y);
  REQUIRE(state.parameters.size() == weights.size());
  state[0] = std::move(image);
  state.parameters = std::move(weights);
  reference::run_step(ConvolutionForward{window, 0, 1, {0, state.parameters.size()}}, state);
  return state[1];
}

std::vector<double> weight_gradient(const Window& window, const Shape& x, const Shape& y,
                                    std::vector<double> image, std::vector<double> dy) {
  reference::State state = state_of(window, x, y);
  state[0] = std::move(image);
  state[1] = std::move(dy);
  reference::run_step(ConvolutionWeightGradient{window, 0, 1, {0, state.parameters.size()}}, state);
  return state.gradients;
}

}  // namespace

TEST_CASE("cuda kernels: packed weights on the stored image make the same convolution") {
  const StoredForm form = any_form();
  Weights weights(form, any_element());
  CAPTURE(weights.element, form.window.height, form.window.top, form.x.height, form.x.width,
          form.x.channels, form.blocks);
  const auto image = Weights::random(form.x.elements(), 3);

  weights.pack();

  const auto y = convolved(form.stored_window(), form.stored_x(), form.y, form.stored(image),
                           weights.packed.read());
  CHECK(relative_norm(y, convolved(form.window, form.x, form.y, image, weights.values())) < 1e-12);
}

TEST_CASE("cuda kernels: what has no place among flat weights is packed as zero") {
  const StoredForm form = any_form();
  Weights weights(form, any_element());
  const auto nonzero = [](const auto& values) {
    return std::ranges::count_if(values, [](double v) { return v != 0; });
  };

  weights.pack();

  CHECK(nonzero(weights.packed.read()) == nonzero(weights.values()));
}

TEST_CASE("cuda kernels: unpacking gives back what was packed") {
  Weights weights(any_form(), any_element());

  weights.pack();

  const auto values = weights.values();
  CHECK(weights.unpack() == std::vector<float>(values.begin(), values.end()));
}

TEST_CASE("cuda kernels: the unpacked gradient is that of the flat weights") {
  const StoredForm form = any_form();
  Weights weights(form, Element::fp32);
  const auto image = Weights::random(form.x.elements(), 3),
             dy = Weights::random(form.y.elements(), 4);
  weights.packed.write(
      weight_gradient(form.stored_window(), form.stored_x(), form.y, form.stored(image), dy));

  const auto gradient = weights.unpack();

  CHECK(relative_norm(gradient, weight_gradient(form.window, form.x, form.y, image, dy)) < 1e-6);
}

TEST_CASE("cuda kernels: a form that cannot hold the weights is refused") {
  const WeightForm good = blocks({7, 7, 2, 2, 3, 3, 3, 3}, {1, 8, 8, 3}).weights();
  KernelQueue queue = KernelQueue::one_way();
  const auto refused = [&](auto change) {
    WeightForm form = good;
    change(form);
    CHECK_THROWS_AS(work::unpack_weights(form, Element::fp16, nullptr, nullptr, queue), Error);
  };

  refused([](WeightForm& form) { form.stored_in = 11; });
  refused([](WeightForm& form) { form.stored_height = 3; });
  refused([](WeightForm& form) { form.stored_width = 3; });
}

TEST_CASE("cuda kernels: tiles of gradients are widened in one launch, wherever they belong") {
  const Element element = GENERATE(Element::fp16, Element::bf16);
  const std::size_t shift = GENERATE(0, 1, 4);  // of the flat gradients, in elements
  CAPTURE(element, shift);
  const std::vector<std::uint32_t> counts{1, 7, 8, 24, 300, most_widened};
  std::vector<std::unique_ptr<DeviceTensor>> narrow;
  std::vector<WidenTile> tiles;
  std::vector<float> all(shift + 16 * counts.size() + 2 * most_widened, -1);
  REQUIRE(reinterpret_cast<std::uintptr_t>(all.data()) % 16 == 0);
  std::size_t place = shift;
  for (const std::uint32_t count : counts) {
    narrow.push_back(std::make_unique<DeviceTensor>(element, count));
    narrow.back()->write(Weights::random(count, count));
    const bool is_aligned = place % 4 == 0;
    tiles.push_back({narrow.back()->data(), place, count, is_aligned ? count / 8 : 0});
    place += count;
  }
  std::vector<float> wanted = all;
  place = shift;
  for (const auto& tensor : narrow)
    for (const double v : tensor->read()) wanted[place++] = static_cast<float>(v);

  run_twice({bytes_of_values(all)}, [&](auto& queue) {
    work::widen_gradients(element, tiles.data(), tiles.size(), all.data(), queue);
  });

  CHECK(all == wanted);
}
