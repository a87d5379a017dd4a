#pragma once
#include <array>

#include "compute/onednn/isa.hpp"

namespace ringtrain::compute::onednn {

// Winograd's minimal filtering, F(4 x 4, R x R), as in Lavin and Gray 2015 (arXiv:1509.09308): a
// tile of E x E pixels, E = R + 3, gives 4 x 4 results. Tiles and filters are seen as polynomials
// and evaluated at E points. Each of the tile's E^2 positions then is a matrix product over
// channels: E^2 products for 16 R^2 of them. Likewise F(4, R) for windows of one row or column: E
// products for 4 R.

inline constexpr int tile_results = 4;
constexpr int tile_edge(int window) { return window + tile_results - 1; }

/// A window of R x R pixels, and one of R pixels in a row or a column.
template <int R>
struct SquareWindow {
  static constexpr int edge = tile_edge(R), positions = edge * edge, pixels = R * R;
};
template <int R>
struct LineWindow {
  static constexpr int edge = tile_edge(R), positions = edge, pixels = R;
};

/// The points: 0, pairs of p and -p, and infinity. Those of R = 3 are the ones of least error, as
/// oneDNN 2 has found; those of R = 5 are exact in products; those of R = 7 were searched.
template <int R>
struct Points {
  static constexpr int pairs = tile_edge(R) / 2 - 1;
  static constexpr std::array<double, 4> p = R == 3   ? std::array{0.625, 1.5, 0., 0.}
                                             : R == 5 ? std::array{0.5, 1., 2., 0.}
                                                      : std::array{0.4, 0.8, 1.25, 2.5};

  static constexpr float power(int pair, int n) {
    double result = 1;
    while (n-- > 0) result *= p[pair];
    return static_cast<float>(result);
  }
  /// The product of x^2 - q^2 over all pairs q but one: coefficients of rising powers of x^2.
  static constexpr std::array<float, 4> product(int but) {
    std::array<double, 4> c{1};
    for (int q = 0; q < pairs; ++q)
      if (q != but)
        for (int k = 3; k >= 0; --k) c[k] = (k > 0 ? c[k - 1] : 0) - p[q] * p[q] * c[k];
    return {float(c[0]), float(c[1]), float(c[2]), float(c[3])};
  }
  /// What the values of a filter are multiplied by; at 0 with `pair` = pairs.
  static constexpr float scale(int pair) {
    double divisor = pair == pairs ? 1 : 2 * p[pair] * p[pair];
    for (int q = 0; q < pairs; ++q)
      if (q != pair) divisor *= (pair == pairs ? 0 : p[pair] * p[pair]) - p[q] * p[q];
    return static_cast<float>(1 / divisor);
  }
};

// The transforms of a line of vectors. What belongs to p and to -p is a sum of two parts, even and
// odd in p.
template <int B>
[[gnu::always_inline]] inline void put_pair(Vec<B> even, Vec<B> odd, Vec<B>* to) {
  to[0] = even + odd;
  to[1] = even - odd;
}

template <int R>
struct FromPixels {  // B' of E pixels
  static constexpr int pairs = Points<R>::pairs, last = tile_edge(R) - 1;
  // Where the two values of a pair belong; the pair after the others is 0 and infinity.
  static constexpr int first(int pair) { return pair == pairs ? 0 : 2 * pair + 1; }
  static constexpr int second(int pair) { return pair == pairs ? last : 2 * pair + 2; }

  template <int Pair, int B>
  [[gnu::always_inline]] static inline void pair(const Vec<B>* d, Vec<B>* v) {
    constexpr auto c = Points<R>::product(Pair);
    constexpr int highest = Pair == pairs ? pairs : pairs - 1, of_even = Pair == pairs ? 0 : 2;
    Vec<B> even = d[2 * highest + of_even], odd = d[2 * highest + 1];
#pragma GCC unroll 4
    for (int k = 0; k < highest; ++k) {
      even += c[k] * d[2 * k + of_even];
      odd += c[k] * d[2 * k + 1];
    }
    if constexpr (Pair == pairs) {
      v[0] = even;
      v[1] = odd;
    } else {
      put_pair<B>(even, Points<R>::power(Pair, 1) * odd, v);
    }
  }
};

template <int R>
struct ToResults {  // A' to four results
  template <int B>
  [[gnu::always_inline]] static inline void run(const Vec<B>* m, Vec<B>* y) {
    y[0] = m[0];
    y[1] = y[2] = Vec<B>{};
    y[3] = m[tile_edge(R) - 1];
#pragma GCC unroll 4
    for (int pair = 0; pair < Points<R>::pairs; ++pair) {
      const Vec<B> even = m[2 * pair + 1] + m[2 * pair + 2],
                   odd = m[2 * pair + 1] - m[2 * pair + 2];
      y[0] += even;
      y[1] += Points<R>::power(pair, 1) * odd;
      y[2] += Points<R>::power(pair, 2) * even;
      y[3] += Points<R>::power(pair, 3) * odd;
    }
  }
};

template <int R>
struct FromResults {  // A, for the gradients of four results
  template <int B>
  [[gnu::always_inline]] static inline void run(const Vec<B>* y, Vec<B>* z) {
    z[0] = y[0];
#pragma GCC unroll 4
    for (int pair = 0; pair < Points<R>::pairs; ++pair)
      put_pair<B>(y[0] + Points<R>::power(pair, 2) * y[2],
                  Points<R>::power(pair, 1) * y[1] + Points<R>::power(pair, 3) * y[3],
                  z + 2 * pair + 1);
    z[tile_edge(R) - 1] = y[3];
  }
};

template <int R>
struct FromFilter {  // G of R pixels
  template <int B>
  [[gnu::always_inline]] static inline void run(const Vec<B>* g, Vec<B>* u) {
    constexpr int pairs = Points<R>::pairs;
    u[0] = g[0] * Points<R>::scale(pairs);
#pragma GCC unroll 4
    for (int pair = 0; pair < pairs; ++pair) {
      Vec<B> even = g[0], odd = Points<R>::power(pair, 1) * g[1];
#pragma GCC unroll 8
      for (int k = 2; k < R; ++k) (k % 2 == 0 ? even : odd) += Points<R>::power(pair, k) * g[k];
      put_pair<B>(even * Points<R>::scale(pair), odd * Points<R>::scale(pair), u + 2 * pair + 1);
    }
    u[tile_edge(R) - 1] = g[R - 1];
  }
};

template <int R>
struct ToFilter {  // G', for the gradients of R pixels
  template <int B>
  [[gnu::always_inline]] static inline void run(const Vec<B>* u, Vec<B>* g) {
    constexpr int pairs = Points<R>::pairs;
#pragma GCC unroll 8
    for (int k = 0; k < R; ++k) g[k] = Vec<B>{};
    g[0] = u[0] * Points<R>::scale(pairs);
    g[R - 1] = u[tile_edge(R) - 1];
#pragma GCC unroll 4
    for (int pair = 0; pair < pairs; ++pair) {
      const Vec<B> even = (u[2 * pair + 1] + u[2 * pair + 2]) * Points<R>::scale(pair),
                   odd = (u[2 * pair + 1] - u[2 * pair + 2]) * Points<R>::scale(pair);
#pragma GCC unroll 8
      for (int k = 0; k < R; ++k) g[k] += Points<R>::power(pair, k) * (k % 2 == 0 ? even : odd);
    }
  }
};

/// A square of In x In vectors, transformed along its rows and then along its columns.
template <class Transform, int In, int Out, int B>
[[gnu::always_inline]] inline void transform_square(const Vec<B> (&in)[In][In],
                                                    Vec<B> (&out)[Out][Out]) {
  Vec<B> rows[In][Out];
#pragma GCC unroll 8
  for (int i = 0; i < In; ++i) Transform::template run<B>(in[i], rows[i]);
#pragma GCC unroll 8
  for (int j = 0; j < Out; ++j) {
    Vec<B> column[In], result[Out];
#pragma GCC unroll 8
    for (int i = 0; i < In; ++i) column[i] = rows[i][j];
    Transform::template run<B>(column, result);
#pragma GCC unroll 8
    for (int i = 0; i < Out; ++i) out[i][j] = result[i];
  }
}

}  // namespace ringtrain::compute::onednn
