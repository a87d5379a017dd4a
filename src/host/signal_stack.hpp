#pragma once

namespace ringtrain {

/// Gives the main thread, which calls it, a stack of its own for the handlers of signals that ask
/// for one (SA_ONSTACK). The kernel would put what it saves below the stack pointer, and oneDNN's
/// matrix products let that point into buffers of the heap. May be called again.
void use_signal_stack();

}  // namespace ringtrain
