// Any bytes on a connection of the side channel, at both of its ends: from who has not proved who
// it is, which must not be let in, and from who has. The first byte says which.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <span>
#include <string>

#include "monitor/channel/rank_listener.hpp"
#include "monitor/channel/socket.hpp"
#include "monitor/watchdog/heartbeat_server.hpp"
#include "ringtrain/monitor/channel/messages.hpp"
#include "ringtrain/monitor/watchdog/liveness.hpp"

namespace ringtrain {

namespace monitor {

// The real one is in a file that needs MPI.
std::string to_text(const Endpoint& endpoint) { return endpoint.address; }

}  // namespace monitor

namespace {

using asio::ip::tcp;

void expect(bool kept) {
  if (!kept) __builtin_trap();
}

/// A connection on which all that will ever come has come.
class Connection {
 public:
  explicit Connection(std::span<const std::uint8_t> bytes) : socket_(context_) {
    std::array<int, 2> ends{};
    expect(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
    socket_.assign(tcp::v4(), ends[0]);
    other_ = ends[1];
    // What the kernel does not take at once is left out.
    expect(bytes.empty() ||
           ::send(other_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0);
    expect(::shutdown(other_, SHUT_WR) == 0);
  }
  ~Connection() { ::close(other_); }
  Connection(const Connection&) = delete;

  template <class Work>
  void run(Work work) {
    bool over = false;
    asio::co_spawn(
        context_, [&]() -> asio::awaitable<void> { co_await work(socket_); },
        [&](const std::exception_ptr& failure) { over = failure == nullptr; });
    context_.run();
    expect(over);
  }

 private:
  asio::io_context context_{1};
  tcp::socket socket_;
  int other_ = -1;
};

constexpr monitor::JobToken token{};

void at_rank_0(std::span<const std::uint8_t> bytes) {
  Connection(bytes).run([](tcp::socket& socket) -> asio::awaitable<void> {
    std::uint64_t monitor::Strangers::*fate = &monitor::Strangers::gone;
    const monitor::RankListener::Sign sign{token, monitor::Service::watchdog, 2};
    expect(!co_await monitor::authenticate_rank(socket, sign, fate));
  });
}

void at_another_rank(std::span<const std::uint8_t> bytes) {
  Connection(bytes).run([](tcp::socket& socket) -> asio::awaitable<void> {
    const monitor::Found found =
        co_await monitor::authenticate_rank_0(socket, token, monitor::Service::watchdog, 1);
    expect(found.failure || !found.why_not.empty());
  });
}

void beats(std::span<const std::uint8_t> bytes) {
  Connection(bytes).run([](tcp::socket& socket) -> asio::awaitable<void> {
    std::array<monitor::RankHealth, 2> ranks;
    const std::array<std::string, 2> hosts = {"one", "two"};
    for (;;) {
      monitor::Heartbeat beat;
      std::string text;
      if (co_await monitor::read_message(socket, beat, text, monitor::most_text)) co_return;
      expect(text.size() <= monitor::most_text);
      ranks[1].connected = true;
      monitor::take_beat(ranks[1], beat, text);
      expect(ranks[1].status.phase < metrics::Phase{metrics::watched_phases});
      if (const auto verdict = monitor::judge(ranks, 10, false)) {
        expect(!monitor::describe(*verdict, ranks, hosts).empty() &&
               !monitor::details(*verdict, hosts).empty());
      }
      expect(!monitor::table(ranks, hosts).empty());
      monitor::long_wait(ranks, hosts, 60);
    }
  });
}

void answers(std::span<const std::uint8_t> bytes) {
  Connection(bytes).run([](tcp::socket& socket) -> asio::awaitable<void> {
    for (;;) {
      monitor::HeartbeatReply answer;
      std::string text;
      if (co_await monitor::read_message(socket, answer, text, monitor::most_text)) co_return;
      expect(text.size() == answer.text_bytes);
    }
  });
}

}  // namespace
}  // namespace ringtrain

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  constexpr std::array kinds = {ringtrain::at_rank_0, ringtrain::at_another_rank, ringtrain::beats,
                                ringtrain::answers};
  kinds.at(data[0] % kinds.size())({data + 1, size - 1});
  return 0;
}
