#include "train/slice_server.hpp"

#include <sys/prctl.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "ringtrain/base/error.hpp"
#include "train/meeting.hpp"
#include "train/side_socket.hpp"
#include "train/slice_messages.hpp"

namespace ringtrain {

using asio::use_awaitable;
using asio::ip::tcp;

// All but `missing` belongs to the thread.
class SliceServer::Impl {
 public:
  explicit Impl(const JobToken& token) : acceptor(listen(context)), token_(token) {
    asio::co_spawn(context, accept_all(), asio::detached);
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
  tcp::acceptor acceptor;
  std::atomic<std::size_t> left{0};  // slices that are to come

 private:
  using Socket = std::shared_ptr<tcp::socket>;

  static void close(const Socket& socket) {
    asio::error_code ignored;
    if (socket != nullptr) socket->close(ignored);
  }

  asio::awaitable<void> accept_all() {
    for (;;) {
      asio::error_code failure;
      tcp::socket socket =
          co_await acceptor.async_accept(asio::redirect_error(use_awaitable, failure));
      if (failure) co_await pause();  // out of descriptors, say
      if (!failure && strangers_ < most_strangers)
        asio::co_spawn(context, serve(std::make_shared<tcp::socket>(std::move(socket))),
                       asio::detached);
    }
  }

  asio::awaitable<void> pause() {
    asio::steady_timer timer(context, std::chrono::milliseconds(100));
    co_await timer.async_wait(use_awaitable);
  }

  asio::awaitable<void> serve(Socket socket) {
    ++strangers_;
    SliceHello hello;
    const bool known = co_await greet(socket, hello);
    --strangers_;
    if (!known) co_return;
    const SliceAnswer first = answer_to(hello);
    if (!co_await send(socket, first) || first != SliceAnswer::wanted) co_return;
    if (co_await take(socket, hello)) co_await send(socket, SliceAnswer::taken);
  }

  // Whether it belongs to the job, and says so in time.
  asio::awaitable<bool> greet(const Socket& socket, SliceHello& hello) {
    asio::steady_timer patience(context, std::chrono::seconds(10));
    patience.async_wait([socket](const asio::error_code& cancelled) {
      if (!cancelled) close(socket);
    });
    asio::error_code failure;
    co_await asio::async_read(*socket, asio::buffer(&hello, sizeof hello),
                              asio::redirect_error(use_awaitable, failure));
    co_return !failure && hello.magic == SliceHello::magic_number && same(hello.token, token_);
  }

  SliceAnswer answer_to(const SliceHello& hello) const {
    if (hello.save > save_) return SliceAnswer::early;
    const bool wanted =
        hello.save == save_ && hello.rank < places_.size() && !places_[hello.rank].empty();
    if (!wanted) return SliceAnswer::unwanted;
    std::size_t count = 0;
    for (const std::span<float> place : places_[hello.rank]) count += place.size();
    return count == hello.count ? SliceAnswer::wanted : SliceAnswer::unwanted;
  }

  static asio::awaitable<bool> send(const Socket& socket, SliceAnswer answer) {
    asio::error_code failure;
    co_await asio::async_write(*socket, asio::buffer(&answer, sizeof answer),
                               asio::redirect_error(use_awaitable, failure));
    co_return !failure;
  }

  // Whether all of it came. One that tries again is taken for lost where it was before.
  asio::awaitable<bool> take(const Socket& socket, const SliceHello& hello) {
    if (answer_to(hello) != SliceAnswer::wanted) co_return false;  // no longer
    close(std::exchange(under_way_[hello.rank], socket));
    std::vector<asio::mutable_buffer> places;
    for (const std::span<float> place : places_[hello.rank])
      places.push_back(asio::buffer(place.data(), place.size_bytes()));
    asio::error_code failure;
    co_await asio::async_read(*socket, places, asio::redirect_error(use_awaitable, failure));
    if (save_ != hello.save || under_way_[hello.rank] != socket) co_return false;
    under_way_[hello.rank] = nullptr;
    if (failure) co_return false;
    places_[hello.rank].clear();
    --left;
    co_return true;
  }

  static constexpr int most_strangers = 1024;

  const JobToken token_;
  int strangers_ = 0;
  std::uint64_t save_ = 0;
  std::vector<SlicePlaces> places_;  // by rank; empty: nothing is to come
  std::vector<Socket> under_way_;    // by rank; null: none
  std::thread thread_;
};

SliceServer::SliceServer(const JobToken& token) try : impl_(std::make_unique<Impl>(token)) {
} catch (const std::system_error& failure) {
  throw Error("listen for the other ranks", failure.what());
}
SliceServer::~SliceServer() = default;

std::uint16_t SliceServer::port() const { return impl_->acceptor.local_endpoint().port(); }
void SliceServer::expect(std::uint64_t save, std::vector<SlicePlaces> places) {
  impl_->expect(save, std::move(places));
}
bool SliceServer::complete() const { return impl_->left == 0; }
std::vector<int> SliceServer::missing() const { return impl_->missing(); }
void SliceServer::forget() { impl_->forget(); }

}  // namespace ringtrain
