#include "support/host_nccl/group.hpp"

#include <cuda_runtime_api.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "support/host_gpu/host_gpu.hpp"

namespace ringtrain::host_nccl {
namespace {

using namespace std::chrono_literals;

// NCCL takes ranks with equal names for one.
std::string name_of_gpu(int device) {
  char host[64] = {}, bus[32] = {};
  ::gethostname(host, sizeof host - 1);
  cudaDeviceGetPCIBusId(bus, sizeof bus, device);
  const char* const named = std::getenv("NCCL_HOSTID");
  return std::string(named == nullptr ? host : named).substr(0, 100) + " " + bus;
}

// Without NVLink a connection tells of the end of its other side.
bool links_tell() { return std::getenv("SIMULATED_NCCL_SILENT") == nullptr; }

}  // namespace

void complain(const std::string& what) {
  std::fprintf(stderr, "simulated NCCL: %s\n", what.c_str());
}

Group::Group(const std::string& name, int rank, int size, int device, bool blocking)
    : rank_(rank),
      size_(size),
      device_(device),
      blocking_(blocking),
      fault_(Fault::of(rank)),
      memory_(name) {
  calls_.emplace_back([this, gpu = name_of_gpu(device)] { join(gpu); });
  thread_ = std::thread([this] { work(); });
}

void Group::work() {
  cudaSetDevice(device_);
  std::unique_lock lock(mutex_);
  while (!ends_) {
    called_.wait_for(lock, 2ms, [this] { return ends_ || !calls_.empty(); });
    std::function<void()> call;
    if (!calls_.empty()) {
      call = std::move(calls_.front());
      calls_.pop_front();
    }
    lock.unlock();
    if (call) {
      call();
      call = nullptr;  // with the group that it holds
      ncclResult_t under_way = ncclInProgress;
      state_.compare_exchange_strong(under_way, ncclSuccess);
    }
    host_gpu::go_on();
    lock.lock();
  }
}

void Group::end() {
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
  }
  called_.notify_one();
  if (thread_.joinable()) thread_.join();
  if (std::getenv("SIMULATED_NCCL_TELLS") != nullptr)
    std::fprintf(stderr, "nccl: a communicator of rank %d has made %d collectives\n", rank_,
                 static_cast<int>(begun_));
}

std::string Group::last_error() const {
  const std::scoped_lock lock(mutex_);
  return last_error_;
}

void Group::fail(ncclResult_t result, const std::string& why) {
  const std::scoped_lock lock(mutex_);
  const ncclResult_t now = state_;
  if (now != ncclSuccess && now != ncclInProgress) return;
  last_error_ = why;
  state_ = result;
}

ncclResult_t Group::ready() {
  const ncclResult_t now = state_;
  if (now != ncclInProgress) return now;
  complain("a call before the call before was done");
  return ncclInvalidArgument;
}

ncclResult_t Group::answer(ncclResult_t taken) const {
  while (blocking_ && taken == ncclInProgress && !aborted_) {
    std::this_thread::sleep_for(20us);
    taken = state_;
  }
  return taken;
}

bool Group::blocks_for_ever() {
  if (!blocking_ || !fault_.is(Fault::Kind::block, ++calls_made_)) return false;
  while (!aborted_) std::this_thread::sleep_for(1ms);
  return true;
}

ncclResult_t Group::start(std::function<void()> run) {
  {
    const std::scoped_lock lock(mutex_);
    if (const ncclResult_t now = state_; now != ncclSuccess) return now;
    state_ = ncclInProgress;
    calls_.push_back(std::move(run));
  }
  called_.notify_one();
  return ncclInProgress;
}

// Ends without them once somebody gives up.
bool Group::wait_for_ranks(const std::function<bool(const RankState&)>& is_there) {
  for (int rank = 0; rank < size_; ++rank)
    while (!is_there(memory_.rank(rank))) {
      if (aborted_) return false;
      host_gpu::go_on();
      std::this_thread::sleep_for(500us);
    }
  return true;
}

void Group::join(const std::string& gpu) {
  if (fault_.kind == Fault::Kind::late) {
    while (!aborted_) std::this_thread::sleep_for(1ms);
    return;
  }
  me().size = size_;
  std::strncpy(me().gpu, gpu.c_str(), sizeof RankState::gpu - 1);
  me().process = ::getpid();
  const bool all = wait_for_ranks([](const RankState& other) { return other.process != 0; });
  if (rank_ == 0) memory_.unlink();
  if (all) check_gpus();
}

void Group::check_gpus() {
  for (int rank = 0; rank < size_; ++rank) {
    const RankState& other = memory_.rank(rank);
    if (other.size != size_) fail(ncclInvalidArgument, "ranks want communicators of other sizes");
    if (rank != rank_ && std::strcmp(other.gpu, me().gpu) == 0)
      fail(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(rank_) +
                                 " and rank " + std::to_string(rank) + " both on " + me().gpu);
  }
}

void Group::look_for_ends() {
  if (!links_tell()) return;
  for (int rank = 0; rank < size_; ++rank)
    if (::kill(memory_.rank(rank).process, 0) != 0 && errno == ESRCH)
      fail(ncclRemoteError, "connection closed by rank " + std::to_string(rank));
}

ncclResult_t Group::finalize() {
  return start([this] {
    while (live_ > 0 && !aborted_) {
      host_gpu::go_on();
      std::this_thread::sleep_for(500us);
    }
    me().finished = true;
    wait_for_ranks([](const RankState& other) { return other.finished.load(); });
  });
}

void Group::abort() {
  aborted_ = true;
  while (live_ > 0 || fault_.kind == Fault::Kind::stuck) std::this_thread::sleep_for(500us);
  end();
}

}  // namespace ringtrain::host_nccl
