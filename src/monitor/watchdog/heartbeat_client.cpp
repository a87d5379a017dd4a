#include "monitor/watchdog/heartbeat_client.hpp"

#include <algorithm>
#include <utility>

#include "monitor/channel/asio.hpp"
#include "monitor/channel/socket.hpp"
#include "ringtrain/monitor/watchdog/liveness.hpp"

namespace ringtrain::monitor {

using asio::use_awaitable;
using asio::ip::tcp;

class HeartbeatClient::Impl {
 public:
  Impl(const JobToken& token, int rank, std::vector<Endpoint> endpoints)
      : socket(context), connector(token, Service::watchdog, rank, std::move(endpoints)) {
    asio::co_spawn(context, talk(), asio::detached);
  }

  void send(Heartbeat beat, const std::string& item, const std::string& stack) {
    beat.process = own_process();
    text_ = item + stack;
    text_.resize(std::min(text_.size(), most_text));
    beat.text_bytes = static_cast<std::uint32_t>(text_.size());
    beat.item_bytes = static_cast<std::uint32_t>(std::min(item.size(), text_.size()));
    next_ = last_ = beat;
    start_sending();
  }

  void start_sending() {
    if (ready_ && !std::exchange(sending_, true))
      asio::co_spawn(context, send_all(), asio::detached);
  }

  asio::io_context context{1};
  const asio::executor_work_guard<asio::io_context::executor_type> waits_for_more{
      context.get_executor()};
  tcp::socket socket;
  Rank0Connector connector;
  bool connected = false, left = false, lost = false;
  double silent_s = 0, late_s = 0;
  std::optional<Ending> ending;

  // A socket that is closed, or not open yet, knows nothing.
  bool acknowledged() {
    if (socket.is_open()) acknowledged_ = is_acknowledged(socket);
    return acknowledged_;
  }

 private:
  asio::awaitable<void> talk() {
    while (!left) {
      while (!co_await connector.connect(socket)) co_await pause();
      // A firewall may have forgotten this connection, which nobody is told.
      end_when_unacknowledged(socket, unacknowledged_time);
      ready_ = true;
      write_failure_ = {};
      next_ = last_;  // it may have been lost with the connection before
      if (next_) start_sending();
      asio::error_code failure;
      while (!failure) co_await listen(failure);
      ready_ = false;
      lost = lost || (connected && !left && was_ended(write_failure_ ? write_failure_ : failure));
      asio::error_code ignored;
      socket.close(ignored);
      co_await pause();
    }
  }

  asio::awaitable<void> pause() {
    asio::steady_timer timer(context, time_between_tries);
    co_await timer.async_wait(use_awaitable);
  }

  asio::awaitable<void> listen(asio::error_code& failure) {
    HeartbeatReply answer;
    std::string text;
    failure = co_await read_message(socket, answer, text, most_answer);
    if (failure) co_return;
    connected = true;
    lost = false;
    silent_s = 0;
    late_s = answer.late_ds / 10.0;
    left = left || (answer.exit_code == 0 && !text.empty());
    if (answer.exit_code != 0) ending = Ending{static_cast<int>(answer.exit_code), std::move(text)};
  }

  asio::awaitable<void> send_all() {
    asio::error_code failure;
    while (!failure && next_) {
      const Heartbeat beat = *std::exchange(next_, std::nullopt);
      std::string bytes(reinterpret_cast<const char*>(&beat), sizeof beat);
      bytes += text_;
      co_await asio::async_write(socket, asio::buffer(bytes),
                                 asio::redirect_error(use_awaitable, failure));
    }
    if (ready_) write_failure_ = failure;  // who is told why first, the other only finds the end
    sending_ = false;
    if (next_) start_sending();  // it failed, and another connection is there
  }

  static constexpr std::chrono::seconds unacknowledged_time{2};  // a beat comes every second
  static constexpr std::chrono::milliseconds time_between_tries{250};
  static constexpr std::uint32_t most_answer = 1 << 20;

  std::optional<Heartbeat> next_, last_;
  std::string text_;    // behind it
  bool ready_ = false;  // the connection is there, and both ends have proved who they are
  bool sending_ = false;
  bool acknowledged_ = true;
  asio::error_code write_failure_;  // of this connection
};

HeartbeatClient::HeartbeatClient(const JobToken& token, int rank, std::vector<Endpoint> endpoints)
    : impl_(std::make_unique<Impl>(token, rank, std::move(endpoints))) {}
HeartbeatClient::HeartbeatClient(HeartbeatClient&&) noexcept = default;
HeartbeatClient::~HeartbeatClient() = default;

void HeartbeatClient::run_for(std::chrono::milliseconds time) {
  impl_->silent_s += std::chrono::duration<double>(time).count();
  impl_->context.restart();
  impl_->context.run_for(time);
}

void HeartbeatClient::send(const Heartbeat& beat, const std::string& item) {
  impl_->send(beat, item, {});
}
void HeartbeatClient::send_stack(const Heartbeat& beat, const std::string& item,
                                 const std::string& stack) {
  impl_->send(beat, item, stack);
}
bool HeartbeatClient::connected() const { return impl_->connected; }
const std::string& HeartbeatClient::trouble() const { return impl_->connector.trouble(); }
std::string HeartbeatClient::take_warning() { return impl_->connector.take_warning(); }
bool HeartbeatClient::rank_0_left() const { return impl_->left; }
bool HeartbeatClient::lost() const { return impl_->lost; }
double HeartbeatClient::silent_s() const { return impl_->silent_s; }
double HeartbeatClient::rank_0_late_s() const { return impl_->late_s; }
bool HeartbeatClient::acknowledged() const { return impl_->acknowledged(); }
void HeartbeatClient::forgive_silence() { impl_->silent_s = 0; }
const std::optional<HeartbeatClient::Ending>& HeartbeatClient::ending() const {
  return impl_->ending;
}

}  // namespace ringtrain::monitor
