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

/// A matrix in the memory of others, row-major.
struct Matrix {
  float* values = nullptr;
  std::size_t rows = 0, columns = 0;

  std::span<float> row(std::size_t i) const { return {values + i * columns, columns}; }
};

// Factors of rank r approximate an n x m matrix as left^T right: `left` is r x n, `right` r x m, so
// that each of the r columns or rows of the textbook lies in one piece. All products are made in a
// fixed order: the bits depend on no instruction set.

/// left = right m^T
void times_right(const Matrix& m, const Matrix& right, const Matrix& left);
/// right = left m
void times_left(const Matrix& m, const Matrix& left, const Matrix& right);
/// m += factor * left^T right
void add_product(const Matrix& m, const Matrix& left, const Matrix& right, float factor);
/// Makes the rows of `m` orthogonal to each other and of length 1 (Gram-Schmidt, twice). A row that
/// depends on those before it becomes 0, one that is not finite makes itself and those behind NaN.
void orthonormalise(const Matrix& m);

}  // namespace ringtrain::allreduce
