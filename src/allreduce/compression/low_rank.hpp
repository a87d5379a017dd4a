#pragma once
#include <cstddef>
#include <span>

namespace ringtrain::allreduce {

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
