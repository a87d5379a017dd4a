#include "train/state/shard_transfer.hpp"

#include <fmt/core.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "monitor/channel/asio.hpp"
#include "monitor/channel/socket.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::train {

using asio::use_awaitable;
using asio::ip::tcp;
using namespace std::chrono_literals;

// A connection on which nothing is acknowledged for so long is given up for another one: a firewall
// may have forgotten it, which neither end is told.
constexpr auto unacknowledged_time = 5s;

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

  void start(std::uint64_t save, std::span<const float> values, std::function<bool()> ready) {
    hello_.save = save;
    hello_.count = values.size();
    asio::co_spawn(context, bring(save, values, std::move(ready)), asio::detached);
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

  bool is_ready(const std::function<bool()>& ready, bool& failed) const {
    try {
      return !ready || ready();
    } catch (const Error& failure) {
      if (warn_) warn_(fmt::format("its slice of a checkpoint is not sent: {}", failure.what()));
      failed = true;
      return true;
    }
  }

  asio::awaitable<void> bring(std::uint64_t save, std::span<const float> values,
                              std::function<bool()> ready) {
    asio::steady_timer timer(context);
    bool failed = false;
    while (hello_.save == save && !is_ready(ready, failed)) {
      timer.expires_after(1ms);
      co_await timer.async_wait(use_awaitable);
    }
    if (failed) {
      busy = false;
      co_return;
    }
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
    monitor::end_when_unacknowledged(*socket, unacknowledged_time);
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

void ShardSender::send(std::uint64_t save, std::span<const float> values,
                       std::function<bool()> ready) {
  impl_->busy = true;
  asio::post(impl_->context, [this, save, values, ready = std::move(ready)]() mutable {
    impl_->start(save, values, std::move(ready));
  });
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

using asio::use_awaitable;
using asio::ip::tcp;

// All but `missing` belongs to the thread.
class ShardReceiver::Impl {
 public:
  Impl(const monitor::JobToken& token, int ranks, const std::vector<std::string>& addresses,
       monitor::RankListener::Tell tell)
      : listener(
            context, monitor::RankListener::Sign{token, monitor::Service::slices, ranks}, addresses,
            [this](tcp::socket socket, std::size_t rank) {
              asio::co_spawn(context, serve(std::make_shared<tcp::socket>(std::move(socket)), rank),
                             asio::detached);
            },
            std::move(tell)) {
    thread_ = std::thread([this] {
      ::prctl(PR_SET_NAME, "slices");
      context.run();
    });
  }
  ~Impl() {
    context.stop();
    thread_.join();
  }

  void expect(std::uint64_t save, std::vector<SlicePlaces> places) {
    std::size_t count = 0;
    for (const SlicePlaces& place : places) count += !place.empty();
    left = count;
    asio::post(context, [this, save, places = std::move(places)]() mutable {
      save_ = save;
      places_ = std::move(places);
      under_way_.assign(places_.size(), nullptr);
    });
  }

  // Waits for the thread, which waits for nothing.
  template <class Work>
  void on_thread(const Work& work) {
    std::promise<void> done;
    asio::post(context, [&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

  std::vector<int> missing() {
    std::vector<int> ranks;
    on_thread([&] {
      for (std::size_t r = 0; r < places_.size(); ++r)
        if (!places_[r].empty()) ranks.push_back(static_cast<int>(r));
    });
    return ranks;
  }

  void forget() {
    on_thread([&] {
      for (const Socket& socket : under_way_) close(socket);
      under_way_.assign(under_way_.size(), nullptr);
      for (SlicePlaces& places : places_) places.clear();
      left = 0;
    });
  }

  asio::io_context context{1};
  monitor::RankListener listener;
  std::atomic<std::size_t> left{0};  // slices that are to come

 private:
  using Socket = std::shared_ptr<tcp::socket>;

  static void close(const Socket& socket) {
    asio::error_code ignored;
    if (socket != nullptr) socket->close(ignored);
  }

  asio::awaitable<void> serve(Socket socket, std::size_t rank) {
    monitor::end_when_unacknowledged(*socket, unacknowledged_time);
    ShardHello hello;
    asio::error_code failure;
    co_await asio::async_read(*socket, asio::buffer(&hello, sizeof hello),
                              asio::redirect_error(use_awaitable, failure));
    if (failure) co_return;
    const ShardAnswer first = answer_to(hello, rank);
    if (!co_await send(socket, first) || first != ShardAnswer::wanted) co_return;
    if (co_await take(socket, hello, rank)) co_await send(socket, ShardAnswer::taken);
  }

  ShardAnswer answer_to(const ShardHello& hello, std::size_t rank) const {
    if (hello.save > save_) return ShardAnswer::early;
    const bool wanted = hello.save == save_ && rank < places_.size() && !places_[rank].empty();
    if (!wanted) return ShardAnswer::unwanted;
    std::size_t count = 0;
    for (const std::span<float> place : places_[rank]) count += place.size();
    return count == hello.count ? ShardAnswer::wanted : ShardAnswer::unwanted;
  }

  static asio::awaitable<bool> send(const Socket& socket, ShardAnswer answer) {
    asio::error_code failure;
    co_await asio::async_write(*socket, asio::buffer(&answer, sizeof answer),
                               asio::redirect_error(use_awaitable, failure));
    co_return !failure;
  }

  // Whether all of it came. One that tries again is taken for lost where it was before.
  asio::awaitable<bool> take(Socket socket, ShardHello hello, std::size_t rank) {
    if (answer_to(hello, rank) != ShardAnswer::wanted) co_return false;  // no longer
    close(std::exchange(under_way_[rank], socket));
    std::vector<asio::mutable_buffer> places;
    for (const std::span<float> place : places_[rank])
      places.push_back(asio::buffer(place.data(), place.size_bytes()));
    asio::error_code failure;
    co_await asio::async_read(*socket, places, asio::redirect_error(use_awaitable, failure));
    if (save_ != hello.save || under_way_[rank] != socket) co_return false;
    under_way_[rank] = nullptr;
    if (failure) co_return false;
    places_[rank].clear();
    --left;
    co_return true;
  }

  std::uint64_t save_ = 0;
  std::vector<SlicePlaces> places_;  // by rank; empty: nothing is to come
  std::vector<Socket> under_way_;    // by rank; null: none
  std::thread thread_;
};

ShardReceiver::ShardReceiver(const monitor::JobToken& token, int ranks,
                             const std::vector<std::string>& addresses,
                             monitor::RankListener::Tell tell) try
    : impl_(std::make_unique<Impl>(token, ranks, addresses, std::move(tell))) {
} catch (const std::system_error& failure) {
  throw Error("listen for the other ranks", failure.what());
}
ShardReceiver::~ShardReceiver() = default;

std::vector<monitor::Endpoint> ShardReceiver::endpoints() const {
  return impl_->listener.endpoints();
}
void ShardReceiver::expect(std::uint64_t save, std::vector<SlicePlaces> places) {
  impl_->expect(save, std::move(places));
}
bool ShardReceiver::complete() const { return impl_->left == 0; }
std::vector<int> ShardReceiver::missing() const { return impl_->missing(); }
void ShardReceiver::forget() { impl_->forget(); }

}  // namespace ringtrain::train
