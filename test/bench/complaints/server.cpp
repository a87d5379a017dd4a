#include "bench/complaints/server.hpp"

#include <atomic>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "bench/complaints/or_end.hpp"

namespace ringtrain {
namespace {

class Server {
 public:
  Server(const train::RunPlan& plan, const ServerSettings& settings);
  void run(const Door& door);

 private:
  void take_gradients(int worker, const Stream& stream);
  void give_weights(int worker, const Stream& stream) const;
  void wait_for_step(int worker, int step) const;

  const ServerSettings& settings_;
  const int steps_;
  Variables variables_;
  std::vector<std::atomic<int>> ended_;  // by worker: its steps whose end was said and heeded
};

Server::Server(const train::RunPlan& plan, const ServerSettings& settings)
    : settings_(settings),
      steps_(static_cast<int>(*plan.options.steps)),
      variables_(plan, settings.workers, settings.updates),
      ended_(settings.workers) {}

// Each worker's, once all are there.
std::map<int, Stream> await_workers(int workers, const Door& door) {
  std::map<int, Stream> streams;
  while (std::ssize(streams) < workers) {
    Stream stream = door.accept();
    Greeting greeting;
    stream.receive(std::as_writable_bytes(std::span(&greeting, 1)));
    expects(greeting.worker >= 0 && greeting.worker < workers, "workers count from 0");
    expects(streams.emplace(greeting.worker, std::move(stream)).second,
            "each worker has a number of its own");
  }
  return streams;
}

void Server::run(const Door& door) {
  const std::map<int, Stream> streams = await_workers(settings_.workers, door);
  {
    std::vector<std::jthread> threads;
    for (const auto& [worker, stream] : streams) {
      threads.emplace_back([&] { or_end([&] { take_gradients(worker, stream); }); });
      threads.emplace_back([&] { or_end([&] { give_weights(worker, stream); }); });
    }
  }
  if (!settings_.save_to.empty()) variables_.save(settings_.save_to);
}

void Server::take_gradients(int worker, const Stream& stream) {
  for (int step = 0; step < steps_; ++step) {
    for (std::size_t v = variables_.count(); v-- > 0;) {
      stream.receive(std::as_writable_bytes(variables_.inbox(worker, v)));
      variables_.push(worker, v);
    }
    EndOfStep end;
    stream.receive(std::as_writable_bytes(std::span(&end, 1)));
    if (end.save) variables_.save(settings_.save_to);
    ++ended_[worker];
    ended_[worker].notify_all();
  }
}

// `step` 0: the first weights.
void Server::give_weights(int worker, const Stream& stream) const {
  for (int step = 0; step <= steps_; ++step) {
    if (settings_.answers == Answers::by_step) wait_for_step(worker, step);
    for (std::size_t v = variables_.count(); v-- > 0;) {
      variables_.wait_for(worker, v, step);
      stream.send(std::as_bytes(variables_.weights(v)));
    }
  }
}

void Server::wait_for_step(int worker, int step) const {
  for (int now = ended_[worker]; now < step; now = ended_[worker]) ended_[worker].wait(now);
  for (std::size_t v = 0; v < variables_.count(); ++v) variables_.wait_for(worker, v, step);
}

}  // namespace

void serve(const train::RunPlan& plan, const ServerSettings& settings, const Door& door) {
  Server(plan, settings).run(door);
}

}  // namespace ringtrain
