#include <algorithm>

#include "compute/cuda/bind/bind.hpp"
#include "compute/cuda/kernels/arguments/elementwise.hpp"
#include "compute/cuda/kernels/arguments/grouped_convolution.hpp"
#include "compute/cuda/kernels/arguments/weights.hpp"

namespace ringtrain::compute::cuda {
namespace {

// How the weights of the layer that reads the image lie, where that is not as in the flat buffer.
std::optional<kernels::WeightForm> packed(const ConvolutionShape& w, TensorId x, TensorId y,
                                          const Binder& b) {
  const StoredImage* image = b.stored_image(x);
  if (image == nullptr) return std::nullopt;
  const Convolution& form = image->form;
  const int blocks = image->blocks();
  return kernels::WeightForm{.out = b.shape(y).channels,
                             .height = w.height,
                             .width = w.width,
                             .in = b.shape(x).channels,
                             .top = w.top,
                             .left = w.left,
                             .stored_height = form.window.height,
                             .stored_width = blocks > 0 ? blocks : form.window.width,
                             .stored_in = form.x.channels / std::max(blocks, 1),
                             .blocks = blocks > 0};
}

std::size_t elements_of(const kernels::WeightForm& form) {
  return std::size_t(form.out) * form.stored_height * form.stored_width * form.stored_in;
}

// What cuDNN does not add to a product itself.
template <class Kind>
Action behind(const Kind& s, Binder& b) {
  void* y = b.at(s.y);
  if (s.b)
    return [&b, y, pixels = b.pixels(s.y), channels = b.channels(s.y), bias = b.parameters(s.b),
            then = s.then] {
      kernels::add_bias(b.element(), pixels, channels, y, bias, y, then, b.stream());
    };
  return [&b, y, count = b.elements(s.y), then = s.then] {
    kernels::pointwise(then, b.element(), count, y, y, b.stream());
  };
}

template <class Kind>
Action forward(const Kind& s, Binder& b, const void* weights) {
  const Request at_once = request(b.schedule(), s, b.element(), true);
  if (is_relu_or_none(s.then) && b.has_engine(at_once)) return b.cudnn(at_once, weights);
  return [product = b.cudnn(request(b.schedule(), s, b.element(), false), weights),
          rest = behind(s, b)] {
    product();
    rest();
  };
}

template <class Kind>
Action bias_gradient(const Kind& s, Binder& b) {
  if (!s.b) return [] {};
  const std::size_t pixels = b.pixels(s.dy), channels = b.channels(s.dy);
  b.reserve(kernels::bias_gradient_workspace(pixels, channels));
  return [&b, pixels, channels, dy = b.at(s.dy), db = b.gradients(s.b)] {
    kernels::bias_gradient(b.element(), pixels, channels, dy, db, b.floats(), b.stream());
  };
}

// cuDNN writes dw in the type of the activations, in the form in which it reads w. It moves into
// the flat fp32 gradient later, with others, or at once where its form is another.
template <class Kind>
Action weight_gradient(const Kind& s, Binder& b,
                       const std::optional<kernels::WeightForm>& form = std::nullopt) {
  const Request asked = request(b.schedule(), s, b.element());
  Action db = bias_gradient(s, b);
  if (!form && b.element() == Element::fp32)
    return [product = b.cudnn(asked), db = std::move(db)] {
      product();
      db();
    };
  if (!form)
    return [product = b.cudnn(asked, nullptr, b.narrow_gradient(s.w)), db = std::move(db)] {
      product();
      db();
    };
  void* dw = b.keep(elements_of(*form) * bytes_of(b.element()));
  return [&b, product = b.cudnn(asked, nullptr, dw), db = std::move(db), dw, form = *form,
          to = b.gradients(s.w)] {
    product();
    kernels::unpack_weights(form, b.element(), dw, to, b.stream());
    db();
  };
}

// Also reserves its kernels' workspace.
kernels::GroupedConvolution own_convolution(const ConvolutionShape& window, TensorId x, TensorId y,
                                            Binder& b) {
  const kernels::GroupedConvolution c{b.element(), window, b.shape(x), b.shape(y)};
  b.reserve(kernels::grouped_convolution_workspace(c));
  return c;
}

}  // namespace

template <>
Action bind(const ConvolutionForward& s, Binder& b) {
  if (is_ours(b.schedule(), s.window, s.x))
    return [&b, c = own_convolution(s.window, s.x, s.y, b), x = b.at(s.x), y = b.at(s.y),
            w = b.parameters(s.w), bias = b.parameters(s.b), then = s.then] {
      kernels::grouped_convolution_forward(c, x, w, bias, then, y, b.floats(), b.stream());
    };
  const auto form = packed(s.window, s.x, s.y, b);
  if (!form) return forward(s, b, nullptr);
  void* weights = b.keep(elements_of(*form) * bytes_of(b.element()));
  return [&b, form = *form, weights, flat = b.narrow_parameters(s.w),
          product = forward(s, b, weights)] {
    kernels::pack_weights(form, b.element(), flat, weights, b.stream());
    product();
  };
}

template <>
Action bind(const ConvolutionInputGradient& s, Binder& b) {
  if (!s.epilogue && is_ours(b.schedule(), s.window, s.dx))
    return [&b, c = own_convolution(s.window, s.dx, s.dy, b), dy = b.at(s.dy), dx = b.at(s.dx),
            w = b.parameters(s.w)] {
      kernels::grouped_convolution_input_gradient(c, dy, w, dx, b.floats(), b.stream());
    };
  return b.cudnn(request(b.schedule(), s, b.element()));
}

template <>
Action bind(const ConvolutionWeightGradient& s, Binder& b) {
  if (is_ours(b.schedule(), s.window, s.x)) {
    return [&b, c = own_convolution(s.window, s.x, s.dy, b), x = b.at(s.x), dy = b.at(s.dy),
            dw = b.gradients(s.w), db = bias_gradient(s, b)] {
      kernels::grouped_convolution_weight_gradient(c, x, dy, dw, b.floats(), b.stream());
      db();
    };
  }
  return weight_gradient(s, b, packed(s.window, s.x, s.dy, b));
}

template <>
Action bind(const MatrixProductForward& s, Binder& b) {
  return forward(s, b, nullptr);
}

template <>
Action bind(const MatrixProductInputGradient& s, Binder& b) {
  return b.cudnn(request(b.schedule(), s, b.element()));
}

template <>
Action bind(const MatrixProductWeightGradient& s, Binder& b) {
  return weight_gradient(s, b);
}

}  // namespace ringtrain::compute::cuda
