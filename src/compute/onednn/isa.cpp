#include "compute/onednn/isa.hpp"

#include <dnnl.hpp>

namespace ringtrain::onednn {

Isa effective_isa() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::all:
    case dnnl::cpu_isa::avx512_core:
    case dnnl::cpu_isa::avx512_core_vnni:
    case dnnl::cpu_isa::avx512_core_bf16:
      return Isa::avx512;
    case dnnl::cpu_isa::avx2:
    case dnnl::cpu_isa::avx2_vnni:
      return Isa::avx2;
    default:
      return Isa::baseline;
  }
}

}  // namespace ringtrain::onednn
