#include "allreduce/compression/low_rank.hpp"

#include <cmath>
#include <vector>

#include "support/catch.hpp"
#include "support/sum_values.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

namespace {

// Rows of so many numbers, each row of another magnitude.
struct Rows {
  Rows(std::size_t rows, std::size_t columns)
      : values(rough_values(rows * columns, 5)), matrix{values.data(), rows, columns} {}
  std::vector<float> values;
  Matrix matrix;
};

double at(const Matrix& m, std::size_t i, std::size_t j) { return double(m.row(i)[j]); }

}  // namespace

TEST_CASE("low rank: products are those of the textbook") {
  const std::size_t n = 5, m = 37, r = 2;
  Rows whole(n, m), right(r, m), left(r, n), found(r, n), turned(r, m);

  times_right(whole.matrix, right.matrix, found.matrix);
  times_left(whole.matrix, left.matrix, turned.matrix);
  Rows product = whole;
  product.matrix.values = product.values.data();
  add_product(product.matrix, left.matrix, right.matrix, -1);

  for (std::size_t k = 0; k < r; ++k)
    for (std::size_t i = 0; i < n; ++i) {
      double sum = 0, size = 1;
      for (std::size_t j = 0; j < m; ++j) {
        sum += at(whole.matrix, i, j) * at(right.matrix, k, j);
        size += std::abs(at(whole.matrix, i, j) * at(right.matrix, k, j));
      }
      CHECK(std::abs(at(found.matrix, k, i) - sum) < 1e-6 * size);
    }
  for (std::size_t j = 0; j < m; ++j) {
    double sum = 0, size = 1;
    for (std::size_t i = 0; i < n; ++i) {
      sum += at(whole.matrix, i, j) * at(left.matrix, 1, i);
      size += std::abs(at(whole.matrix, i, j) * at(left.matrix, 1, i));
    }
    CHECK(std::abs(at(turned.matrix, 1, j) - sum) < 1e-6 * size);
    double rest = at(whole.matrix, 3, j), most = std::abs(rest) + 1;
    for (std::size_t k = 0; k < r; ++k) {
      rest -= at(left.matrix, k, 3) * at(right.matrix, k, j);
      most += std::abs(at(left.matrix, k, 3) * at(right.matrix, k, j));
    }
    CHECK(std::abs(at(product.matrix, 3, j) - rest) < 1e-6 * most);
  }
}

TEST_CASE("low rank: rows become orthogonal, and those that depend on others 0") {
  Rows rows(4, 50);
  for (std::size_t j = 0; j < 50; ++j)
    rows.matrix.row(2)[j] = 3 * rows.matrix.row(0)[j] - rows.matrix.row(1)[j];

  orthonormalise(rows.matrix);

  for (std::size_t a = 0; a < 4; ++a)
    for (std::size_t b = 0; b <= a; ++b) {
      CAPTURE(a, b);
      const double expected = a == b && a != 2 ? 1 : 0;
      CHECK(std::abs(double(dot(rows.matrix.row(a), rows.matrix.row(b))) - expected) < 1e-6);
    }
}

TEST_CASE("low rank: a row that is not finite is not made finite") {
  const float bad = GENERATE(INFINITY, -INFINITY, NAN);
  const std::size_t first = GENERATE(std::size_t{0}, std::size_t{1});
  Rows rows(3, 20);
  rows.matrix.row(first)[7] = bad;

  orthonormalise(rows.matrix);

  for (std::size_t k = 0; k < 3; ++k)
    for (const float value : rows.matrix.row(k)) CHECK(std::isnan(value) == (k >= first));
}
