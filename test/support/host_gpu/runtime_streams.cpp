#include "support/host_gpu/device.hpp"

using namespace ringtrain::host_gpu;

namespace {

// What the host may not ask of a stream or event that is part of a capture.
cudaError_t spoil(Capture& capture, cudaError_t code) {
  capture.valid = false;
  return code;
}

cudaError_t wait_event(Device& gpu, cudaStream_t handle, const Event& event) {
  Stream& stream = gpu.scheduler.stream(handle);
  if (event.capture) {
    if (&stream != &gpu.scheduler.stream(nullptr)) return join(stream, event);
    return spoil(*event.capture, cudaErrorStreamCaptureImplicit);
  }
  if (!event.operation) return cudaSuccess;
  if (stream.capture) return spoil(*stream.capture, cudaErrorStreamCaptureIsolation);
  return gpu.submit(handle, "wait for an event", {}, nullptr, {event.operation});
}

void record(Device& gpu, cudaStream_t handle, Event& event) {
  Stream& stream = gpu.scheduler.stream(handle);
  event.capture = stream.capture;
  event.tips = stream.tips;
  event.operation = stream.capture ? nullptr : gpu.scheduler.queue(stream, "record an event", {});
}

// Whether the host may ask how far an event or stream is.
cudaError_t may_ask(Device& gpu, const std::shared_ptr<Capture>& capture, cudaError_t captured) {
  return capture ? spoil(*capture, captured) : gpu.refuse_in_capture();
}

cudaError_t query(Device& gpu, const OperationPtr& last) {
  gpu.glance();
  return !last || last->finished != 0 ? cudaSuccess : cudaErrorNotReady;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call([&](Device& gpu) {
    *stream = static_cast<cudaStream_t>(gpu.scheduler.create((flags & cudaStreamNonBlocking) == 0));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call([&](Device& gpu) {
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) {
      gpu.complaints.push_back("cudaStreamDestroy: of a stream that is part of a capture");
      stream->capture->valid = false;
      std::erase(stream->capture->streams, stream);
    }
    gpu.scheduler.destroy(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call([&](Device& gpu) {
    const Stream& stream = gpu.scheduler.stream(handle);
    const cudaError_t refused = may_ask(gpu, stream.capture, cudaErrorStreamCaptureUnsupported);
    return refused != cudaSuccess ? refused : gpu.wait(stream.last);
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call([&](Device& gpu) {
    const Stream& stream = gpu.scheduler.stream(handle);
    const cudaError_t refused = may_ask(gpu, stream.capture, cudaErrorStreamCaptureUnsupported);
    return refused != cudaSuccess ? refused : query(gpu, stream.last);
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return call(
      [&](Device& gpu) { return flags ? cudaErrorNotSupported : wait_event(gpu, stream, *event); });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return call([&](Device& gpu) {
    return gpu.submit(stream, "host function", [function, data] { function(data); });
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call([&](Device&) {
    *event = new CUevent_st;
    (*event)->timed = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&](Device&) {
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&](Device& gpu) {
    record(gpu, stream, *event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&](Device& gpu) {
    const cudaError_t refused = may_ask(gpu, event->capture, cudaErrorCapturedEvent);
    return refused != cudaSuccess ? refused : gpu.wait(event->operation);
  });
}

// From any thread. But one that has chosen no GPU would make a context on the first.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&](Device& gpu) {
    static_cast<void>(gpu.is_chosen());
    const cudaError_t refused = may_ask(gpu, event->capture, cudaErrorCapturedEvent);
    return refused != cudaSuccess ? refused : query(gpu, event->operation);
  });
}

// An operation takes a microsecond.
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return call([&](Device&) {
    if (!start->timed || !end->timed || !start->operation || !end->operation)
      return cudaErrorInvalidResourceHandle;
    const auto from = start->operation->finished, to = end->operation->finished;
    if (from == 0 || to == 0) return cudaErrorNotReady;
    *ms = static_cast<float>(static_cast<double>(to) - static_cast<double>(from)) / 1000;
    return cudaSuccess;
  });
}

}  // extern "C"
