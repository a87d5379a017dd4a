#include "allreduce/compression/low_rank.hpp"
#include "support/catch.hpp"
#include "support/sum_values.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

TEST_CASE("products: near the exact ones, and the same bits with all instruction sets") {
  const std::size_t count = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{31},
                                     std::size_t{32}, std::size_t{33}, std::size_t{1001});
  CAPTURE(count);
  const auto a = rough_values(count, 0), b = rough_values(count, 1);
  double exact = 0, size = 1;
  for (std::size_t i = 0; i < count; ++i) {
    exact += double(a[i]) * double(b[i]);
    size += std::abs(double(a[i]) * double(b[i]));
  }
  const std::size_t rows = GENERATE(std::size_t{1}, std::size_t{4}, std::size_t{7});
  const auto x = rough_values(rows * count, 2), factors = rough_values(rows, 3);
  auto expected = a, combined = a;
  for (std::size_t k = 0; k < rows; ++k)
    for (std::size_t i = 0; i < count; ++i) expected[i] += factors[k] * x[k * count + i];
  add_combination(combined, x.data(), count, factors);
  const float sum = dot(a, b);

  CHECK(std::abs(sum - exact) < 1e-5 * size);
  CHECK(same_bits(combined, expected));
  for (const ProductKernels& kernels : usable_product_kernels()) {
    CAPTURE(kernels.name);
    auto y = a;
    kernels.add_combination(y.data(), count, x.data(), count, factors);
    CHECK(same_bits(y, expected));
    CHECK(kernels.dot(a.data(), b.data(), count) == sum);
  }
}
