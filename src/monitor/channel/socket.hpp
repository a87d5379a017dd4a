#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "monitor/channel/asio.hpp"
#include "monitor/channel/handshake.hpp"
#include "ringtrain/monitor/channel/rendezvous.hpp"

namespace ringtrain::monitor {

/// Closes `socket`, which outlives it, once the time is over. For coroutines of one thread.
class TimeLimit {
 public:
  TimeLimit(asio::ip::tcp::socket& socket, std::chrono::milliseconds time);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;

  bool over() const { return state_->over; }

 private:
  struct State {
    asio::ip::tcp::socket* socket;
    bool over = false;
  };
  std::shared_ptr<State> state_;
  asio::steady_timer timer_;
};

/// A rank's way to rank 0: through the first of its endpoints behind which somebody proves to be
/// rank 0 of this job. For one thread.
class Rank0Connector {
 public:
  Rank0Connector(const JobToken& token, Service service, int rank, std::vector<Endpoint> endpoints)
      : token_(token),
        service_(service),
        rank_(static_cast<std::uint32_t>(rank)),
        endpoints_(std::move(endpoints)) {}

  /// Connects `socket`, on which both ends have then proved who they are: whether an endpoint led
  /// to rank 0. Each has two seconds. Once one did, no other is tried: the time to connect again is
  /// short.
  asio::awaitable<bool> connect(asio::ip::tcp::socket& socket);
  /// The endpoints tried in vain the last time, each with its reason; empty after a success.
  const std::string& trouble() const { return trouble_; }
  /// A sentence for the user where somebody else has answered; once for each endpoint.
  std::string take_warning() { return std::exchange(warning_, {}); }

 private:
  asio::awaitable<std::string> try_endpoint(asio::ip::tcp::socket& socket,
                                            const Endpoint& endpoint);
  void warn(const Endpoint& endpoint);

  const JobToken token_;
  const Service service_;
  const std::uint32_t rank_;
  std::vector<Endpoint> endpoints_;
  std::string trouble_, warning_;
  std::set<std::string> warned_;
};

/// What a rank finds at the other end of a connection.
struct Found {
  asio::error_code failure;  ///< which ended it before that was known
  std::string why_not;       ///< it is not rank 0 of this job; empty: it is
  bool stranger = false;     ///< nor another build's
};
/// Proves to who is at the other end of `socket`, which outlives the call, that this is `rank`,
/// once that one has proved to be rank 0.
asio::awaitable<Found> authenticate_rank_0(asio::ip::tcp::socket& socket, JobToken token,
                                           Service service, std::uint32_t rank);

/// Reads a Heartbeat or a HeartbeatReply and the `text` behind it. Returns why that failed:
/// message_size where there are more than `most` bytes of text. All outlive the call.
template <class Message>
asio::awaitable<asio::error_code> read_message(asio::ip::tcp::socket& socket, Message& message,
                                               std::string& text, std::size_t most) {
  asio::error_code failure;
  auto done = asio::redirect_error(asio::use_awaitable, failure);
  co_await asio::async_read(socket, asio::buffer(&message, sizeof message), done);
  if (!failure && message.text_bytes > most) failure = asio::error::message_size;
  if (failure) co_return failure;
  text.assign(message.text_bytes, '\0');
  co_await asio::async_read(socket, asio::buffer(text), done);
  co_return failure;
}

/// From now on `socket` fails (timed_out) where the other end's host acknowledges nothing for so
/// long, also while there is nothing to send. Its process may be stopped, or slow.
void end_when_unacknowledged(asio::ip::tcp::socket& socket, std::chrono::seconds time);

/// Whether a connection that ended so was ended by somebody: the other end, or a firewall. A
/// network that is cut ends none.
bool was_ended(const asio::error_code& failure);

/// Whether the other end's host has acknowledged something within the last seconds; true where that
/// cannot be known. A stopped process's host does.
bool is_acknowledged(asio::ip::tcp::socket& socket);

}  // namespace ringtrain::monitor
