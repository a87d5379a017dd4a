#include <algorithm>
#include <cstring>

#include "compute/onednn/parallel.hpp"
#include "compute/onednn/plan.hpp"

namespace ringtrain::onednn {
namespace {

// Most runs are whole blocks: copies of a known length are one or two instructions.
void copy_run(float* to, const float* from, int channels) {
  if (channels == 16)
    std::memcpy(to, from, 16 * sizeof(float));
  else
    std::copy_n(from, channels, to);
}

// A tensor as rows of features in the order height, width, channels. A tensor of one pixel an image
// is such a matrix already, with room between its rows; others are copied through scratch memory.
class Rows {
 public:
  Rows(const Tensor& tensor, Planner& planner)
      : tensor_(tensor),
        threads_(planner.threads()),
        in_place_(tensor.pixels() == 1),
        copy_(in_place_ ? Scratch() : planner.scratch(tensor.shape.elements() * sizeof(float))) {}

  int count() const { return tensor_.shape.batch; }
  int features() const { return static_cast<int>(tensor_.shape.features()); }
  /// Distance between rows.
  int pitch() const { return in_place_ ? static_cast<int>(tensor_.image()) : features(); }
  float* in(const Frame& frame) const { return in_place_ ? tensor_.data : copy_.in(frame); }

  /// The tensor's rows, up to date.
  const float* read(const Frame& frame) const {
    float* rows = in(frame);
    if (!in_place_)
      for_each_run(rows,
                   [](float* row, float* block, int channels) { copy_run(row, block, channels); });
    return rows;
  }
  /// Makes the tensor what its rows are, lanes past the last channel zero.
  void written(const Frame& frame) const {
    if (in_place_) {
      const int padded = static_cast<int>(tensor_.image());
      for (int n = 0; n < count(); ++n)
        std::fill_n(tensor_.data + n * tensor_.image() + features(), padded - features(), 0.f);
      return;
    }
    for_each_run(in(frame), [&](const float* row, float* block, int channels) {
      copy_run(block, row, channels);
      std::fill(block + channels, block + tensor_.block, 0.f);
    });
  }

 private:
  // Calls f(place in the row, place in the tensor, channels) for every pixel's block of channels.
  template <class F>
  void for_each_run(float* rows, const F& f) const {
    const Tensor& t = tensor_;
    for_each_item(threads_, t.shape.batch, [&](std::size_t n) {
      float* row = rows + n * t.shape.features();
      for (std::size_t pixel = 0; pixel < t.pixels(); ++pixel)
        for (int c = 0; c < t.shape.channels; c += t.block)
          f(row + pixel * t.shape.channels + c,
            t.data + n * t.image() + c * t.pixels() + pixel * t.block,
            std::min(t.block, t.shape.channels - c));
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

void sum_rows(const float* rows, const Rows& shape, float* sums) {
  std::copy_n(rows, shape.features(), sums);
  for (int n = 1; n < shape.count(); ++n) {
    const float* row = rows + std::size_t(n) * shape.pitch();
    for (int o = 0; o < shape.features(); ++o) sums[o] += row[o];
  }
}

}  // namespace

Action plan(const MatrixProductForward& step, Planner& planner) {
  const Rows x(planner.tensor(step.x), planner), y(planner.tensor(step.y), planner);
  const float *w = planner.parameters(step.w), *bias = planner.parameters(step.b);
  return [=, relu = step.relu, threads = planner.threads()](const Frame& frame) {
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

Action plan(const MatrixProductInputGradient& step, Planner& planner) {
  const Rows dy(planner.tensor(step.dy), planner), dx(planner.tensor(step.dx), planner);
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

Action plan(const MatrixProductWeightGradient& step, Planner& planner) {
  const Rows x(planner.tensor(step.x), planner), dy(planner.tensor(step.dy), planner);
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

}  // namespace ringtrain::onednn
