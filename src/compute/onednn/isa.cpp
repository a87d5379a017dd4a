#include "compute/onednn/isa.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <dnnl.hpp>

namespace ringtrain::compute::onednn {

namespace {

unsigned bits_of(dnnl::cpu_isa set) { return static_cast<unsigned>(set); }

// By bits, because each newer set holds the older ones: so sets to come are served too.
bool holds(dnnl::cpu_isa set) {
  return (bits_of(dnnl::get_effective_cpu_isa()) & bits_of(set)) == bits_of(set);
}

// What the CPU has counts then. It is cpu_isa::all in oneDNN 2, isa_default in oneDNN 3.
bool is_unlimited() { return bits_of(dnnl::get_effective_cpu_isa()) == 0; }

// Linux gives a process AMX's registers when it asks for them (arch/x86/xstate.rst).
bool permit_amx() {
  constexpr int request = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return __builtin_cpu_supports("amx-bf16") && syscall(SYS_arch_prctl, request, tile_data) == 0;
}

}  // namespace

Isa effective_isa() {
  if (is_unlimited() || holds(dnnl::cpu_isa::avx512_core)) return Isa::avx512;
  return holds(dnnl::cpu_isa::avx2) ? Isa::avx2 : Isa::baseline;
}

// AMX comes with AVX512_BF16.
bool multiplies_bf16() {
  return is_unlimited() ? __builtin_cpu_supports("avx512bf16")
                        : holds(dnnl::cpu_isa::avx512_core_bf16);
}

bool has_amx_bf16() {
  static const bool permitted = permit_amx();
  return permitted && (is_unlimited() ? __builtin_cpu_supports("amx-bf16")
                                      : holds(dnnl::cpu_isa::avx512_core_amx));
}

bool has_fast_vector_bf16() { return multiplies_bf16() && !__builtin_cpu_supports("avx512fp16"); }

}  // namespace ringtrain::compute::onednn
