// Max pools with the BatchNorm before them, against the steps of the reference.
#include "compute/cuda/kernels/device/max_pool_work.hpp"
#include "support/kernel_case.hpp"
#include "support/sanitized.hpp"
#include "support/stored_form.hpp"
#include "unit/compute/cuda/kernel_inputs.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda::kernels;

namespace {

enum : TensorId { x, skip, activated, dy, dy2, y, dx, g, last_tensor };

Window any_max_window() {
  return GENERATE(Window{3, 3, 2, 2, 0, 0, 1, 1}, Window{2, 2, 2, 2},
                  Window{3, 3, 1, 1, 1, 1, 1, 1}, Window{7, 8, 1, 1},
                  Window{3, 3, 2, 2, 1, 1, 1, 1}, Window{5, 5, 3, 3}, Window{1, 2, 3, 3},
                  Window{3, 2, 1, 2, 1, 0, 0, 1}, Window{7, 8, 1, 1, 1, 0, 0, 0},
                  Window{7, 8, 1, 1, 0, 0, 0, 1});
}

/// A pool of a BatchNorm's output, for kernels and reference. All numbers are few and exact in 16
/// bits, so that windows have several maxima, and the same ones in any precision.
struct Pool {
  PoolOperands pool;
  AppliedNorm how{norm_scale, bias, no_tensor, no_vector, no_vector, Activation::relu};
  KernelCase c;
  std::vector<float> parameters, gradients, workspace;
  std::vector<std::vector<float>> vectors;

  Pool(Element element, const Window& window, const Shape& shape)
      : pool{element, window, shape, result_of(window, shape, shape.channels)},
        c(element, schedule(shape, pool.y_shape), y, [](double v) { return std::round(2 * v); }),
        parameters(2 * shape.channels),
        gradients(2 * shape.channels),
        workspace(work::max_pool_workspace(pool) / sizeof(float)),
        vectors(last_vector, std::vector<float>(shape.channels)) {
    for (int channel = 0; channel < shape.channels; ++channel) {
      set(norm_scale, channel, channel % 2 ? 0.5f : -0.25f);
      set(bias, channel, static_cast<float>(channel % 3) - 0.5f);
      set(mean, channel, static_cast<float>(channel % 5) * 0.5f);
      set(inverse, channel, 0.75f);
      c.state.parameters[channel] = parameters[channel] = 1.5f;
    }
  }
  void set(VectorId id, int channel, float value) {
    c.state.vectors[id][channel] = vectors[id][channel] = value;
  }
  static Schedule schedule(const Shape& image, const Shape& pooled) {
    Schedule schedule;
    schedule.tensors = {image, image, image, pooled, pooled, pooled, image, image};
    schedule.vectors.assign(last_vector, image.channels);
    schedule.parameters = 2 * image.channels;
    return schedule;
  }
  PoolPrologue prologue() const {
    return {vectors[norm_scale].data(), vectors[bias].data(), how.then == Activation::relu};
  }
  BatchNormSums sums(Activation then, TensorId mask, TensorId more) const {
    const std::size_t channels = c.channels(x);
    return {x,
            mask,
            more,
            g,
            then,
            ParameterRange{0, channels},
            {channels, channels},
            100,
            norm_scale,
            bias,
            mean,
            inverse,
            g_scale,
            x_scale,
            shift};
  }
  BatchNormBackwardReduceOperands operands(const BatchNormSums& how) {
    return {pool.element,
            c.pixels(x),
            c.channels(x),
            how.count,
            nullptr,
            c[how.skip],
            c[how.x],
            c[how.y],
            c[how.g],
            how.then,
            vectors[norm_scale].data(),
            vectors[bias].data(),
            vectors[mean].data(),
            vectors[inverse].data(),
            parameters.data(),
            gradients.data(),
            gradients.data() + c.channels(x),
            vectors[g_scale].data(),
            vectors[x_scale].data(),
            vectors[shift].data(),
            workspace.data()};
  }
};

}  // namespace

TEST_CASE("cuda kernels: max pools agree with the reference, activated or not, with ties") {
  const Element element = any_element();
  const Window window = any_max_window();
  const int channels = sanitized ? GENERATE(1, 8, 17, 64) : GENERATE(1, 3, 8, 17, 64);
  const int batch = sanitized ? 3 : GENERATE(1, 3);
  const bool activates = GENERATE(false, true), relu = GENERATE(false, true), two = GENERATE(0, 1);
  CAPTURE(element, window.height, window.stride_y, window.top, channels, batch, activates, two);
  Pool p(element, window, {batch, 7, 8, channels});
  p.how.then = relu_if(relu);
  const auto how = activates ? std::optional(p.how) : std::nullopt;
  const PoolPrologue prologue = activates ? p.prologue() : PoolPrologue{};
  const TensorId more = two ? dy2 : no_tensor;
  std::vector<std::uint8_t> winners(p.pool.y_shape.elements());
  std::uint8_t* const kept = GENERATE(true, false) ? winners.data() : nullptr;

  p.c.check(MaxPoolForward{window, x, y, how}, {y}, [&](auto& queue) {
    work::max_pool_forward({p.pool, prologue, p.c[x], p.c[y], kept}, queue);
  });
  p.c.check(MaxPoolBackward{window, x, activates ? no_tensor : y, dy, dx, more, how}, {dx},
            [&](auto& queue) {
              work::max_pool_backward({p.pool, prologue, p.c[x], p.c[dy], p.c[more], p.c[dx], kept},
                                      queue);
            });
}

TEST_CASE("cuda kernels: a max pool sums up its gradient for the BatchNorm before it") {
  const Element element = any_element();
  const Window window = any_max_window();
  const int channels = GENERATE(3, 8, 17), batch = sanitized ? 3 : GENERATE(1, 3);
  const bool relu = GENERATE(false, true), skips = GENERATE(0, 1), by_y = GENERATE(0, 1);
  const bool activates = GENERATE(false, true);
  CAPTURE(element, window.height, window.stride_y, channels, batch, relu, skips, by_y, activates);
  Pool p(element, window, {batch, 7, 8, channels});
  const BatchNormSums sums =
      p.sums(relu_if(relu), by_y ? activated : no_tensor, skips ? skip : no_tensor);
  const TensorId from = activates ? x : activated;
  MaxPoolBackward step{window, from, activates ? no_tensor : y, dy, no_tensor, dy2};
  step.epilogue = sums;
  if (activates) step.prologue = p.how;
  const PoolPrologue prologue = activates ? p.prologue() : PoolPrologue{};
  std::vector<std::uint8_t> winners(p.pool.y_shape.elements());
  std::uint8_t* const kept = GENERATE(true, false) ? winners.data() : nullptr;
  if (kept)
    p.c.run_kernel({y}, [&](auto& queue) {
      work::max_pool_forward({p.pool, prologue, p.c[from], p.c[y], kept}, queue);
    });
  const MaxPoolBackwardOperands o{p.pool, prologue, p.c[from], p.c[dy], p.c[dy2], nullptr, kept};

  p.c.run_kernel({g},
                 [&](auto& queue) { work::max_pool_backward_reduce(o, p.operands(sums), queue); },
                 {bytes_of_values(p.gradients), bytes_of_values(p.vectors[shift])});
  reference::run_step(step, p.c.state);

  CHECK(relative_norm(p.c.read(g), p.c.state[g]) < tolerance(element));
  CHECK(relative_norm(p.gradients, p.c.state.gradients) < 1e-5);
  for (const VectorId id : {g_scale, x_scale, shift})
    CHECK(relative_norm(p.vectors[id], p.c.state.vectors[id]) < 1e-5);
}

TEST_CASE("cuda kernels: max pools take tensors that are aligned to their elements only") {
  const Element element = any_element();
  const TensorId moved = GENERATE(range<TensorId>(0, last_tensor));
  CAPTURE(element, moved);
  Pool p(element, {3, 3, 2, 2, 1, 1, 1, 1}, {2, 7, 8, 16});
  p.c.misalign(moved);
  MaxPoolBackward step{p.pool.window, x, no_tensor, dy, dx, dy2, p.how};
  const MaxPoolBackwardOperands o{p.pool, p.prologue(), p.c[x], p.c[dy], p.c[dy2], p.c[dx]};
  const BatchNormSums sums = p.sums(Activation::relu, activated, skip);

  p.c.check(MaxPoolForward{p.pool.window, x, y, p.how}, {y}, [&](auto& queue) {
    work::max_pool_forward({p.pool, p.prologue(), p.c[x], p.c[y]}, queue);
  });
  p.c.check(step, {dx}, [&](auto& queue) { work::max_pool_backward(o, queue); });
  step.dx = no_tensor;
  step.epilogue = sums;
  p.c.check(step, {g},
            [&](auto& queue) { work::max_pool_backward_reduce(o, p.operands(sums), queue); });
}

TEST_CASE("cuda kernels: a stem's max pool sums over more tiles than threads") {
  Pool p(Element::fp16, {3, 3, 2, 2, 1, 1, 1, 1}, {5, 113, 112, 64});
  std::vector<std::uint8_t> winners(p.pool.y_shape.elements());
  std::uint8_t* const kept = GENERATE(true, false) ? winners.data() : nullptr;
  if (kept)
    p.c.run_kernel({y}, [&](auto& queue) {
      work::max_pool_forward({p.pool, p.prologue(), p.c[x], p.c[y], kept}, queue);
    });
  MaxPoolBackward step{p.pool.window, x, no_tensor, dy, no_tensor, dy2, p.how};
  step.epilogue = p.sums(Activation::relu, no_tensor, no_tensor);
  const MaxPoolBackwardOperands o{p.pool, p.prologue(), p.c[x], p.c[dy], p.c[dy2], nullptr, kept};

  p.c.run_kernel(
      {g},
      [&](auto& queue) { work::max_pool_backward_reduce(o, p.operands(*step.epilogue), queue); },
      {bytes_of_values(p.gradients)});
  reference::run_step(step, p.c.state);

  CHECK(relative_norm(p.c.read(g), p.c.state[g]) < tolerance(Element::fp16));
  CHECK(relative_norm(p.gradients, p.c.state.gradients) < 1e-4);
}

TEST_CASE("cuda kernels: what is no number wins a max pool's window, the last of several") {
  const Element element = any_element();
  const Window window =
      GENERATE(Window{3, 3, 2, 2, 1, 1, 1, 1}, Window{2, 2, 2, 2}, Window{3, 3, 1, 1, 1, 1, 1, 1});
  const int channels = GENERATE(3, 8);
  const bool keeps = GENERATE(true, false), activates = GENERATE(false, true);
  CAPTURE(element, window.height, window.stride_y, channels, keeps, activates);
  Pool p(element, window, {2, 7, 8, channels});
  for (std::size_t i = 0; i < p.c.state[x].size(); i += 11) p.c.state[x][i] = NAN;
  p.c.state[x][channels + 1] = INFINITY;  // which does not win beside them
  p.c.write(x);
  const auto how = activates ? std::optional(p.how) : std::nullopt;
  const PoolPrologue prologue = activates ? p.prologue() : PoolPrologue{};
  std::vector<std::uint8_t> winners(p.pool.y_shape.elements());
  std::uint8_t* const kept = keeps ? winners.data() : nullptr;

  // By the definition, not by the reference's code.
  const auto input = [&](int n, int row, int column, int channel) {
    return p.c.state[x][((n * 7 + row) * 8 + column) * channels + channel];
  };
  p.c.run_kernel({y}, [&](auto& queue) {
    work::max_pool_forward({p.pool, prologue, p.c[x], p.c[y], kept}, queue);
  });
  const std::vector<double> pooled = p.c.read(y);
  const Shape& shape = p.pool.y_shape;
  std::size_t at = 0, lost = 0;
  for (int n = 0; n < shape.batch; ++n)
    for (int row = 0; row < shape.height; ++row)
      for (int column = 0; column < shape.width; ++column)
        for (int channel = 0; channel < channels; ++channel, ++at) {
          bool has_none = false;
          for (int ky = 0; ky < window.height; ++ky)
            for (int kx = 0; kx < window.width; ++kx) {
              const int iy = row * window.stride_y + ky - window.top;
              const int ix = column * window.stride_x + kx - window.left;
              if (iy >= 0 && iy < 7 && ix >= 0 && ix < 8)
                has_none = has_none || std::isnan(input(n, iy, ix, channel));
            }
          CHECK(std::isnan(pooled[at]) == has_none);
          lost += has_none;
        }
  CHECK(lost > 0);
  CHECK(lost < pooled.size());

  // And the gradient goes to the one that won, wherever it is looked for.
  reference::run_step(MaxPoolForward{window, x, y, how}, p.c.state);
  p.c.check(
      MaxPoolBackward{window, x, activates ? no_tensor : y, dy, dx, no_tensor, how}, {dx},
      [&](auto& queue) {
        work::max_pool_backward({p.pool, prologue, p.c[x], p.c[dy], nullptr, p.c[dx], kept}, queue);
      });
}
