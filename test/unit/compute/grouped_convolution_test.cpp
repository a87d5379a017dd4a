// Convolutions in groups: our depthwise kernels, and oneDNN's of merged groups, against the
// reference. None of oneDNN's may be a reference kernel of its own, a hundred times slower.
#include <omp.h>

#include "compute/onednn/isa.hpp"
#include "support/backend_comparison.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;

namespace {

std::ptrdiff_t slow_kernels(const BackendComparison& comparison) {
  return std::ranges::count_if(comparison.implementations, [](const std::string& implementation) {
    return implementation.starts_with("ref");
  });
}

// Without AVX-512 oneDNN has no other kernel of input gradients whose strides differ; no network
// has any, as a model file says one stride. What has SSE4.1 alone may be slow.
std::ptrdiff_t most_slow_kernels(const Window& window) {
  if (onednn::effective_isa() == onednn::Isa::baseline) return 3;
  return onednn::effective_isa() == onednn::Isa::avx2 && window.stride_y != window.stride_x ? 1 : 0;
}

// Whether oneDNN makes the gradients of groups of so many channels.
bool fills_block(int channels) { return channels == onednn::block_of(onednn::effective_isa()); }

BackendComparison check(const ConvolutionShape& window, const Shape& x, int out, bool bias,
                        Activation then = Activation::none) {
  BackendComparison comparison(convolution_case(window, x, out, 3, bias, then));
  comparison.check();
  CHECK(slow_kernels(comparison) <= most_slow_kernels(window));
  return comparison;
}

}  // namespace

TEST_CASE("onednn: depthwise convolutions agree with the reference, of any window", "[onednn]") {
  const Window window =
      GENERATE(Window{3, 3, 1, 1, 1, 1, 1, 1}, Window{3, 3, 2, 2, 0, 0, 1, 1},
               Window{3, 3, 2, 2, 1, 1, 1, 1}, Window{5, 5, 1, 1, 2, 2, 2, 2},
               Window{5, 5, 2, 2, 1, 1, 2, 2}, Window{7, 7, 1, 1, 3, 3, 3, 3}, Window{1, 1, 2, 2},
               Window{1, 7, 1, 1, 0, 3, 0, 3}, Window{3, 2, 2, 3, 2, 0, 1, 1}, Window{2, 2, 3, 3},
               Window{4, 3, 1, 2, 0, 1, 3, 0});
  const int channels = GENERATE(3, 16, 24, 40), batch = GENERATE(1, 3);
  CAPTURE(window.height, window.width, window.stride_y, channels, batch);

  const BackendComparison comparison =
      check({window, channels}, {batch, 9, 29, channels}, channels, channels != 16);

  CHECK(std::ranges::count(comparison.implementations, "depthwise") == 3);
}

TEST_CASE("onednn: depthwise convolutions of images smaller than the filter", "[onednn]") {
  const auto [height, width] = GENERATE(std::pair{1, 1}, std::pair{1, 40}, std::pair{4, 2});
  const Window window = GENERATE(Window{7, 7, 1, 1, 3, 3, 3, 3}, Window{5, 5, 2, 2, 2, 2, 2, 2},
                                 Window{5, 5, 2, 2, 1, 1, 2, 2}, Window{3, 3, 3, 3, 1, 1, 1, 1});
  if (height + window.top + window.bottom < window.height) return;
  CAPTURE(height, width, window.height);

  check({window, 20}, {35, height, width, 20}, 20, true);  // more images than sums are apart
}

// Rows of images are done in bands, and blocks of channels and images summed in pieces.
TEST_CASE("onednn: depthwise convolutions of large and of many images", "[onednn]") {
  const Window window =
      GENERATE(Window{3, 3, 1, 1, 1, 1, 1, 1}, Window{5, 5, 2, 2, 1, 1, 2, 2},
               Window{7, 7, 1, 1, 3, 3, 3, 3}, Window{6, 9, 1, 2, 2, 4, 3, 4}, Window{});
  const Shape x = GENERATE(Shape{1, 70, 45, 24}, Shape{9, 7, 7, 150});
  CAPTURE(window.height, window.stride_y, x.height);

  check({window, x.channels}, x, x.channels, true);
}

TEST_CASE("onednn: the number of threads changes no bit of a depthwise convolution", "[onednn]") {
  const Window window = GENERATE(Window{3, 3, 2, 2, 0, 0, 1, 1}, Window{5, 5, 1, 1, 2, 2, 2, 2});
  const Shape x = GENERATE(Shape{8, 37, 30, 8}, Shape{5, 7, 7, 150});
  const int before = omp_get_max_threads();
  std::vector<std::vector<std::vector<float>>> results;
  for (const int threads : {1, 2, 3, 8}) {
    omp_set_num_threads(threads);
    results.push_back(check({window, x.channels}, x, x.channels, true).results);
  }
  omp_set_num_threads(before);

  for (const auto& others : results) CHECK(others == results[0]);
}

TEST_CASE("onednn: an activation behind a depthwise convolution", "[onednn]") {
  const Activation then = any_activation();
  CAPTURE(name_of(then));

  check({Window{3, 3, 1, 1, 1, 1, 1, 1}, 20}, {2, 5, 6, 20}, 20, true, then);
}

// Groups that fill blocks, that fill them together, with some channels over, and that never do.
TEST_CASE("onednn: convolutions in groups agree with the reference", "[onednn]") {
  struct Case {
    int groups, in, out;  // of a group
  };
  const auto [groups, in, out] =
      GENERATE(Case{2, 16, 16}, Case{4, 32, 16}, Case{8, 4, 4}, Case{13, 8, 8}, Case{3, 8, 8},
               Case{5, 4, 4}, Case{4, 8, 16}, Case{2, 24, 24}, Case{3, 24, 24}, Case{3, 5, 7},
               Case{17, 1, 2}, Case{16, 2, 1}, Case{2, 3, 16});
  const Window window = GENERATE(Window{3, 3, 1, 1, 1, 1, 1, 1}, Window{3, 3, 2, 2, 0, 0, 1, 1},
                                 Window{3, 3, 2, 2, 1, 1, 1, 1}, Window{}, Window{1, 1, 2, 2},
                                 Window{3, 2, 2, 1, 0, 1, 1, 0});
  CAPTURE(groups, in, out, window.height, window.stride_y);

  check({window, groups}, {2, 8, 10, groups * in}, groups * out, in != 16);
}

// Rows of one tile and of several with some results over, and those that no tap reaches.
TEST_CASE("onednn: groups that share a block of channels agree with the reference", "[onednn]") {
  const Window window =
      GENERATE(Window{3, 3, 1, 1, 1, 1, 1, 1}, Window{3, 3, 2, 2, 1, 1, 1, 1}, Window{3, 3},
               Window{3, 3, 2, 2}, Window{3, 3, 2, 2, 0, 0, 1, 1}, Window{3, 3, 1, 1, 2, 2, 0, 1},
               Window{3, 3, 2, 2, 2, 2, 2, 2}, Window{1, 3, 1, 1, 0, 1, 0, 1},
               Window{5, 3, 2, 2, 2, 0, 1, 1}, Window{1, 3, 2, 2, 0, 1, 0, 0});
  const auto [groups, channels] = GENERATE(std::pair{5, 4}, std::pair{4, 4}, std::pair{3, 8});
  const auto [height, width] = GENERATE(std::pair{7, 7}, std::pair{10, 30}, std::pair{3, 57});
  if (height + window.top + window.bottom < window.height) return;
  CAPTURE(window.height, window.stride_y, window.left, groups, channels, height, width);

  const BackendComparison comparison = check(
      {window, groups}, {2, height, width, groups * channels}, groups * channels, groups != 4);

  const bool ours = !fills_block(channels) || (window.stride_x == 2 && window.left == 0);
  CHECK(std::ranges::count(comparison.implementations, "grouped") == (ours ? 3 : 1));
}

TEST_CASE("onednn: groups that share a block are convolved by many threads with the same bits",
          "[onednn]") {
  const int channels = GENERATE(4, 8), step = GENERATE(1, 2);
  const int batch = GENERATE(1, 35);  // more images than sums are apart
  if (fills_block(channels)) return;  // oneDNN sums those weight gradients, by thread
  CAPTURE(channels, step, batch);
  BackendComparison comparison(convolution_case({Window{3, 3, step, step, 1, 1, 1, 1}, 5},
                                                {batch, 19, 9, 5 * channels}, 5 * channels, 3, true,
                                                Activation::none));
  const auto results_on = [&](int threads) {
    const int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    comparison.check();
    omp_set_num_threads(before);
    return comparison.results;
  };

  const auto alone = results_on(1);
  for (const int threads : {2, 5}) CHECK(results_on(threads) == alone);
}

TEST_CASE("onednn: an activation behind a convolution in groups", "[onednn]") {
  const Activation then = any_activation();
  CAPTURE(name_of(then));

  check({Window{3, 3, 1, 1, 1, 1, 1, 1}, 13}, {2, 9, 11, 104}, 104, true, then);
}

TEST_CASE("onednn: images in groups agree with the reference", "[onednn]") {
  const int out = GENERATE(3, 6, 48);
  check({Window{3, 3, 2, 2, 1, 1, 1, 1}, 3}, {2, 9, 11, 3}, out, true);
}
