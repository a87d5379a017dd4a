#include "compute/onednn/isa.hpp"

#include <dnnl.hpp>

namespace ringtrain::onednn {

Isa effective_isa() {
  // By bits, because each newer set holds the older ones: so sets to come are served too.
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto holds = [&](dnnl::cpu_isa set) {
    return (isa & static_cast<unsigned>(set)) == static_cast<unsigned>(set);
  };
  constexpr unsigned no_limit = 0;  // cpu_isa::all in oneDNN 2, isa_default in oneDNN 3
  if (isa == no_limit || holds(dnnl::cpu_isa::avx512_core)) return Isa::avx512;
  return holds(dnnl::cpu_isa::avx2) ? Isa::avx2 : Isa::baseline;
}

}  // namespace ringtrain::onednn
