#include "monitor/watchdog/heartbeat_server.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "monitor/channel/socket.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::monitor {
namespace {

using asio::use_awaitable;

using asio::ip::tcp;

constexpr std::string_view goodbye = "goodbye";

std::string message(int exit_code, double late_s, std::string_view text) {
  constexpr double most_ds = 60'000;
  const HeartbeatReply answer{static_cast<std::uint16_t>(exit_code),
                              static_cast<std::uint16_t>(std::min(10 * late_s, most_ds)),
                              static_cast<std::uint32_t>(text.size())};
  std::string bytes(reinterpret_cast<const char*>(&answer), sizeof answer);
  return bytes.append(text);
}

// Another rank. One that never reads what is sent is given up.
struct Peer {
  explicit Peer(tcp::socket connection) : socket(std::move(connection)) {}
  tcp::socket socket;
  std::string outbox;
  static constexpr std::size_t most_in_outbox = std::size_t{4} << 20;
  bool sending = false;
};
using PeerPointer = std::shared_ptr<Peer>;

void close(const PeerPointer& peer) {
  asio::error_code ignored;
  peer->socket.close(ignored);
}

asio::awaitable<void> send_outbox(PeerPointer peer) {
  asio::error_code failure;  // is what the reader finds, too
  while (!failure && !peer->outbox.empty()) {
    const std::string bytes = std::exchange(peer->outbox, {});
    co_await asio::async_write(peer->socket, asio::buffer(bytes),
                               asio::redirect_error(use_awaitable, failure));
  }
  peer->sending = false;
}

void send(const PeerPointer& peer, std::string_view bytes) {
  if (peer->outbox.size() + bytes.size() > Peer::most_in_outbox) return close(peer);
  peer->outbox += bytes;
  if (!std::exchange(peer->sending, true))
    asio::co_spawn(peer->socket.get_executor(), send_outbox(peer), asio::detached);
}

}  // namespace

void take_beat(RankHealth& view, const Heartbeat& beat, const std::string& text) {
  const auto phase = std::min<std::uint32_t>(beat.phase, metrics::watched_phases - 1);
  const std::size_t item_bytes = std::min<std::size_t>(beat.item_bytes, text.size());
  if (text.size() > item_bytes) view.stack = text.substr(item_bytes);
  view.status = {beat.step,     static_cast<metrics::Phase>(phase), beat.in_phase_s, beat.limit_s,
                 beat.meetings, text.substr(0, item_bytes)};
  view.account = beat.account;
  view.left = beat.leaving != 0;
  view.silent_s = 0;
  view.late_s = beat.late_s;
}

class HeartbeatServer::Impl {
 public:
  Impl(const JobToken& token, int ranks, const std::vector<std::string>& addresses,
       RankListener::Tell tell)
      : views(static_cast<std::size_t>(ranks)), processes(views.size()), peers(views.size()) {
    if (ranks > 1)
      listener.emplace(
          context, RankListener::Sign{token, Service::watchdog, ranks}, addresses,
          [this](tcp::socket socket, std::size_t rank) {
            asio::co_spawn(context, serve(std::make_shared<Peer>(std::move(socket)), rank),
                           asio::detached);
          },
          std::move(tell));
  }

  // A kernel has something to acknowledge only when something is sent.
  void ask_silent_hosts(double seconds) {
    constexpr double silence_s = 3, between_s = 1;
    since_asked_s_ += seconds;
    const bool ask = since_asked_s_ >= between_s;
    if (ask) since_asked_s_ = 0;
    for (std::size_t r = 0; r < views.size(); ++r) {
      if (!peers[r]) continue;
      const bool silent = views[r].silent_s > silence_s;
      views[r].acknowledged = !silent || is_acknowledged(peers[r]->socket);
      if (ask && silent) send(peers[r], message(0, late_s, ""));
    }
  }

  void send_to_all(const std::string& bytes) const {
    for (const PeerPointer& peer : peers)
      if (peer) send(peer, bytes);
  }

  asio::io_context context{1};
  const asio::executor_work_guard<asio::io_context::executor_type> waits_for_more{
      context.get_executor()};
  std::optional<RankListener> listener;
  std::vector<RankHealth> views;
  std::vector<ProcessName> processes;
  std::vector<PeerPointer> peers;  // by rank; null: not connected
  std::set<std::size_t> returned;
  double late_s = 0;  // of this rank

 private:
  asio::awaitable<void> serve(PeerPointer peer, std::size_t rank) {
    RankHealth& view = views[rank];
    if (view.connected)
      returned.insert(rank);  // and is silent until it says something
    else
      view.silent_s = 0;
    view.connected = true;
    view.lost = false;
    view.lost_s = 0;
    if (const PeerPointer before = std::exchange(peers[rank], peer)) close(before);
    // at once: from here on it notices when this rank falls silent
    send(peer, message(0, late_s, ""));
    const asio::error_code failure = co_await listen_to(peer, rank);
    if (peers[rank] != peer) co_return;  // it has connected anew
    peers[rank] = nullptr;
    view.lost = !view.left && was_ended(failure);
  }

  // Until the connection ends: why.
  asio::awaitable<asio::error_code> listen_to(PeerPointer peer, std::size_t rank) {
    RankHealth& view = views[rank];
    for (;;) {
      Heartbeat beat;
      std::string text;
      const asio::error_code failure = co_await read_message(peer->socket, beat, text, most_text);
      if (failure) co_return failure;
      take_beat(view, beat, text);
      processes[rank] = beat.process;
      // A rank that leaves waits for it: its last word might have been lost with the connection.
      send(peer, message(0, late_s, view.left ? goodbye : ""));
    }
  }

  double since_asked_s_ = 0;
};

HeartbeatServer::HeartbeatServer(const JobToken& token, int ranks,
                                 const std::vector<std::string>& addresses,
                                 RankListener::Tell tell) try
    : impl_(std::make_unique<Impl>(token, ranks, addresses, std::move(tell))) {
} catch (const std::system_error& failure) {
  throw Error("listen for the other ranks", failure.what());
}
HeartbeatServer::~HeartbeatServer() = default;

std::vector<Endpoint> HeartbeatServer::endpoints() const {
  return impl_->listener ? impl_->listener->endpoints() : std::vector<Endpoint>();
}

Strangers HeartbeatServer::strangers() const {
  return impl_->listener ? impl_->listener->strangers() : Strangers();
}

void HeartbeatServer::run_for(std::chrono::milliseconds time) {
  const double seconds = std::chrono::duration<double>(time).count();
  for (RankHealth& view : impl_->views) {
    view.silent_s += seconds;
    if (view.lost) view.lost_s += seconds;
  }
  impl_->ask_silent_hosts(seconds);
  impl_->context.restart();
  impl_->context.run_for(time);
}

std::span<RankHealth> HeartbeatServer::ranks() { return impl_->views; }

void HeartbeatServer::forgive_silence() {
  for (RankHealth& view : impl_->views) view.silent_s = 0;
}

void HeartbeatServer::set_late(double seconds) { impl_->late_s = seconds; }

const ProcessName& HeartbeatServer::process(std::size_t rank) const {
  return impl_->processes[rank];
}

std::set<std::size_t> HeartbeatServer::take_returned() {
  return std::exchange(impl_->returned, {});
}

bool HeartbeatServer::connected() const {
  return std::ranges::any_of(impl_->peers, [](const PeerPointer& peer) { return peer != nullptr; });
}

void HeartbeatServer::say_goodbye() { impl_->send_to_all(message(0, 0, goodbye)); }

void HeartbeatServer::end_job(int exit_code, std::string_view why) {
  impl_->send_to_all(message(exit_code, 0, why));
}

}  // namespace ringtrain::monitor
