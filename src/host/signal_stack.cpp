#include "host/signal_stack.hpp"

#include <array>
#include <csignal>
#include <cstddef>

namespace ringtrain {

void use_signal_stack() {
  alignas(64) static std::array<std::byte, 256 << 10> memory;
  stack_t stack{};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  ::sigaltstack(&stack, nullptr);
}

}  // namespace ringtrain
