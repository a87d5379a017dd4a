#pragma once
#include "compute/cuda/kernels/arguments/elementwise.hpp"
#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "compute/cuda/kernels/device/activation.hpp"
#include "compute/cuda/kernels/device/lanes.hpp"
#include "ringtrain/base/philox.hpp"

namespace ringtrain::compute::cuda::kernels {

/// Four random words.
struct Words {
  std::uint32_t at[4];
};

/// The words of ringtrain::Philox(seed, purpose, a, b).at(position), where GPUs can compute them.
constexpr Words philox(std::uint64_t seed, Purpose purpose, std::uint32_t a, std::uint64_t b,
                       std::uint32_t position) {
  using Word = std::uint32_t;
  Words x{{position, (static_cast<Word>(purpose) << 24) ^ a, static_cast<Word>(b),
           static_cast<Word>(b >> 32)}};
  Word k0 = static_cast<Word>(seed), k1 = static_cast<Word>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p = 0xD2511F53ull * x.at[0], q = 0xCD9E8D57ull * x.at[2];
    x = {{static_cast<Word>(q >> 32) ^ x.at[1] ^ k0, static_cast<Word>(q),
          static_cast<Word>(p >> 32) ^ x.at[3] ^ k1, static_cast<Word>(p)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return x;
}

}  // namespace ringtrain::compute::cuda::kernels

// The calls of elementwise.hpp for any queue: StreamQueue, or a CPU's in tests.
namespace ringtrain::compute::cuda::kernels::work {

template <class T, int w, bool all>
struct Pointwise {
  Activation f;
  const T* x;
  T* y;
  std::size_t count;
  constexpr void operator()(std::uint32_t item) const {
    for_vector<w>(item, count, [&](std::size_t at, auto n) {
      auto v = load<n>(x + at);
      for (int i = 0; i < n; ++i) v[i] = value_of<all>(f, v[i]);
      store(y + at, v);
    });
  }
};

template <class Queue>
void pointwise(Activation f, Element element, std::size_t count, const void* x, void* y,
               Queue& queue) {
  with_type_and_width(element, is_wide(element, {}, {x, y}), [&]<class T>(T, auto w) {
    with_activations(f, [&](auto all) {
      const Pointwise<T, w, all> work{f, static_cast<const T*>(x), static_cast<T*>(y), count};
      queue.items(work, divide_up(count, w));
    });
  });
}

template <class T, int w, bool all>
struct PointwiseBackward {
  Activation f;
  const T *saved, *dy;
  T* dx;
  std::size_t count;
  constexpr void operator()(std::uint32_t item) const {
    for_vector<w>(item, count, [&](std::size_t at, auto n) {
      const auto kept = load<n>(saved + at);
      auto v = load<n>(dy + at);
      for (int i = 0; i < n; ++i) v[i] = gradient_of<all>(f, kept[i], v[i]);
      store(dx + at, v);
    });
  }
};

template <class Queue>
void pointwise_backward(Activation f, Element element, std::size_t count, const void* saved,
                        const void* dy, void* dx, Queue& queue) {
  with_type_and_width(element, is_wide(element, {}, {saved, dy, dx}), [&]<class T>(T, auto w) {
    with_activations(f, [&](auto all) {
      const PointwiseBackward<T, w, all> work{
          f, static_cast<const T*>(saved), static_cast<const T*>(dy), static_cast<T*>(dx), count};
      queue.items(work, divide_up(count, w));
    });
  });
}

template <class T, int w, bool all>
struct Add {
  const T *a, *b;
  T* y;
  Activation then;
  std::size_t count;
  constexpr void operator()(std::uint32_t item) const {
    for_vector<w>(item, count, [&](std::size_t at, auto n) {
      auto v = load<n>(a + at);
      const auto more = load<n>(b + at);
      for (int i = 0; i < n; ++i) v[i] = value_of<all>(then, v[i] + more[i]);
      store(y + at, v);
    });
  }
};

template <class Queue>
void add(Element element, std::size_t count, const void* a, const void* b, void* y, Activation then,
         Queue& queue) {
  with_type_and_width(element, is_wide(element, {}, {a, b, y}), [&]<class T>(T, auto w) {
    with_activations(then, [&](auto all) {
      const Add<T, w, all> work{static_cast<const T*>(a), static_cast<const T*>(b),
                                static_cast<T*>(y), then, count};
      queue.items(work, divide_up(count, w));
    });
  });
}

template <class From, class To, int w>
struct Scale {
  const From* x;
  To* y;
  float factor;
  std::size_t count;
  constexpr void operator()(std::uint32_t item) const {
    for_vector<w>(item, count, [&](std::size_t at, auto n) {
      auto v = load<n>(x + at);
      for (int i = 0; i < n; ++i) v[i] *= factor;
      store(y + at, v);
    });
  }
};

// As many elements as the narrower of two types has in 16 bytes, so that no access is shorter.
template <class Queue>
void scale(Element from, Element to, float factor, std::size_t count, const void* x, void* y,
           Queue& queue) {
  const bool wide = is_wide(from, {}, {x, y});
  with_type(from, [&]<class From>(From) {
    with_type_and_width(to, wide, [&]<class To>(To, auto width) {
      constexpr int w = width > 1 ? std::max(full_width<From>, full_width<To>) : 1;
      const Scale<From, To, w> work{static_cast<const From*>(x), static_cast<To*>(y), factor,
                                    count};
      queue.items(work, divide_up(count, w));
    });
  });
}

template <class Queue>
void convert(Element from, Element to, std::size_t count, const void* x, void* y, Queue& queue) {
  scale(from, to, 1, count, x, y, queue);
}

// One thread computes whole Philox blocks of four words wherever it handles four elements or more.
template <class T, int w>
struct Dropout {
  DropoutOperands o;
  constexpr void operator()(std::uint32_t item) const {
    const std::size_t at = std::size_t(item) * w, sample = at / o.features;
    const auto first = static_cast<std::uint32_t>(at % o.features);
    auto v = load<w>(static_cast<const T*>(o.x) + at);
    Words words{};
    for (int i = 0; i < w; ++i) {
      const std::uint32_t word = o.how.of_sample ? 0 : first + i;
      if (i % 4 == 0) words = block(sample, word / 4);
      const float uniform = static_cast<float>(words.at[word % 4] >> 8) * 0x1p-24f;
      v[i] = uniform < o.how.keep ? v[i] / o.how.keep : 0;
    }
    store(static_cast<T*>(o.y) + at, v);
  }
  constexpr Words block(std::size_t sample, std::uint32_t position) const {
    const auto epoch = o.samples[sample].epoch;
    return philox(o.seed, Purpose::dropout, o.how.layer + 256 * epoch, o.samples[sample].key(),
                  position);
  }
};

template <class Queue>
void dropout(const DropoutOperands& o, Queue& queue) {
  with_type_and_width(
      o.element, is_wide(o.element, {o.features}, {o.x, o.y}),
      [&]<class T>(T, auto w) { queue.items(Dropout<T, w>{o}, o.batch * o.features / w); });
}

}  // namespace ringtrain::compute::cuda::kernels::work
