#include "train/state/shard_sender.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "monitor/channel/socket.hpp"
#include "train/state/shard_messages.hpp"

namespace ringtrain::train {

using asio::use_awaitable;
using asio::ip::tcp;
using namespace std::chrono_literals;

// All but `busy` belongs to the thread.
class ShardSender::Impl {
 public:
  Impl(const monitor::JobToken& token, int rank, std::vector<monitor::Endpoint> endpoints,
       std::function<void(const std::string&)> warn)
      : connector_(token, monitor::Service::slices, rank, std::move(endpoints)),
        warn_(std::move(warn)),
        thread_([this] {
          ::prctl(PR_SET_NAME, "slices");
          context.run();
        }) {}
  ~Impl() {
    context.stop();
    thread_.join();
  }

  void start(std::uint64_t save, std::span<const float> values) {
    hello_.save = save;
    hello_.count = values.size();
    asio::co_spawn(context, bring(save, values), asio::detached);
  }

  void drop() {
    hello_.save = 0;
    asio::error_code ignored;
    if (socket_) socket_->close(ignored);
    busy = false;
  }

  asio::io_context context{1};
  std::atomic<bool> busy{false};  // with values

 private:
  using Socket = std::shared_ptr<tcp::socket>;  // of one try, whatever comes after it
  using Said = std::optional<ShardAnswer>;      // by rank 0, at last

  asio::awaitable<void> bring(std::uint64_t save, std::span<const float> values) {
    asio::steady_timer timer(context);
    for (auto pause = 10ms; hello_.save == save; pause = std::min(2 * pause, 1000ms)) {
      const Socket socket = socket_ = std::make_shared<tcp::socket>(context);
      const Said said = co_await try_once(socket, save, values);
      if (said == ShardAnswer::taken || said == ShardAnswer::unwanted) break;
      timer.expires_after(pause);
      co_await timer.async_wait(use_awaitable);
    }
    if (hello_.save == save) busy = false;
  }

  asio::awaitable<Said> try_once(Socket socket, std::uint64_t save, std::span<const float> values) {
    const bool there = co_await connector_.connect(*socket);
    if (const std::string warning = connector_.take_warning(); warn_ && !warning.empty())
      warn_(warning);
    if (!there || hello_.save != save) co_return Said();
    asio::error_code failure;
    co_await asio::async_write(*socket, asio::buffer(&hello_, sizeof hello_),
                               asio::redirect_error(use_awaitable, failure));
    const Said first = co_await next_answer(socket, failure);
    if (first != ShardAnswer::wanted || hello_.save != save) co_return first;
    co_await asio::async_write(*socket, asio::buffer(values.data(), values.size_bytes()),
                               asio::redirect_error(use_awaitable, failure));
    co_return co_await next_answer(socket, failure);
  }

  asio::awaitable<Said> next_answer(Socket socket, asio::error_code& failure) {
    ShardAnswer answer{};
    if (!failure)
      co_await asio::async_read(*socket, asio::buffer(&answer, sizeof answer),
                                asio::redirect_error(use_awaitable, failure));
    co_return failure ? Said() : Said(answer);
  }

  const asio::executor_work_guard<asio::io_context::executor_type> waits_for_more_{
      context.get_executor()};
  Socket socket_;     // of the save under way
  ShardHello hello_;  // of it, too
  monitor::Rank0Connector connector_;
  const std::function<void(const std::string&)> warn_;
  std::thread thread_;
};

ShardSender::ShardSender(const monitor::JobToken& token, int rank,
                         std::vector<monitor::Endpoint> endpoints,
                         std::function<void(const std::string&)> warn)
    : impl_(std::make_unique<Impl>(token, rank, std::move(endpoints), std::move(warn))) {}
ShardSender::~ShardSender() = default;

void ShardSender::send(std::uint64_t save, std::span<const float> values) {
  impl_->busy = true;
  asio::post(impl_->context, [this, save, values] { impl_->start(save, values); });
}

void ShardSender::drop() {
  if (!impl_->busy) return;
  std::promise<void> done;
  asio::post(impl_->context, [&] {
    impl_->drop();
    done.set_value();
  });
  done.get_future().wait();
}

}  // namespace ringtrain::train
