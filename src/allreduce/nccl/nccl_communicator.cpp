#include "allreduce/nccl/nccl_communicator.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <memory>
#include <sstream>

#include "ringtrain/allreduce/nccl/gpu_assignment.hpp"

namespace ringtrain::allreduce {

Buffer NcclMemory::allocate(std::size_t count) {
  if (count == 0) return Buffer(View(), [](float*) {});
  const std::size_t bytes = count * sizeof(float);
  auto* data = static_cast<float*>(calls_.mem_alloc(bytes, is_shared()));
  Buffer buffer(View(data, count), [this](float* released) { release(released); });
  calls_.zero(data, bytes, stream_);
  if (!is_shared()) return buffer;
  void* handle = nullptr;
  group_->call("ncclCommRegister",
               [&](NcclComm comm) { return calls_.comm_register(comm, data, bytes, handle); });
  handles_.emplace(data, handle);
  return buffer;
}

void NcclMemory::deregister(void* handle) {
  group_->call("ncclCommDeregister",
               [&](NcclComm comm) { return calls_.comm_deregister(comm, handle); });
}

void NcclMemory::deregister_all() {
  for (const auto& [data, handle] : handles_) deregister(handle);
  handles_.clear();
}

void NcclMemory::release(void* data) noexcept {
  if (group_ != nullptr && group_->is_cancelled()) return;
  try {
    if (const auto found = handles_.extract(data)) deregister(found.mapped());
    calls_.mem_free(data, is_shared());
  } catch (const std::exception&) {  // that has cancelled the group, and its next use says so
  }
}

HalfBuffer::HalfBuffer(Rounding& rounding, Memory& memory, std::size_t count)
    : rounding_(rounding), count_(count), memory_(memory.allocate((count + 1) / 2)), free_(count) {}

// From the end, as gradients become final: what lies together there lies together here, and is
// widened by one call.
NarrowView HalfBuffer::round(float factor, View values, Element element) {
  expects(values.size() <= free_, "HalfBuffer: room for all numbers until widen()");
  free_ -= values.size();
  auto* const all = reinterpret_cast<std::uint16_t*>(memory_.view().data());
  const NarrowView halves(element, all + free_, values.size());
  rounding_.round(factor, values, halves);
  if (!rounded_.empty() && rounded_.back().values.data() == values.data() + values.size() &&
      rounded_.back().halves.element() == element) {
    Rounded& behind = rounded_.back();
    const std::size_t size = values.size() + behind.values.size();
    behind = {{values.data(), size}, {element, halves.data(), size}};
  } else {
    rounded_.push_back({values, halves});
  }
  return halves;
}

void HalfBuffer::widen() {
  for (const Rounded& each : rounded_) rounding_.widen(each.halves, each.values);
  rounded_.clear();
  free_ = count_;
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclApi> calls, const NcclRank& me,
                                   const NcclId& id, const GpuSums& sums,
                                   std::string why_not_captured)
    : Communicator({.rank = me.rank,
                    .size = me.size,
                    .overlaps = true,
                    .why_not_captured = std::move(why_not_captured)}),
      calls_(std::move(calls)),
      me_(me),
      sums_(sums),
      stream_(*calls_, calls_->stream_create()),
      produced_(*calls_, calls_->event_create()),
      summed_(*calls_, calls_->event_create()),
      group_(me.size > 1 ? std::make_unique<NcclGroup>(calls_, me, id, sums.on_stuck) : nullptr),
      memory_(*calls_, stream_.get(), group_.get(), sums.register_memory) {
  if (sums.rounding != nullptr) round_by(*sums.rounding, sums.rounded);
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

View NcclCommunicator::own_part(View values) const {
  const auto ranks = static_cast<std::size_t>(size());
  expects(values.size() % ranks == 0, "NcclCommunicator: equal parts");
  const std::size_t part = values.size() / ranks;
  return values.slice(static_cast<std::size_t>(rank()) * part, part);
}

void NcclCommunicator::start_reduce_scatter(View values) {
  const View own = own_part(values);
  if (!group_ || own.size() == 0) return;
  follow_compute();
  in_flight_ = true;
  group_->call("ncclReduceScatter", [&](NcclComm comm) {
    return calls_->reduce_scatter(values.data(), own.data(), own.size(), comm, stream_.get());
  });
}

// As one group, which costs one launch.
void NcclCommunicator::start_allgather(std::span<const View> views) {
  std::vector<std::pair<View, View>> parts;  // own, all
  for (const View& all : views)
    if (const View own = own_part(all); own.size() > 0) parts.emplace_back(own, all);
  if (!group_ || parts.empty()) return;
  follow_compute();
  in_flight_ = true;
  group_->call_together("ncclAllGather", parts, [this](const auto& part, NcclComm comm) {
    const auto& [own, all] = part;
    return calls_->all_gather(own.data(), all.data(), own.size(), comm, stream_.get());
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

// Other ranks may wait in their captured sum for one whose capture has failed: not for long.
std::string NcclCommunicator::try_capture() {
  if (!group_) return "";
  const Buffer one = memory_.allocate(1);
  start_allreduce(one, {});
  finish();
  calls_->event_record(summed_.get(), compute());
  group_->wait("first sum between GPUs", [this] { return calls_->event_query(summed_.get()); });
  std::string why;
  const auto attempt = [&why](const auto& act) {
    try {
      act();
    } catch (const Error& failure) {
      if (why.empty()) why = failure.what();
    }
  };
  attempt([this] { calls_->begin_capture(compute()); });
  if (!why.empty()) return why;
  if (!group_->blocks()) group_->set_deadline(std::min(20.0, me_.deadline_s));
  attempt([&] {
    start_allreduce(one, {});
    finish();
  });
  attempt([this] { calls_->end_capture(compute()); });
  if (!group_->blocks()) group_->set_deadline(me_.deadline_s);
  in_flight_ = false;
  return why;
}

void NcclCommunicator::round_by(Rounding& rounding, std::size_t count) {
  halves_.emplace(rounding, memory_, count);
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

namespace {

// What each rank sees, known to all: one line a rank.
std::vector<std::vector<std::string>> visible_to_all(const std::vector<std::string>& mine,
                                                     const MpiSession& session) {
  const auto lines = session.gather(fmt::format("{}", fmt::join(mine, " ")));
  std::istringstream all(session.broadcast(fmt::format("{}\n", fmt::join(lines, "\n"))));
  std::vector<std::vector<std::string>> visible;
  for (std::string line; std::getline(all, line);) {
    std::istringstream words(line);
    visible.emplace_back(std::istream_iterator<std::string>(words),
                         std::istream_iterator<std::string>());
  }
  return visible;
}

NcclId agree_on_id(NcclApi& calls, const MpiSession& session) {
  NcclId id{};
  if (session.size() == 1) return id;
  NcclResult result = NcclResult::success;
  if (session.rank() == 0) result = calls.get_unique_id(id);
  if (result != NcclResult::success) throw Error("ncclGetUniqueId", calls.words(result, nullptr));
  session.broadcast(id, 0);
  return id;
}

// The first text of the ranks' that is not empty, on all of them. Collective.
std::string first_of_all(const std::string& mine, const MpiSession& session) {
  const std::vector<std::string> texts = session.gather(mine);
  const auto found = std::ranges::find_if_not(texts, &std::string::empty);
  return session.broadcast(found == texts.end() ? std::string() : *found);
}

}  // namespace

// To NCCL a bare name is how names begin: eth1 would be eth10, too.
int choose_gpu(const MpiSession& session, bool same_bits,
               const std::vector<std::string>& interfaces, NcclApi& calls) {
  const auto visible = visible_to_all(calls.visible_devices(), session);
  const GpuAssignment place = assign_gpus(session.rank(), session.host_of(), visible, same_bits);
  if (!interfaces.empty())
    ::setenv("NCCL_SOCKET_IFNAME", fmt::format("={}", fmt::join(interfaces, ",")).c_str(), 0);
  for (const auto& [name, value] : place.environment) ::setenv(name.c_str(), value.c_str(), 0);
  calls.set_device(place.device);
  return place.device;
}

std::vector<std::string> visible_gpus() try {
  return make_nccl_calls()->visible_devices();
} catch (const Error&) {
  return {};
}

std::vector<std::string> gpus_of_host(const MpiSession& session) {
  const auto visible = visible_to_all(visible_gpus(), session);
  const std::vector<int>& host_of = session.host_of();
  std::vector<std::string> gpus;
  for (int r = 0; r < session.size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    if (host_of[at] != host_of[static_cast<std::size_t>(session.rank())]) continue;
    const GpuAssignment place = assign_gpus(r, host_of, visible, false);
    gpus.push_back(visible[at][static_cast<std::size_t>(place.device)]);
  }
  return gpus;
}

int choose_gpu(const MpiSession& session, bool same_bits,
               const std::vector<std::string>& interfaces) {
  return choose_gpu(session, same_bits, interfaces, *make_nccl_calls());
}

std::unique_ptr<Communicator> make_nccl_communicator(const MpiSession& session, const GpuSums& sums,
                                                     std::shared_ptr<NcclApi> calls) {
  // Also where the user has set it: two communicators without an order may wait for each other.
  if (sums.beside_others) ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
  const NcclRank me{session.rank(), session.size(), session.host(), sums.device, sums.deadline_s};
  const auto make = [&](const GpuSums& how, const std::string& why_not_captured) {
    const NcclId id = agree_on_id(*calls, session);
    session.barrier_asleep();  // NCCL's deadline is not for a rank that still loads libraries
    return std::make_unique<NcclCommunicator>(calls, me, id, how, why_not_captured);
  };
  if (!sums.captured) return make(sums, "");
  GpuSums exact = sums;  // memory of one that is given up stays taken
  exact.rounding = nullptr;
  auto tried = make(exact, "");
  const std::string why = first_of_all(tried->try_capture(), session);
  if (!why.empty()) {
    tried.reset();
    return make(sums, why);
  }
  if (sums.rounding != nullptr) tried->round_by(*sums.rounding, sums.rounded);
  return tried;
}

}  // namespace ringtrain::allreduce
