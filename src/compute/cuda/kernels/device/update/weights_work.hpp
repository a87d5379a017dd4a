#pragma once
#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "compute/cuda/kernels/arguments/weights.hpp"
#include "compute/cuda/kernels/device/lanes.hpp"
#include "compute/cuda/kernels/device/pixel_blocks.hpp"

// The calls of weights.hpp for any queue: StreamQueue, or a CPU's in tests.
namespace ringtrain::compute::cuda::kernels::work {

/// Where each weight lies, flat and stored. In 32 bits, which GPUs divide much faster.
struct WeightPlaces {
  WeightForm form;
  BlockAxis rows, columns;

  explicit WeightPlaces(const WeightForm& f)
      : form(f), rows(block_axis(f.blocks, f.top)), columns(block_axis(f.blocks, f.left)) {
    expects(f.stored_in >= rows.side * columns.side * f.in &&
                f.stored_height > rows.block(f.height - 1) &&
                f.stored_width > columns.block(f.width - 1),
            "weights: the stored form holds all of them");
  }
  constexpr std::size_t flat_count() const {
    return std::size_t(form.out) * form.height * form.width * form.in;
  }
  constexpr std::size_t stored_count() const {
    return std::size_t(form.out) * form.stored_height * form.stored_width * form.stored_in;
  }
  /// Where the weight at `flat` is stored.
  constexpr std::uint32_t stored(std::uint32_t flat) const {
    const std::uint32_t tap = flat / form.in, line = tap / form.width;
    const int row = static_cast<int>(line % form.height),
              column = static_cast<int>(tap % form.width);
    const int part = rows.part(row) * columns.side + columns.part(column);
    const std::uint32_t stored_line = line / form.height * form.stored_height + rows.block(row);
    const std::uint32_t pixel = stored_line * form.stored_width + columns.block(column);
    return pixel * form.stored_in + part * form.in + flat % form.in;
  }
  static constexpr std::uint32_t none = ~std::uint32_t(0);
  /// Where the weight in `channel` of stored pixel `pixel` lies flat, or none.
  constexpr std::uint32_t flat(std::uint32_t pixel, int channel) const {
    const std::uint32_t line = pixel / form.stored_width;
    const int part = channel / form.in;
    const int row = rows.tap(static_cast<int>(line % form.stored_height), part / columns.side);
    const int column =
        columns.tap(static_cast<int>(pixel % form.stored_width), part % columns.side);
    const bool exists = part < rows.side * columns.side && row >= 0 && row < form.height &&
                        column >= 0 && column < form.width;
    if (!exists) return none;
    const std::uint32_t flat_line = line / form.stored_height * form.height + row;
    return (flat_line * form.width + column) * form.in + channel % form.in;
  }
};

/// A vector of stored channels. The flat weights are read one by one: they start anywhere.
template <class T, int w>
struct PackWeights {
  WeightPlaces places;
  const T* weights;
  T* packed;
  constexpr void operator()(std::uint32_t item) const {
    const std::uint32_t vectors = places.form.stored_in / w;
    const int channel = static_cast<int>(item % vectors) * w;
    Lanes<w> v{};
    for (int i = 0; i < w; ++i) {
      const std::uint32_t from = places.flat(item / vectors, channel + i);
      v[i] = from == places.none ? 0 : static_cast<float>(weights[from]);
    }
    store(packed + std::size_t(item) * w, v);
  }
};

template <class Queue>
void pack_weights(const WeightForm& form, Element element, const void* weights, void* packed,
                  Queue& queue) {
  const WeightPlaces places(form);
  const bool wide = is_wide(element, {std::size_t(form.stored_in)}, {packed});
  with_type_and_width(element, wide, [&]<class T>(T, auto w) {
    const PackWeights<T, w> work{places, static_cast<const T*>(weights), static_cast<T*>(packed)};
    queue.items(work, places.stored_count() / w);
  });
}

template <class T>
struct UnpackWeights {
  WeightPlaces places;
  const T* packed;
  float* gradient;
  constexpr void operator()(std::uint32_t item) const {
    gradient[item] = static_cast<float>(packed[places.stored(item)]);
  }
};

template <class Queue>
void unpack_weights(const WeightForm& form, Element element, const void* packed, float* gradient,
                    Queue& queue) {
  const WeightPlaces places(form);
  with_type(element, [&]<class T>(T) {
    const UnpackWeights<T> work{places, static_cast<const T*>(packed), gradient};
    queue.items(work, places.flat_count());
  });
}

/// A block widens a tile.
template <class T>
struct WidenGradients {
  const WidenTile* tiles;
  float* gradients;
  constexpr int phases() const { return 1; }
  constexpr void operator()(int, std::uint32_t block, std::uint32_t thread, unsigned char*) const {
    constexpr int w = 8;
    const WidenTile tile = tiles[block];
    const T* from = static_cast<const T*>(tile.from);
    float* to = gradients + tile.to;
    for (std::uint32_t i = thread; i < tile.vectors; i += block_threads)
      store(to + i * w, load_constant<w>(from + i * w));
    for (std::uint32_t i = tile.vectors * w + thread; i < tile.count; i += block_threads)
      store(to + i, load_constant<1>(from + i));
  }
};

template <class Queue>
void widen_gradients(Element element, const WidenTile* tiles, std::size_t count, float* gradients,
                     Queue& queue) {
  with_type(element, [&]<class T>(T) {
    queue.blocks(WidenGradients<T>{tiles, gradients}, Grid{small(count), block_threads, 0});
  });
}

}  // namespace ringtrain::compute::cuda::kernels::work
