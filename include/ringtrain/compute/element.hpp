#pragma once
#include <cstddef>

namespace ringtrain {

/// How the numbers of activations, and of what flows back through them, are stored. Arithmetic,
/// per-channel vectors and the master copy of weights are fp32 whatever this says.
enum class Element { fp32, fp16, bf16 };

constexpr std::size_t bytes_of(Element element) { return element == Element::fp32 ? 4 : 2; }

/// "fp32", "fp16" or "bf16".
constexpr const char* name_of(Element element) {
  if (element == Element::fp32) return "fp32";
  return element == Element::fp16 ? "fp16" : "bf16";
}

}  // namespace ringtrain
