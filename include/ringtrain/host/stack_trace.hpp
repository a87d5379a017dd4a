#pragma once
#include <string>

namespace ringtrain::host {

/// Call once, early, on the main thread, before any thread that is to be looked at hangs: loads
/// what a stack trace needs, so that taking one allocates nothing in the thread that is looked at.
void prepare_stacks();

/// What every thread of this process is in, the main thread first: its name and the functions on
/// its stack, innermost first. A thread that does not answer within 0.2 s is in the kernel: then
/// where, as /proc tells. One that computes is not asked unless it is the main one: its stack
/// pointer may lead into a buffer. After 2 s the rest is left out. One thread may ask at a time;
/// not the main thread.
std::string all_stacks();
/// The main thread's alone.
std::string main_stack();

/// Gives the main thread, which calls it, a stack of its own for the handlers of signals that ask
/// for one (SA_ONSTACK). The kernel would put what it saves below the stack pointer, and oneDNN's
/// matrix products let that point into buffers of the heap. May be called again.
void use_signal_stack();

}  // namespace ringtrain::host
