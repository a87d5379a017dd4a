#include "support/networks.hpp"

namespace ringtrain::networks {
namespace {

// Collects tensors and steps. Parameters are laid out from the end, so that those whose gradients
// come first in the backward pass are the tail of the buffer.
class Builder {
 public:
  explicit Builder(compute::Schedule& schedule) : s_(schedule) {}
  compute::TensorId tensor(compute::Shape shape) {
    s_.tensors.push_back(shape);
    return static_cast<compute::TensorId>(s_.tensors.size() - 1);
  }
  compute::TensorId like(compute::TensorId id) { return tensor(s_.tensors[id]); }
  const compute::Shape& shape(compute::TensorId id) const { return s_.tensors[id]; }
  compute::ParameterRange parameters(std::size_t count) {
    return {std::exchange(s_.parameters, s_.parameters + count), count};
  }
  compute::StatisticsRange statistics(std::size_t count) {
    return {std::exchange(s_.statistics, s_.statistics + count), count};
  }
  template <class Kind>
  void add(Kind kind) {
    s_.steps.push_back(std::move(kind));
  }
  void begin_backward() { s_.backward = s_.steps.size(); }

 private:
  compute::Schedule& s_;
};

compute::Window same(int kernel, int stride) {
  const int pad = kernel / 2;
  return {kernel, kernel, stride, stride, pad, pad, pad, pad};
}

// Convolution, BatchNorm and perhaps a residual and ReLU, and how to go back through them.
struct Unit {
  compute::Window window;
  compute::TensorId x, middle, y, residual;
  compute::ParameterRange w, gamma, beta;
  compute::Activation then;
};

Unit add_unit(Builder& b, compute::TensorId x, int channels, int stride, compute::Activation then,
              compute::TensorId residual) {
  const compute::Shape in = b.shape(x);
  const compute::Shape out{in.batch, in.height / stride, in.width / stride, channels};
  const auto c = static_cast<std::size_t>(channels);
  Unit u{same(3, stride),
         x,
         b.tensor(out),
         b.tensor(out),
         residual,
         b.parameters(c * 9 * in.channels),
         b.parameters(c),
         b.parameters(c),
         then};
  b.add(compute::ConvolutionForward{u.window, x, u.middle, u.w});
  compute::BatchNormForward norm{u.middle, u.y, residual, u.gamma, u.beta, b.statistics(2 * c)};
  norm.then = then;
  b.add(norm);
  return u;
}

// Returns the gradient of the unit's input, or no_tensor where nobody wants it.
compute::TensorId back_through(Builder& b, const Unit& u, compute::TensorId dy,
                               compute::TensorId dy2, compute::TensorId dresidual,
                               bool input_gradient) {
  const compute::TensorId dmiddle = b.like(u.middle);
  compute::BatchNormBackward norm{
      u.middle, u.residual == compute::no_tensor ? compute::no_tensor : u.y,
      dy,       dy2,
      dmiddle,  dresidual,
      u.gamma,  u.beta};
  norm.then = u.then;
  b.add(norm);
  b.add(compute::ConvolutionWeightGradient{u.window, u.x, dmiddle, u.w});
  if (!input_gradient) return compute::no_tensor;
  const compute::TensorId dx = b.like(u.x);
  b.add(compute::ConvolutionInputGradient{u.window, dmiddle, dx, u.w});
  return dx;
}

}  // namespace

compute::Schedule cifar10_cnn(int batch) {
  compute::Schedule s;
  s.batch = batch;
  Builder b(s);
  const compute::Window conv = same(5, 1), pool{3, 3, 2, 2, 0, 0, 1, 1};
  const compute::TensorId image = b.tensor({batch, 24, 24, 3}), c1 = b.tensor({batch, 24, 24, 64}),
                          p1 = b.tensor({batch, 12, 12, 64}), n1 = b.like(p1), c2 = b.like(p1),
                          n2 = b.like(p1), p2 = b.tensor({batch, 6, 6, 64}),
                          f1 = b.tensor({batch, 1, 1, 384}), f2 = b.tensor({batch, 1, 1, 192}),
                          f3 = b.tensor({batch, 1, 1, 10});
  const compute::ParameterRange w1 = b.parameters(64 * 75), b1 = b.parameters(64),
                                w2 = b.parameters(64 * 25 * 64), b2 = b.parameters(64),
                                w3 = b.parameters(2304 * 384), b3 = b.parameters(384),
                                w4 = b.parameters(384 * 192), b4 = b.parameters(192),
                                w5 = b.parameters(1920), b5 = b.parameters(10);
  b.add(compute::Input{image, compute::Normalisation::standardise_image, {}, {}, true});
  b.add(compute::ConvolutionForward{conv, image, c1, w1, b1, compute::Activation::relu});
  b.add(compute::MaxPoolForward{pool, c1, p1});
  b.add(compute::LrnForward{{}, p1, n1});
  b.add(compute::ConvolutionForward{conv, n1, c2, w2, b2, compute::Activation::relu});
  b.add(compute::LrnForward{{}, c2, n2});
  b.add(compute::MaxPoolForward{pool, n2, p2});
  b.add(compute::MatrixProductForward{p2, f1, w3, b3, compute::Activation::relu});
  b.add(compute::MatrixProductForward{f1, f2, w4, b4, compute::Activation::relu});
  b.add(compute::MatrixProductForward{f2, f3, w5, b5});
  const compute::TensorId d3 = b.like(f3), d2 = b.like(f2), m2 = b.like(f2), d1 = b.like(f1),
                          m1 = b.like(f1), dp2 = b.like(p2), dn2 = b.like(n2), dc2 = b.like(c2),
                          dn1 = b.like(n1), dp1 = b.like(p1), dc1 = b.like(c1);
  b.add(compute::SoftmaxCrossEntropy{f3, d3});
  b.begin_backward();
  b.add(compute::MatrixProductWeightGradient{f2, d3, w5, b5});
  b.add(compute::MatrixProductInputGradient{d3, d2, w5});
  b.add(compute::PointwiseBackward{compute::Activation::relu, f2, d2, m2});
  b.add(compute::MatrixProductWeightGradient{f1, m2, w4, b4});
  b.add(compute::MatrixProductInputGradient{m2, d1, w4});
  b.add(compute::PointwiseBackward{compute::Activation::relu, f1, d1, m1});
  b.add(compute::MatrixProductWeightGradient{p2, m1, w3, b3});
  b.add(compute::MatrixProductInputGradient{m1, dp2, w3});
  b.add(compute::MaxPoolBackward{pool, n2, p2, dp2, dn2});
  compute::LrnBackward lrn{{}, c2, dn2, dc2};
  lrn.mask = true;
  b.add(lrn);
  b.add(compute::ConvolutionWeightGradient{conv, n1, dc2, w2, b2});
  b.add(compute::ConvolutionInputGradient{conv, dc2, dn1, w2});
  lrn.x = p1, lrn.dy = dn1, lrn.dx = dp1;
  b.add(lrn);
  b.add(compute::MaxPoolBackward{pool, c1, p1, dp1, dc1});
  b.add(compute::ConvolutionWeightGradient{conv, image, dc1, w1, b1});
  return s;
}

compute::Schedule resnet20(int batch) {
  compute::Schedule s;
  s.batch = batch;
  Builder b(s);
  const compute::TensorId image = b.tensor({batch, 32, 32, 3});
  b.add(compute::Input{
      image, compute::Normalisation::mean_deviation, {0.5f, 0.5f, 0.5f}, {0.25f, 0.25f, 0.25f}});
  struct Block {
    Unit first, second;
    int stride;
  };
  const Unit stem = add_unit(b, image, 16, 1, compute::Activation::relu, compute::no_tensor);
  std::vector<Block> blocks;
  compute::TensorId x = stem.y;
  for (const int channels : {16, 32, 64})
    for (int i = 0; i < 3; ++i) {
      const int stride = channels != 16 && i == 0 ? 2 : 1;
      const Unit first =
          add_unit(b, x, channels, stride, compute::Activation::relu, compute::no_tensor);
      compute::TensorId shortcut = x;
      if (stride == 2) {
        shortcut = b.like(first.y);
        b.add(compute::ShortcutForward{x, shortcut, 2});
      }
      blocks.push_back(
          {first, add_unit(b, first.y, channels, 1, compute::Activation::relu, shortcut), stride});
      x = blocks.back().second.y;
    }
  const compute::Window whole{8, 8, 1, 1};
  const compute::TensorId pooled = b.tensor({batch, 1, 1, 64}),
                          logits = b.tensor({batch, 1, 1, 10}), dlogits = b.like(logits),
                          dpooled = b.like(pooled);
  const compute::ParameterRange w = b.parameters(640), bias = b.parameters(10);
  b.add(compute::AveragePoolForward{whole, x, pooled});
  b.add(compute::MatrixProductForward{pooled, logits, w, bias});
  b.add(compute::SoftmaxCrossEntropy{logits, dlogits});
  b.begin_backward();
  b.add(compute::MatrixProductWeightGradient{pooled, dlogits, w, bias});
  b.add(compute::MatrixProductInputGradient{dlogits, dpooled, w});
  compute::TensorId dy = b.like(x), dy2 = compute::no_tensor;
  b.add(compute::AveragePoolBackward{whole, dpooled, dy});
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    const compute::TensorId dshortcut = b.like(block->second.y);
    const compute::TensorId dmiddle = back_through(b, block->second, dy, dy2, dshortcut, true);
    dy = back_through(b, block->first, dmiddle, compute::no_tensor, compute::no_tensor, true);
    dy2 = dshortcut;
    if (block->stride == 2) {
      dy2 = b.like(block->first.x);
      b.add(compute::ShortcutBackward{dshortcut, dy2, 2});
    }
  }
  back_through(b, stem, dy, dy2, compute::no_tensor, false);
  return s;
}

}  // namespace ringtrain::networks
