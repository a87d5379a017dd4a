#pragma once
#include <cmath>

#include "compute/cuda/kernels/arguments/layer_norm.hpp"
#include "compute/cuda/kernels/device/channel_sums.hpp"

// The calls of layer_norm.hpp for any queue: StreamQueue, or a CPU's in tests.
namespace ringtrain::compute::cuda::kernels::work {

struct PixelMoments {
  float mean, inverse;  // of the deviation
};

/// A team of neighbouring threads has a pixel, and its neighbours neighbouring vectors of channels.
struct TeamGrid {
  std::uint32_t pixels = 0, vectors = 0;
  std::uint32_t members = 1, teams = 1;  // of a block

  Grid launch(int sums) const {
    return {small(divide_up(pixels, teams)), members * teams,
            members * teams * sums * sizeof(float)};
  }
  constexpr std::uint32_t threads() const { return members * teams; }
  constexpr std::uint32_t member(std::uint32_t thread) const { return thread % members; }
  constexpr std::uint32_t pixel(std::uint32_t block, std::uint32_t thread) const {
    return block * teams + thread / members;
  }
  /// Round `round` of adding the team's numbers up in that of its first member.
  constexpr void fold(int round, std::uint32_t thread, float* sum) const {
    const std::uint32_t other = fold_partner(member(thread), round, members);
    if (other != members) *sum += sum[other - member(thread)];
  }
  constexpr float total(std::uint32_t thread, const float* sum) const {
    return *(sum - member(thread));
  }
};
inline TeamGrid team_grid(std::size_t pixels, std::size_t vectors) {
  TeamGrid grid{small(pixels), small(vectors)};
  grid.members = small(std::clamp<std::size_t>(vectors, 1, 32));
  grid.teams = block_threads / grid.members;
  return grid;
}

/// Calls f(index in x, channel, x) for each vector of a pixel that is the thread's.
template <int w, class T, class F>
constexpr void for_own_vectors(const TeamGrid& grid, std::uint32_t pixel, std::uint32_t thread,
                               const T* x, F f) {
  for (std::uint32_t v = grid.member(thread); v < grid.vectors; v += grid.members) {
    const std::size_t at = (std::size_t(pixel) * grid.vectors + v) * w;
    f(at, v * w, load<w>(x + at));
  }
}

/// Mean and deviation of each pixel, given to then(grid, pixel, thread, moments) of each thread of
/// its team. Reads x twice, the second time from L1.
template <class T, int w, class Then>
struct TeamMoments {
  LayerNormOperands o;
  TeamGrid grid;
  Then then;

  Grid launch() const { return grid.launch(2); }
  constexpr int phases() const { return 3 + 2 * folds(grid.members); }
  constexpr void operator()(int phase, std::uint32_t block, std::uint32_t thread,
                            unsigned char* shared) const {
    const std::uint32_t pixel = grid.pixel(block, thread);
    const int rounds = folds(grid.members);
    float *sum = reinterpret_cast<float*>(shared) + thread, *squares = sum + grid.threads();
    if (phase == 0)
      *sum = pixel < grid.pixels ? summed(pixel, thread, 0, false) : 0;
    else if (phase <= rounds)
      grid.fold(phase - 1, thread, sum);
    else if (phase == rounds + 1)
      *squares = pixel < grid.pixels ? summed(pixel, thread, mean(thread, sum), true) : 0;
    else if (phase <= 2 * rounds + 1)
      grid.fold(phase - rounds - 2, thread, squares);
    else if (pixel < grid.pixels)
      then(grid, pixel, thread, moments(thread, sum, squares));
  }

 private:
  constexpr float mean(std::uint32_t thread, const float* sum) const {
    return grid.total(thread, sum) / static_cast<float>(o.channels);
  }
  constexpr PixelMoments moments(std::uint32_t thread, const float* sum,
                                 const float* squares) const {
    const float variance = grid.total(thread, squares) / static_cast<float>(o.channels);
    return {mean(thread, sum), 1 / std::sqrt(variance + o.epsilon)};
  }
  constexpr float summed(std::uint32_t pixel, std::uint32_t thread, float mean,
                         bool squared) const {
    float sum = 0;
    for_own_vectors<w>(grid, pixel, thread, static_cast<const T*>(o.x),
                       [&](std::size_t, std::uint32_t, const Lanes<w>& x) {
                         for (int i = 0; i < w; ++i)
                           sum += squared ? (x[i] - mean) * (x[i] - mean) : x[i];
                       });
    return sum;
  }
};

template <class T, int w>
struct LayerNormNormalise {
  LayerNormOperands o;
  T* y;
  constexpr void operator()(const TeamGrid& grid, std::uint32_t pixel, std::uint32_t thread,
                            const PixelMoments& m) const {
    for_own_vectors<w>(grid, pixel, thread, static_cast<const T*>(o.x),
                       [&](std::size_t at, std::uint32_t channel, Lanes<w> v) {
                         const auto gamma = load_or<w>(o.gamma, channel, 1),
                                    beta = load_or<w>(o.beta, channel, 0);
                         for (int i = 0; i < w; ++i)
                           v[i] = (v[i] - m.mean) * m.inverse * gamma[i] + beta[i];
                         store(y + at, v);
                       });
  }
};

template <class Queue>
void layer_norm_forward(const LayerNormOperands& o, void* y, Queue& queue) {
  with_type_and_width(o.element, is_wide(o.element, {o.channels}, {o.x, y}),
                      [&]<class T>(T, auto w) {
                        const LayerNormNormalise<T, w> then{o, static_cast<T*>(y)};
                        const TeamMoments<T, w, LayerNormNormalise<T, w>> work{
                            o, team_grid(o.pixels, o.channels / w), then};
                        queue.blocks(work, work.launch());
                      });
}

/// Keeps them for the sums over pixels.
struct KeepMoments {
  PixelMoments* moments;
  constexpr void operator()(const TeamGrid& grid, std::uint32_t pixel, std::uint32_t thread,
                            const PixelMoments& of) const {
    if (grid.member(thread) == 0) moments[pixel] = of;
  }
};

template <class T, int w>
struct LayerNormTerm {
  static constexpr int values = 2, width = w;
  const T *x, *dy;
  std::size_t channels;
  const PixelMoments* moments;

  constexpr LayerNormTerm column(std::uint32_t first) const {
    return {x + first, dy + first, channels, moments};
  }
  constexpr void add(std::uint32_t pixel, Lanes<w>* sums) const {
    const PixelMoments m = moments[pixel];
    const auto v = load_constant<w>(x + pixel * channels),
               g = load_constant<w>(dy + pixel * channels);
    for (int i = 0; i < w; ++i) {
      sums[0][i] += g[i] * (v[i] - m.mean) * m.inverse;
      sums[1][i] += g[i];
    }
  }
};

struct WriteGammaAndBeta {
  float *dgamma, *dbeta;
  template <class Total>
  constexpr void operator()(std::uint32_t channel, const Total* totals) const {
    dgamma[channel] = static_cast<float>(totals[0]);
    dbeta[channel] = static_cast<float>(totals[1]);
  }
};

template <class T, int w>
struct LayerNormInputGradient {
  LayerNormOperands o;
  TeamGrid grid;
  const PixelMoments* moments;
  const T* dy;
  T* dx;

  Grid launch() const { return grid.launch(2); }
  constexpr int phases() const { return 2 + folds(grid.members); }
  constexpr void operator()(int phase, std::uint32_t block, std::uint32_t thread,
                            unsigned char* shared) const {
    const std::uint32_t pixel = grid.pixel(block, thread);
    float *sum = reinterpret_cast<float*>(shared) + thread, *sum_x = sum + grid.threads();
    if (phase == 0) {
      *sum = *sum_x = 0;
      if (pixel < grid.pixels) add_up(pixel, thread, *sum, *sum_x);
    } else if (phase + 1 < phases()) {
      grid.fold(phase - 1, thread, sum);
      grid.fold(phase - 1, thread, sum_x);
    } else if (pixel < grid.pixels) {
      write(pixel, thread, grid.total(thread, sum), grid.total(thread, sum_x));
    }
  }

 private:
  /// Calls f(index, channel, normalised x, dy).
  template <class F>
  constexpr void for_own(std::uint32_t pixel, std::uint32_t thread, F f) const {
    const PixelMoments m = moments[pixel];
    for_own_vectors<w>(grid, pixel, thread, static_cast<const T*>(o.x),
                       [&](std::size_t at, std::uint32_t channel, Lanes<w> x) {
                         for (int i = 0; i < w; ++i) x[i] = (x[i] - m.mean) * m.inverse;
                         f(at, channel, x, load<w>(dy + at));
                       });
  }
  constexpr void add_up(std::uint32_t pixel, std::uint32_t thread, float& sum, float& sum_x) const {
    for_own(pixel, thread,
            [&](std::size_t, std::uint32_t channel, const Lanes<w>& x, const Lanes<w>& g) {
              const auto gamma = load_or<w>(o.gamma, channel, 1);
              for (int i = 0; i < w; ++i) {
                sum += g[i] * gamma[i];
                sum_x += g[i] * gamma[i] * x[i];
              }
            });
  }
  constexpr void write(std::uint32_t pixel, std::uint32_t thread, float sum, float sum_x) const {
    const float count = static_cast<float>(o.channels), inverse = moments[pixel].inverse;
    for_own(pixel, thread,
            [&](std::size_t at, std::uint32_t channel, const Lanes<w>& x, Lanes<w> g) {
              const auto gamma = load_or<w>(o.gamma, channel, 1);
              for (int i = 0; i < w; ++i)
                g[i] = inverse * (g[i] * gamma[i] - (sum + x[i] * sum_x) / count);
              store(dx + at, g);
            });
  }
};

/// Bytes of the moments in the workspace; sums_workspace() follows.
inline std::size_t moments_bytes(std::size_t pixels) {
  return divide_up(pixels * sizeof(PixelMoments), 16) * 16;
}

template <class Queue>
void layer_norm_backward(const LayerNormOperands& o, const void* dy, void* dx, float* dgamma,
                         float* dbeta, float* workspace, Queue& queue) {
  auto* moments = reinterpret_cast<PixelMoments*>(workspace);
  float* sums = workspace + moments_bytes(o.pixels) / sizeof(float);
  with_type_and_width(
      o.element, is_wide(o.element, {o.channels}, {o.x, dy, dx}), [&]<class T>(T, auto w) {
        const auto *x = static_cast<const T*>(o.x), *g = static_cast<const T*>(dy);
        const TeamGrid grid = team_grid(o.pixels, o.channels / w);
        const TeamMoments<T, w, KeepMoments> first{o, grid, {moments}};
        queue.blocks(first, first.launch());
        sum_pixels(o.pixels, o.channels, LayerNormTerm<T, w>{x, g, o.channels, moments},
                   WriteGammaAndBeta{dgamma, dbeta}, sums, queue);
        const LayerNormInputGradient<T, w> last{o, grid, moments, g, static_cast<T*>(dx)};
        queue.blocks(last, last.launch());
      });
}

}  // namespace ringtrain::compute::cuda::kernels::work
