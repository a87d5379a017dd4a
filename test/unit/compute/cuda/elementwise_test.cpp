#include "compute/cuda/kernels/device/channels_work.hpp"
#include "compute/cuda/kernels/device/elementwise_work.hpp"
#include "support/kernel_case.hpp"
#include "unit/compute/cuda/kernel_inputs.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda::kernels;

TEST_CASE("cuda kernels: activations and sums agree with the reference") {
  const Element element = any_element();
  const Activation f = any_activation();
  const TensorId saved = facts_of(f).slope_of_output ? 2 : 0;
  const Shape s{2, 5, 7, any_channels()};
  CAPTURE(element, s.channels, name_of(f));
  KernelCase c(element, {s, s, s, s, s, s}, 2);
  const std::size_t n = s.elements();

  c.check(Pointwise{f, 0, 2}, {2},
          [&](auto& queue) { work::pointwise(f, element, n, c[0], c[2], queue); });
  c.check(PointwiseBackward{f, saved, 1, 3}, {3}, [&](auto& queue) {
    work::pointwise_backward(f, element, n, c[saved], c[1], c[3], queue);
  });
  c.check(Add{0, 1, 4}, {4},
          [&](auto& queue) { work::add(element, n, c[0], c[1], c[4], Activation::none, queue); });
  c.check(Add{0, 1, 5, f}, {5},
          [&](auto& queue) { work::add(element, n, c[0], c[1], c[5], f, queue); });
  c.check(Pointwise{f, 0, 0}, {0},
          [&](auto& queue) { work::pointwise(f, element, n, c[0], c[0], queue); });
}

TEST_CASE("cuda kernels: the exact GELU keeps its digits far below 0") {
  const Shape s{1, 9, 9, 7};
  KernelCase c(Element::fp32, {s, s, s, s}, 2, far_below_zero);
  const std::size_t n = s.elements();

  c.run_kernel({2}, [&](auto& queue) {
    work::pointwise(Activation::gelu, Element::fp32, n, c[0], c[2], queue);
  });
  c.run_kernel({3}, [&](auto& queue) {
    work::pointwise_backward(Activation::gelu, Element::fp32, n, c[0], c[1], c[3], queue);
  });

  const auto x = c.read(0), dy = c.read(1), y = c.read(2), dx = c.read(3);
  for (std::size_t i = 0; i < n; ++i) {
    check_digits(y[i], ExactGelu(x[i]).value);
    check_digits(dx[i], ExactGelu(x[i]).slope * dy[i]);
  }
}

TEST_CASE("cuda kernels: tensors may be aligned to their elements only") {
  const Element element = any_element();
  const TensorId moved = GENERATE(0, 1, 2, 3, 4, 5), saved = 2;
  const Activation f = Activation::relu;
  CAPTURE(element, moved);
  const Shape s{2, 5, 7, 16};
  KernelCase c(element, {s, s, s, s, s, s}, 2);
  const std::size_t n = s.elements();
  c.misalign(moved);

  c.check(Pointwise{f, 0, 2}, {2},
          [&](auto& queue) { work::pointwise(f, element, n, c[0], c[2], queue); });
  c.check(PointwiseBackward{f, saved, 1, 3}, {3}, [&](auto& queue) {
    work::pointwise_backward(f, element, n, c[saved], c[1], c[3], queue);
  });
  c.check(Add{0, 1, 4}, {4},
          [&](auto& queue) { work::add(element, n, c[0], c[1], c[4], Activation::none, queue); });
  c.check(ShortcutForward{0, 5, 1}, {5},
          [&](auto& queue) { work::shortcut_forward(element, s, s, 1, c[0], c[5], queue); });
}

TEST_CASE(
    "cuda kernels: the last elements of a count that is no multiple of a vector are done, too") {
  const Element element = any_element();
  const std::size_t count = GENERATE(1, 3, 5, 9, 16, 23);
  CAPTURE(element, count);
  const auto numbers = [&](std::uint64_t stream) {
    std::vector<double> values;
    for (const float v : random_floats(count + 2, stream)) values.push_back(v);
    return values;
  };
  // Two more, which stay.
  DeviceTensor a(element, count + 2), b(element, count + 2), y(element, count + 2);
  a.write(numbers(1));
  b.write(numbers(2));
  const auto check = [&](auto launch, auto expected) {
    y.write(numbers(3));
    const std::vector<double> before = y.read(), x = a.read(), more = b.read();
    run_twice({y.bytes()}, launch);
    DeviceTensor wanted(element, count + 2);
    std::vector<double> values = before;
    for (std::size_t i = 0; i < count; ++i) values[i] = expected(x[i], more[i]);
    wanted.write(values);
    CHECK(y.read() == wanted.read());
  };

  check(
      [&](auto& queue) {
        work::pointwise(Activation::relu, element, count, a.data(), y.data(), queue);
      },
      [](double x, double) { return std::max(x, 0.); });
  check(
      [&](auto& queue) {
        work::pointwise_backward(Activation::relu, element, count, a.data(), b.data(), y.data(),
                                 queue);
      },
      [](double x, double dy) { return x > 0 ? dy : 0; });
  check(
      [&](auto& queue) {
        work::add(element, count, a.data(), b.data(), y.data(), Activation::none, queue);
      },
      [](double x, double more) { return static_cast<float>(x) + static_cast<float>(more); });
}

TEST_CASE("cuda kernels: ReLU lets through what is no number") {
  const Element element = any_element();
  KernelCase c(element, {{1, 1, 1, 8}, {1, 1, 1, 8}}, 0);
  std::ranges::fill(c.state[0], NAN);
  c.write(0);
  DeviceTensor y(element, 8);  // of zeros, so that what is no number comes from x
  y.write(std::vector<double>(8, 0));

  run_twice({y.bytes()}, [&](auto& queue) {
    work::pointwise(Activation::relu, element, 8, c[0], y.data(), queue);
  });

  for (const double v : y.read()) CHECK(std::isnan(v));
}

TEST_CASE("cuda kernels: elements are converted with rounding to the nearest") {
  const Element from = any_element(), to = any_element();
  const std::size_t count = GENERATE(1, 4, 7, 11, 64);
  CAPTURE(from, to, count);
  DeviceTensor x(from, count), y(to, count), expected(to, count);
  std::vector<double> values(count);
  Philox random(1, Purpose::initialise);
  for (double& v : values) v = random.normal();
  x.write(values);
  expected.write(x.read());

  run_twice({y.bytes()},
            [&](auto& queue) { work::convert(from, to, count, x.data(), y.data(), queue); });

  CHECK(y.read() == expected.read());
}

TEST_CASE("cuda kernels: elements are scaled before they are rounded, once") {
  const Element to = any_element();
  const std::size_t count = GENERATE(1, 4, 7, 11, 64);
  CAPTURE(to, count);
  DeviceTensor x(Element::fp32, count), y(to, count), expected(to, count);
  std::vector<double> values(count);
  Philox random(2, Purpose::initialise);
  for (double& v : values) v = random.normal();
  x.write(values);
  for (double& v : values) v = 3 * static_cast<float>(v);
  expected.write(values);

  run_twice({y.bytes()}, [&](auto& queue) {
    work::scale(Element::fp32, to, 3, count, x.data(), y.data(), queue);
  });

  CHECK(y.read() == expected.read());
}

TEST_CASE("cuda kernels: what is too large for fp16 once scaled becomes infinite") {
  DeviceTensor x(Element::fp32, 4), y(Element::fp16, 4);
  x.write(std::vector<double>{32000, 33000, -33000, 1});

  run_twice({y.bytes()}, [&](auto& queue) {
    work::scale(Element::fp32, Element::fp16, 2, 4, x.data(), y.data(), queue);
  });

  CHECK(y.read() == std::vector<double>{64000, INFINITY, -INFINITY, 2});
}

TEST_CASE("cuda kernels: bias and its gradient agree with a matrix product's") {
  const Element element = any_element();
  const int channels = any_channels(), batch = GENERATE(1, 3, 700);
  const Activation then = any_activation();
  CAPTURE(element, channels, batch, name_of(then));
  const Shape s{batch, 1, 1, channels};
  Schedule schedule = schedule_of({s, s, {batch, 1, 1, 1}});
  const ParameterRange w{0, std::size_t(channels)}, b{w.end(), std::size_t(channels)};
  schedule.parameters = b.end();
  KernelCase c(element, schedule, 1);
  std::vector<float> bias(channels), db(channels);
  for (int i = 0; i < channels; ++i)
    c.state.parameters[b.first + i] = bias[i] = 0.3f * static_cast<float>(i % 5) - 1;
  std::vector<float> workspace(sums_workspace(batch, channels, 1) / sizeof(float));

  // x of no weight: what remains is the bias
  std::ranges::fill(c.state[2], 0);
  reference::run_step(MatrixProductForward{2, 1, w, b}, c.state);
  for (std::size_t i = 0; i < c.elements(1); ++i) {
    const double v = c.state[0][i] + c.state[1][i];
    c.state[1][i] = reference::value_of(then, v);
  }
  c.run_kernel({1}, [&](auto& queue) {
    work::add_bias(element, batch, channels, c[0], bias.data(), c[1], then, queue);
  });
  CHECK(relative_norm(c.read(1), c.state[1]) < tolerance(element));

  reference::run_step(MatrixProductWeightGradient{2, 0, w, b}, c.state);
  run_twice({bytes_of_values(db)}, [&](auto& queue) {
    work::bias_gradient(element, batch, channels, c[0], db.data(), workspace.data(), queue);
  });
  CHECK(relative_norm(db, std::span(c.state.gradients).subspan(b.first)) < 1e-5);
}

TEST_CASE("cuda kernels: concatenation and slices agree with the reference") {
  const Element element = any_element();
  const int a = any_channels(), b = GENERATE(1, 16, 20);
  CAPTURE(element, a, b);
  const Shape first{2, 3, 5, a}, second{2, 3, 5, b}, all{2, 3, 5, a + b + a};
  KernelCase c(element, {first, second, all, first, second}, 2);
  const std::size_t pixels = first.pixels(), pitch = all.channels, size = bytes_of(element);
  const auto from = [&](std::size_t channel) {
    return static_cast<std::byte*>(c[2]) + channel * size;
  };

  c.check(Concat{{0, 1, 0}, 2}, {2}, [&](auto& queue) {
    work::copy_channels(element, pixels, a, c[0], a, from(0), pitch, queue);
    work::copy_channels(element, pixels, b, c[1], b, from(a), pitch, queue);
    work::copy_channels(element, pixels, a, c[0], a, from(a + b), pitch, queue);
  });
  c.check(ChannelSlice{2, 3, a + b}, {3}, [&](auto& queue) {
    work::copy_channels(element, pixels, a, from(a + b), pitch, c[3], a, queue);
  });
  c.check(ChannelSlice{2, 4, a}, {4}, [&](auto& queue) {
    work::copy_channels(element, pixels, b, from(a), pitch, c[4], b, queue);
  });
}

TEST_CASE("cuda kernels: the parameterless shortcut agrees with the reference") {
  const Element element = any_element();
  const int channels = any_channels(), more = GENERATE(0, 3, 16), stride = GENERATE(1, 2);
  CAPTURE(element, channels, more, stride);
  const Shape x{2, 7, 6, channels};
  const Shape y{2, (7 + stride - 1) / stride, (6 + stride - 1) / stride, channels + more};
  KernelCase c(element, {x, y, y, x}, 2);

  c.check(ShortcutForward{0, 2, stride}, {2},
          [&](auto& queue) { work::shortcut_forward(element, x, y, stride, c[0], c[2], queue); });
  c.check(ShortcutBackward{1, 3, stride}, {3},
          [&](auto& queue) { work::shortcut_backward(element, y, x, stride, c[1], c[3], queue); });
}

TEST_CASE("cuda kernels: Philox makes the words of the CPU's") {
  const std::uint64_t seed = 0xfedcba9876543210ull, sample = 0x1234567890ull;
  const Philox random(seed, Purpose::dropout, 77, sample);

  for (const std::uint32_t position : {0u, 1u, 5u, 1000000u}) {
    const Words words = philox(seed, Purpose::dropout, 77, sample, position);
    CHECK(std::ranges::equal(words.at, random.at(position)));
  }
}

TEST_CASE("cuda kernels: dropout keeps the same elements as the reference") {
  const Element element = any_element();
  const int channels = any_channels();
  const bool in_place = GENERATE(false, true);
  CAPTURE(element, channels, in_place);
  const Shape s{4, 2, 3, channels};
  KernelCase c(element, {s, s}, 1);
  Batch batch;
  batch.samples = {{100, 0}, {1ull << 40, 7}, {3, 1}, {4, 0}};
  batch.samples[2].repeat = 5;
  c.state.batch = &batch;
  const TensorId y = in_place ? 0 : 1;
  const DropoutOperands operands{element, 4,         s.features(), c[0],
                                 c[y],    {0.6f, 2}, c.seed,       batch.samples.data()};

  c.check(Dropout{{0.6f, 2}, 0, y}, {y}, [&](auto& queue) { work::dropout(operands, queue); });

  for (std::size_t i = 0; i < s.elements(); ++i) CHECK((c.read(y)[i] == 0) == (c.state[y][i] == 0));
}

TEST_CASE("cuda kernels: factors of channels and their gradients agree with the reference") {
  const Element element = any_element();
  const int channels = GENERATE(1, 8, 17, 264), side = GENERATE(1, 7, 20);
  const bool aligned = GENERATE(true, false);
  CAPTURE(element, channels, side, aligned);
  enum : TensorId { x, factor, dy, y, dx, dfactor };
  const Shape image{3, side, side, channels}, of_channels{3, 1, 1, channels};
  KernelCase c(element, {image, of_channels, image, image, image, of_channels}, y);
  if (!aligned)
    for (TensorId id = x; id <= dfactor; ++id) c.misalign(id);
  const ScaleExtents e{element, 3, std::size_t(side) * side, std::size_t(channels)};
  const auto backward = [&](void* to, void* sums) {
    return [&, to, sums](auto& queue) {
      work::scale_backward(e, c[x], c[factor], c[dy], to, sums, queue);
    };
  };

  c.check(ScaleForward{x, factor, y}, {y},
          [&](auto& queue) { work::scale_forward(e, c[x], c[factor], c[y], queue); });
  c.check(ScaleBackward{x, factor, dy, dx, dfactor}, {dx, dfactor}, backward(c[dx], c[dfactor]));
  const auto both_dx = c.read(dx), both_sums = c.read(dfactor);
  c.run_kernel({dx}, backward(c[dx], nullptr));
  c.run_kernel({dfactor}, backward(nullptr, c[dfactor]));
  CHECK(c.read(dx) == both_dx);
  CHECK(c.read(dfactor) == both_sums);
  c.run_kernel({dy, dfactor}, backward(c[dy], c[dfactor]));
  CHECK(c.read(dy) == both_dx);
  CHECK(c.read(dfactor) == both_sums);
}
