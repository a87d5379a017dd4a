#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace ringtrain::allreduce {

/// The sum of a[i] * b[i], which are equally long. It is added up in a fixed order: the bits depend
/// on no instruction set.
float dot(std::span<const float> a, std::span<const float> b);
/// y += factors[0] * x + factors[1] * (x + stride) + ..., one after the other, each product and sum
/// rounded by itself. Behind `x` and at each stride are as many numbers as in y.
void add_combination(std::span<float> y, const float* x, std::size_t stride,
                     std::span<const float> factors);

/// The same two, as compiled for one instruction set.
struct ProductKernels {
  const char* name;
  float (*dot)(const float* a, const float* b, std::size_t count);
  void (*add_combination)(float* y, std::size_t count, const float* x, std::size_t stride,
                          std::span<const float> factors);
};

/// Those that this CPU can run, the best first: all give the same bits.
std::vector<ProductKernels> usable_product_kernels();

}  // namespace ringtrain::allreduce
