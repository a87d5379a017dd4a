#pragma once
#include <cstdint>

#include "io/resize.hpp"
#include "ringtrain/base/batch.hpp"
#include "ringtrain/base/philox.hpp"
#include "ringtrain/io/recipe.hpp"

namespace ringtrain {

/// How an image becomes the network's input: `box` of it is scaled to `scaled`, and the output
/// shows that from (top, left) on, black outside, perhaps mirrored.
struct Framing {
  Box box;
  Extent scaled;
  int top = 0, left = 0;
  bool mirrored = false;
};

Framing evaluation_framing(const InputRecipe& recipe, Extent image);
Framing training_framing(const InputRecipe& recipe, Extent image, Philox& random);
Distortion draw_distortion(const InputRecipe& recipe, Philox& random);

/// The least extent that an image of extent `full` can be delivered in so that the framing does
/// not enlarge what was reduced.
Extent least_extent(const Framing& framing, Extent full);

/// Renders framings; one a thread.
class Renderer {
 public:
  /// Writes an output.height x output.width image to `out`. `framing` was made for an image of
  /// extent `full`; `image` is that image or a reduction of it.
  void run(const ImageView& image, Extent full, const Framing& framing, Extent output,
           std::uint8_t* out);

 private:
  Resizer resizer_;
};

}  // namespace ringtrain
