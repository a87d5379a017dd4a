#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

struct CUstream_st;

namespace ringtrain::compute::cuda {
class OperationGraph;
}

// A GPU that is not there. Linked before the libraries, host_gpu takes the place of the CUDA
// runtime, of our kernels' launches and of make_cudnn_runner(), so that all host code of the CUDA
// backend runs in tests, and work that is not ordered as it must be shows as wrong results:
// - Nothing runs before somebody waits, or, with several ranks, before go_on(). Then queued work
// runs in an order drawn from a seed, bound
//   by stream order and events alone; the nodes of a graph likewise.
// - Kernels run their work's own code on the CPU (host_kernels/), cuDNN's engines as plain loops.
// - Memory is full of what is no number at first. Device memory that the host touches, or that is
//   touched behind its end, ends the test with a segmentation fault; SIMULATED_GPU_OPEN does
//   without.
// - Freeing memory while work is queued throws Error; during another exception the work is dropped.
// - What CUDA allows but we do not want, or what is wrong without an error code, is a complaint.
// One device for all threads; calls are serialised. Operations never overlap in time.
namespace ringtrain::host_gpu {

/// What was asked of the GPU since set_seed().
struct Counts {
  std::size_t host_waits = 0;  ///< for a stream, an event, the device or a blocking copy
  std::size_t kernels = 0;     ///< ours, launched outside of captures
  std::size_t engines = 0;     ///< cuDNN's, likewise
  std::size_t graphs = 0;      ///< launches of captured graphs
  std::size_t copies = 0;      ///< queued outside of captures
  std::size_t allocations = 0;
  std::size_t pins = 0;        ///< of memory that was there
  std::size_t live_bytes = 0;  ///< of device memory now, whatever the seed
};
Counts counts();

/// Microseconds that a run of a cuDNN engine takes, beside the one of every operation; by the
/// engine's name and its place among cuDNN's proposals. Throws Error where it cannot be executed.
using EngineTime = std::function<std::uint64_t(const std::string& name, std::size_t place)>;
/// Of runs that are queued from now on. Empty, as at first: the later its place, the faster is one.
void set_engine_time(EngineTime time);

/// Gets what the GPU does while it does it, captured or not: "engine 3" is cuDNN's proposal at
/// place 3, "fill 512" writes so many bytes, "copy 512" moves them.
using Observer = std::function<void(const std::string& what)>;
/// Empty, as at first: nobody.
void set_observer(Observer observer);
/// What runs takes so many microseconds longer. For observers.
void take(std::uint64_t microseconds);

/// What a run of a cuDNN engine does instead of its work.
enum class EngineFault {
  none,
  silent,   ///< ends well and leaves the first of its results as it was
  off,      ///< ends well, and every ninth number of its first result is a tenth too large
  beside,   ///< ends well, and writes behind its first result, too
  refused,  ///< throws Error
};
/// By what the engine is to do, and its place among cuDNN's proposals.
using EngineFaultOf =
    std::function<EngineFault(const compute::cuda::OperationGraph&, std::size_t place)>;
/// Of runs that are queued from now on. Empty, as at first: none.
void set_engine_fault(EngineFaultOf fault);

/// Whether captures fail, as where something in them cannot be captured. Not at first.
void refuse_captures(bool refuse);

/// Bytes of device memory: what is asked for beyond them is refused.
void set_memory(std::size_t bytes);
inline constexpr std::size_t whole_bytes = std::size_t(80) << 30;  ///< at first

/// Starts anew: what runs next is drawn from `seed`; counts and complaints are forgotten. Memory,
/// streams and queued work stay.
void set_seed(std::uint64_t seed);

/// Queues or captures work on a stream that may have to wait for others: it is asked again until it
/// answers that it is done. Other streams go on meanwhile. False where CUDA would refuse it.
bool attempt(CUstream_st* stream, const char* name, std::function<bool()> work);
/// The GPU goes on a little by itself, unless another thread is at it.
void go_on();

/// What the program did wrong since set_seed(), in words. A test wants none.
std::vector<std::string> complaints();

}  // namespace ringtrain::host_gpu
