#include <algorithm>
#include <cstring>

#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {
namespace {

// Most runs are whole blocks: copies of a known length are one or two instructions.
template <class T>
void copy_run(T* to, const T* from, int channels) {
  if (channels == 16)
    std::memcpy(to, from, 16 * sizeof(T));
  else
    std::copy_n(from, channels, to);
}

// A tensor as rows of features in the order height, width, channels, padded to whole blocks in
// bf16, whose products are convolutions. A tensor of one pixel an image is such a matrix already,
// and so is one with channels last that need no padding; others are copied through scratch memory.
template <class T>
class Rows {
 public:
  Rows(const Tensor& tensor, Planner& planner)
      : tensor_(tensor),
        threads_(planner.threads()),
        in_place_(tensor.pixels() == 1 ||
                  (tensor.channels_last && tensor.padded_channels() == tensor.shape.channels)),
        copy_(in_place_ ? Scratch() : planner.scratch(count() * std::size_t(pitch()) * sizeof(T))) {
  }

  int count() const { return tensor_.shape.batch; }
  int features() const { return static_cast<int>(tensor_.shape.features()); }
  /// Distance between rows.
  int pitch() const {
    if (in_place_) return static_cast<int>(tensor_.image());
    const int block = tensor_.element == Element::bf16 ? tensor_.block : 1;
    return (features() + block - 1) / block * block;
  }
  T* in(const Frame& frame) const { return in_place_ ? tensor_.as<T>() : copy_.in<T>(frame); }
  /// The rows as images of one pixel.
  Operand operand() const {
    Tensor rows = tensor_;
    rows.shape = {count(), 1, 1, features()};
    return {rows, in_place_ ? std::nullopt : std::optional(copy_)};
  }

  /// The tensor's rows, up to date.
  const T* read(const Frame& frame) const {
    T* rows = in(frame);
    if (in_place_) return rows;
    for_each_run(rows, [](T* row, T* block, int channels) { copy_run(row, block, channels); });
    for (int n = 0; n < count(); ++n)
      std::fill_n(rows + std::size_t(n) * pitch() + features(), pitch() - features(), T(0));
    return rows;
  }
  /// Makes the tensor what its rows are, lanes past the last channel zero.
  void written(const Frame& frame) const {
    if (in_place_) {
      const int padded = static_cast<int>(tensor_.image());
      for (int n = 0; n < count(); ++n)
        std::fill_n(tensor_.image_at<T>(n) + features(), padded - features(), T(0));
      return;
    }
    for_each_run(in(frame), [&](const T* row, T* block, int channels) {
      copy_run(block, row, channels);
      std::fill(block + channels, block + tensor_.block, T(0));
    });
  }

 private:
  // Calls f(place in the row, place in the tensor, channels) for every pixel's block of channels.
  template <class F>
  void for_each_run(T* rows, const F& f) const {
    const Tensor& t = tensor_;
    for_each_item(threads_, t.shape.batch, [&](std::size_t n) {
      T* row = rows + n * pitch();
      for (std::size_t pixel = 0; pixel < t.pixels(); ++pixel)
        for (int b = 0; b < t.blocks(); ++b)
          f(row + pixel * t.shape.channels + b * t.block, t.run<T>(n, b, pixel).first,
            std::min(t.block, t.shape.channels - b * t.block));
    });
  }

  Tensor tensor_;
  int threads_;
  bool in_place_;
  Scratch copy_;
};

// Bands of a matrix's columns, each one product by one thread. Their number follows from the extent
// alone, so that bits do not depend on the threads, as they do where oneDNN splits a sum. Narrower
// ones lose speed; multiples of 48 suit oneDNN's AVX-512 kernel.
struct Bands {
  explicit Bands(int extent) : extent(extent), size(std::max(192, (extent / 8 + 47) / 48 * 48)) {}
  std::size_t count() const { return (extent + size - 1) / size; }
  int first(std::size_t band) const { return static_cast<int>(band) * size; }
  int width(std::size_t band) const { return std::min(size, extent - first(band)); }
  int extent, size;
};

// C (m x n) = A (m x k) * B (k x n), each with its pitch; 'T' when the matrix lies transposed.
struct Matrix {
  char transposed;
  const float* data;
  int pitch;
};
void multiply(int m, int n, int k, Matrix a, Matrix b, float* c, int pitch) {
  dnnl::error::wrap_c_api(dnnl_sgemm(a.transposed, b.transposed, m, n, k, 1, a.data, a.pitch,
                                     b.data, b.pitch, 0, c, pitch),
                          "could not multiply matrices");
}

void sum_rows(const float* rows, const Rows<float>& shape, float* sums) {
  std::copy_n(rows, shape.features(), sums);
  for (int n = 1; n < shape.count(); ++n) {
    const float* row = rows + std::size_t(n) * shape.pitch();
    for (int o = 0; o < shape.features(); ++o) sums[o] += row[o];
  }
}

// In fp32, by products of bands.

Action plan_bands(const MatrixProductForward& step, Planner& planner) {
  const Rows<float> x(planner.tensor(step.x), planner), y(planner.tensor(step.y), planner);
  const float *w = planner.parameters(step.w), *bias = planner.parameters(step.b);
  return [=, relu = step.then == Activation::relu,
          threads = planner.threads()](const Frame& frame) {
    const float* in = x.read(frame);
    float* out = y.in(frame);
    const Bands bands(y.features());
    for_each_item(threads, bands.count(), [&](std::size_t band) {
      const int first = bands.first(band), width = bands.width(band);
      multiply(y.count(), width, x.features(), {'N', in, x.pitch()},
               {'T', w + std::size_t(first) * x.features(), x.features()}, out + first, y.pitch());
      for (int n = 0; n < y.count(); ++n) {
        float* row = out + std::size_t(n) * y.pitch() + first;
        if (bias)
          for (int o = 0; o < width; ++o) row[o] += bias[first + o];
        if (relu)
          for (int o = 0; o < width; ++o) row[o] = row[o] < 0 ? 0 : row[o];
      }
    });
    y.written(frame);
  };
}

Action plan_bands(const MatrixProductInputGradient& step, Planner& planner) {
  const Rows<float> dy(planner.tensor(step.dy), planner), dx(planner.tensor(step.dx), planner);
  const float* w = planner.parameters(step.w);
  return [=, threads = planner.threads()](const Frame& frame) {
    const float* in = dy.read(frame);
    float* out = dx.in(frame);
    const Bands bands(dx.features());
    for_each_item(threads, bands.count(), [&](std::size_t band) {
      const int first = bands.first(band);
      multiply(dx.count(), bands.width(band), dy.features(), {'N', in, dy.pitch()},
               {'N', w + first, dx.features()}, out + first, dx.pitch());
    });
    dx.written(frame);
  };
}

Action plan_bands(const MatrixProductWeightGradient& step, Planner& planner) {
  const Rows<float> x(planner.tensor(step.x), planner), dy(planner.tensor(step.dy), planner);
  float *dw = planner.gradients(step.w), *db = planner.gradients(step.b);
  return [=, threads = planner.threads()](const Frame& frame) {
    const float *in = x.read(frame), *out = dy.read(frame);
    const Bands bands(x.features());
    for_each_item(threads, bands.count(), [&](std::size_t band) {
      const int first = bands.first(band);
      multiply(dy.features(), bands.width(band), x.count(), {'T', out, dy.pitch()},
               {'N', in + first, x.pitch()}, dw + first, x.features());
    });
    if (db) sum_rows(out, dy, db);
  };
}

// In bf16, as 1x1 convolutions of rows: oneDNN's fastest products of such numbers.

Action plan_convolution(const MatrixProductForward& step, Planner& planner) {
  const Rows<Bf16> x(planner.tensor(step.x), planner), y(planner.tensor(step.y), planner);
  const ConvolutionForward same{{}, step.x, step.y, step.w, step.b, step.then};
  return [=, multiply = plan_forward(same, x.operand(), y.operand(), planner)](const Frame& frame) {
    x.read(frame);
    multiply(frame);
    y.written(frame);
  };
}

Action plan_convolution(const MatrixProductInputGradient& step, Planner& planner) {
  const Rows<Bf16> dy(planner.tensor(step.dy), planner), dx(planner.tensor(step.dx), planner);
  const ConvolutionInputGradient same{{}, step.dy, step.dx, step.w};
  return [=, multiply = plan_input_gradient(same, dy.operand(), dx.operand(), planner)](
             const Frame& frame) {
    dy.read(frame);
    multiply(frame);
    dx.written(frame);
  };
}

Action plan_convolution(const MatrixProductWeightGradient& step, Planner& planner) {
  const Rows<Bf16> x(planner.tensor(step.x), planner), dy(planner.tensor(step.dy), planner);
  const ConvolutionWeightGradient same{{}, step.x, step.dy, step.w, step.b};
  return [=, multiply = plan_weight_gradient(same, x.operand(), dy.operand(), planner)](
             const Frame& frame) {
    x.read(frame);
    dy.read(frame);
    multiply(frame);
  };
}

template <class Step>
Action plan_product(const Step& step, Element element, Planner& planner) {
  return element == Element::bf16 ? plan_convolution(step, planner) : plan_bands(step, planner);
}

}  // namespace

template <>
Action plan(const MatrixProductForward& step, Planner& planner) {
  if (!is_relu_or_none(step.then)) {
    MatrixProductForward bare = step;
    bare.then = Activation::none;
    return then_in_place(plan(bare, planner), step.then, step.y, planner);
  }
  return plan_product(step, planner.tensor(step.x).element, planner);
}

template <>
Action plan(const MatrixProductInputGradient& step, Planner& planner) {
  return plan_product(step, planner.tensor(step.dy).element, planner);
}

template <>
Action plan(const MatrixProductWeightGradient& step, Planner& planner) {
  return plan_product(step, planner.tensor(step.x).element, planner);
}

}  // namespace ringtrain::compute::onednn
