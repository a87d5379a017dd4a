#include "compute/onednn/isa.hpp"

#include <dnnl.hpp>

namespace ringtrain::onednn {

namespace {

unsigned bits_of(dnnl::cpu_isa set) { return static_cast<unsigned>(set); }

// By bits, because each newer set holds the older ones: so sets to come are served too.
bool holds(dnnl::cpu_isa set) {
  return (bits_of(dnnl::get_effective_cpu_isa()) & bits_of(set)) == bits_of(set);
}

}  // namespace

Isa effective_isa() {
  constexpr unsigned no_limit = 0;  // cpu_isa::all in oneDNN 2, isa_default in oneDNN 3
  if (bits_of(dnnl::get_effective_cpu_isa()) == no_limit || holds(dnnl::cpu_isa::avx512_core))
    return Isa::avx512;
  return holds(dnnl::cpu_isa::avx2) ? Isa::avx2 : Isa::baseline;
}

// AMX comes with AVX512_BF16.
bool multiplies_bf16() { return holds(dnnl::cpu_isa::avx512_core_bf16); }

}  // namespace ringtrain::onednn
