#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace ringtrain {

/// The sum of a[i] * b[i], which are equally long. It is added up in a fixed order: the bits depend
/// on no instruction set.
float dot(std::span<const float> a, std::span<const float> b);
/// y += factor * x, which is as long; each product and sum rounded by itself.
void add_scaled(std::span<float> y, std::span<const float> x, float factor);

/// The same two, as compiled for one instruction set.
struct ProductKernels {
  const char* name;
  float (*dot)(const float* a, const float* b, std::size_t count);
  void (*add_scaled)(float* y, const float* x, float factor, std::size_t count);
};

/// Those that this CPU can run, the best first: all give the same bits.
std::vector<ProductKernels> usable_product_kernels();

}  // namespace ringtrain
