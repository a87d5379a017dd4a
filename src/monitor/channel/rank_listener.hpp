#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "monitor/channel/asio.hpp"
#include "monitor/channel/handshake.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/monitor/channel/rendezvous.hpp"

namespace ringtrain::monitor {

/// Connections that were not of the job's ranks, by what became of them.
struct Strangers {
  std::uint64_t gone = 0;      ///< ended by themselves
  std::uint64_t late = 0;      ///< did not say in time who they are
  std::uint64_t foreign = 0;   ///< said something else, or came for something else
  std::uint64_t unproven = 0;  ///< did not know the token
  std::uint64_t crowded = 0;   ///< made room for newer ones

  std::uint64_t all() const { return gone + late + foreign + unproven + crowded; }
};

/// Where rank 0 listens for the other ranks. Who comes has five seconds and 80 bytes to prove that
/// it is one of them; until then it is a stranger. Strangers are few at a time, each newer one in
/// the oldest one's place, and take at most an eighth of the files that may be open. Where no more
/// can be opened, they make room, then a descriptor in reserve does; then connections wait in the
/// kernel. Strangers cost the thread of `context` a moment each, and it never waits for one.
class RankListener {
 public:
  struct Sign {
    JobToken token;
    Service service;
    int ranks;
  };
  /// Takes the connection of a rank.
  using Admit = std::function<void(asio::ip::tcp::socket, std::size_t)>;
  /// Hears a sentence about strangers, once a minute at most.
  using Tell = std::function<void(std::string)>;

  /// Listens on free ports of `addresses`, or of all interfaces where there is none or none can be
  /// had. What is passed is called by who runs `context`. Throws std::system_error.
  RankListener(asio::io_context& context, const Sign& sign,
               const std::vector<std::string>& addresses, Admit admit, Tell tell);

  /// Where other ranks find it.
  std::vector<Endpoint> endpoints() const;
  const Strangers& strangers() const { return counts_; }

  static constexpr std::size_t most_strangers = 64;  ///< beside the ranks that are to come

 private:
  using Clock = std::chrono::steady_clock;
  struct Stranger {
    asio::ip::tcp::socket socket;
    std::string from;
    std::uint64_t Strangers::*fate = &Strangers::gone;
  };
  using StrangerPointer = std::shared_ptr<Stranger>;

  void open(const std::string& address);
  void open_everywhere();
  asio::awaitable<void> accept_all(asio::ip::tcp::acceptor& acceptor);
  asio::awaitable<void> greet(StrangerPointer stranger);
  asio::awaitable<void> keep_pace();
  asio::awaitable<void> wait(Clock::duration time);
  asio::awaitable<void> tell_later();
  void let_in(asio::ip::tcp::socket socket);
  bool make_room();
  void drop_oldest();
  void hold_reserve();
  void count(const Stranger& stranger);

  asio::io_context& context_;
  const Sign sign_;
  const Admit admit_;
  const Tell tell_;
  const std::size_t most_;  // strangers, ranks that have not proved it yet among them
  std::list<asio::ip::tcp::acceptor> acceptors_;
  std::list<StrangerPointer> strangers_;  // the oldest first
  FileDescriptor reserve_;
  Strangers counts_, told_;
  std::string last_from_;
  bool telling_ = false;
  Clock::time_point told_at_{};
  Clock::time_point slice_end_{};
  std::size_t in_slice_ = 0;  // connections taken
};

/// Which rank proves to be at the other end of `socket`. Nothing where none does; `fate` is then
/// what became of who is there. Both outlive the call.
asio::awaitable<std::optional<std::size_t>> authenticate_rank(asio::ip::tcp::socket& socket,
                                                              RankListener::Sign sign,
                                                              std::uint64_t Strangers::*& fate);

}  // namespace ringtrain::monitor
