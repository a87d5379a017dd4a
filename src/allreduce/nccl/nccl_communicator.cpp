#include "allreduce/nccl/nccl_communicator.hpp"

namespace ringtrain::allreduce {

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclApi> calls, const NcclRank& me,
                                   const NcclId& id, const GpuSums& sums)
    : Communicator({.rank = me.rank, .size = me.size, .overlaps = true}),
      calls_(std::move(calls)),
      me_(me),
      sums_(sums),
      stream_(*calls_, calls_->stream_create()),
      produced_(*calls_, calls_->event_create()),
      summed_(*calls_, calls_->event_create()),
      group_(me.size > 1 ? std::make_unique<NcclGroup>(calls_, me, id) : nullptr),
      memory_(*calls_, stream_.get(), group_.get(), sums.register_memory) {
  if (sums.rounding != nullptr) halves_.emplace(*sums.rounding, memory_, sums.rounded);
}

void NcclCommunicator::follow_compute() {
  calls_->event_record(produced_.get(), compute());
  calls_->stream_wait_event(stream_.get(), produced_.get());
}

void NcclCommunicator::broadcast(View values, int root) {
  if (!group_ || values.size() == 0) return;
  follow_compute();
  group_->call("ncclBroadcast", [&](NcclComm comm) {
    return calls_->broadcast(values.data(), values.size(), root, comm, stream_.get());
  });
  calls_->event_record(summed_.get(), stream_.get());
  group_->wait("broadcast between GPUs", [this] { return calls_->event_query(summed_.get()); });
}

// Averages, because sums of fp16 overflow; ncclAvg divides each number before it adds. Each rank's
// part is small where ranks are many. Times the ranks it is as large as one rank's gradients alone
// would be, so that averages lose no more small numbers than sums.
void NcclCommunicator::start_allreduce(View values, const SumOptions& options) {
  refuse_hook(options);
  if (values.size() == 0) return;
  if (options.wire == Element::fp32)
    return start(values.data(), values.size(), Element::fp32, Reduction::sum);
  expects(halves_.has_value(), "NcclCommunicator: GpuSums::rounding for 16 bits");
  const NarrowView half = halves_->round(static_cast<float>(size()), values, options.wire);
  start(half.data(), half.size(), half.element(), Reduction::average);
}

void NcclCommunicator::start(void* numbers, std::size_t count, Element element,
                             Reduction reduction) {
  if (!group_) return;
  follow_compute();
  in_flight_ = true;
  group_->call("ncclAllReduce", [&](NcclComm comm) {
    return calls_->all_reduce(numbers, count, element, reduction, comm, stream_.get());
  });
}

// Without a sum the stream is not part of the capture, where there is one, and must not be waited
// for.
void NcclCommunicator::finish() {
  if (in_flight_) {
    calls_->event_record(summed_.get(), stream_.get());
    calls_->stream_wait_event(compute(), summed_.get());
    in_flight_ = false;
  }
  if (halves_) halves_->widen();
}

void NcclCommunicator::check() {
  if (group_) group_->check();
}

void NcclCommunicator::close() {
  expects(!in_flight_, "NcclCommunicator: close() after finish()");
  memory_.deregister_all();
  if (group_) group_->close();
}

void NcclCommunicator::abort() noexcept {
  if (group_) group_->cancel();
}

}  // namespace ringtrain::allreduce
