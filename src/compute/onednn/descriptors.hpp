#pragma once
#include <dnnl.hpp>
#include <string_view>

#include "compute/onednn/kernels/activation.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/compute/step.hpp"

// What oneDNN 2 (Debian 12) and oneDNN 3 (Debian 13) write differently. No other file asks which of
// them it has.
namespace ringtrain::compute::onednn {

/// The strides of a window and the padding around what it runs over: {height, width}.
struct WindowDims {
  dnnl::memory::dims strides, before, after;
};
inline WindowDims window_dims(const Window& w) {
  return {{w.stride_y, w.stride_x}, {w.top, w.left}, {w.bottom, w.right}};
}

/// What every primitive descriptor is made with. `without_amx`: a backward primitive's kernel is
/// none of AMX's.
struct PrimitiveOptions {
  const dnnl::engine& engine;
  const dnnl::primitive_attr& attributes;
  bool without_amx = false;
};

/// An elementwise function as a primitive's epilogue.
inline void append_eltwise(dnnl::post_ops& epilogue, const Eltwise& f) {
#if DNNL_VERSION_MAJOR >= 3
  epilogue.append_eltwise(f.algorithm, f.alpha, f.beta);
#else
  epilogue.append_eltwise(1, f.algorithm, f.alpha, f.beta);
#endif
}

/// The descriptor of a Primitive that slides a window. `operation`: what comes before its strides
/// in both versions.
template <class Primitive, class... Operation>
typename Primitive::primitive_desc forward_descriptor(const PrimitiveOptions& making,
                                                      const WindowDims& s,
                                                      const Operation&... operation) {
#if DNNL_VERSION_MAJOR >= 3
  return {making.engine, operation..., s.strides, s.before, s.after, making.attributes};
#else
  return {typename Primitive::desc(operation..., s.strides, s.before, s.after), making.attributes,
          making.engine};
#endif
}

/// The same of a backward primitive; oneDNN wants the descriptor of its forward primitive as a
/// hint.
template <class Primitive, class Forward, class... Operation>
typename Primitive::primitive_desc backward_descriptor(const PrimitiveOptions& making,
                                                       const WindowDims& s, const Forward& hint,
                                                       const Operation&... operation) {
#if DNNL_VERSION_MAJOR >= 3
  typename Primitive::primitive_desc result(making.engine, operation..., s.strides, s.before,
                                            s.after, hint, making.attributes);
#else
  // next_impl() looks at it once more, and at the hint.
  const typename Primitive::desc described(operation..., s.strides, s.before, s.after);
  typename Primitive::primitive_desc result(described, making.attributes, making.engine, hint);
#endif
  const auto is_amx = [&] {
    return std::string_view(result.impl_info_str()).find("amx") != std::string_view::npos;
  };
  while (making.without_amx && result && is_amx())
    if (!result.next_impl())
      throw Error("plan a backward step with oneDNN", "it has no other kernel than AMX's");
  return result;
}

inline dnnl::pooling_forward::primitive_desc pooling_forward_descriptor(
    const PrimitiveOptions& making, dnnl::prop_kind purpose, dnnl::algorithm kind,
    const dnnl::memory::desc& x, const dnnl::memory::desc& y, const dnnl::memory::dims& kernel,
    const WindowDims& s) {
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::memory::dims undilated{0, 0};
  return {making.engine, purpose,          kind, x, y, s.strides, kernel, undilated, s.before,
          s.after,       making.attributes};
#else
  return {{purpose, kind, x, y, s.strides, kernel, s.before, s.after},
          making.attributes,
          making.engine};
#endif
}

inline dnnl::pooling_backward::primitive_desc pooling_backward_descriptor(
    const PrimitiveOptions& making, dnnl::algorithm kind, const dnnl::memory::desc& dx,
    const dnnl::memory::desc& dy, const dnnl::memory::dims& kernel, const WindowDims& s,
    const dnnl::pooling_forward::primitive_desc& hint) {
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::memory::dims undilated{0, 0};
  return {making.engine, kind,     dx,      dy,   s.strides,        kernel,
          undilated,     s.before, s.after, hint, making.attributes};
#else
  return {
      {kind, dx, dy, s.strides, kernel, s.before, s.after}, making.attributes, making.engine, hint};
#endif
}

}  // namespace ringtrain::compute::onednn
