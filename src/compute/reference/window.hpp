#pragma once
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute::reference {

/// Calls f(output pixel, input pixel, tap) for every tap of every window that falls inside the
/// image; pixels count over the whole batch, taps in row order.
template <class F>
void for_each_tap(const Shape& x, const Shape& y, const Window& w, F f) {
  for (int n = 0; n < y.batch; ++n)
    for (int oy = 0; oy < y.height; ++oy)
      for (int ox = 0; ox < y.width; ++ox)
        for (int ky = 0; ky < w.height; ++ky)
          for (int kx = 0; kx < w.width; ++kx) {
            const int iy = oy * w.stride_y + ky - w.top, ix = ox * w.stride_x + kx - w.left;
            if (iy < 0 || iy >= x.height || ix < 0 || ix >= x.width) continue;
            f((std::size_t(n) * y.height + oy) * y.width + ox,
              (std::size_t(n) * x.height + iy) * x.width + ix, std::size_t(ky) * w.width + kx);
          }
}

}  // namespace ringtrain::compute::reference
