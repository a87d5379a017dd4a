#include "monitor/channel/rank_listener.hpp"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "monitor/channel/socket.hpp"
#include "ringtrain/host/network_interfaces.hpp"

namespace ringtrain::monitor {

using namespace std::chrono_literals;
using asio::use_awaitable;
using asio::ip::tcp;

namespace {

constexpr auto greeting_time = 5s;
constexpr auto shortest_pause = 10ms, longest_pause = 1000ms;  // after an accept() that failed
constexpr auto slice_time = 50ms;
constexpr std::size_t most_a_slice = 100;  // connections, beside the ranks: 2000 a second
constexpr auto first_telling = 1s, tellings_apart = 60s;

std::size_t fitting_strangers(int ranks) {
  rlimit files{};
  std::size_t fitting = RankListener::most_strangers;
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0)
    fitting = std::clamp<std::size_t>(files.rlim_cur / 8, 4, fitting);
  return fitting + static_cast<std::size_t>(std::max(0, ranks - 1));
}

bool lacks_descriptors(const asio::error_code& failure) {
  return failure == asio::error::no_descriptors ||
         failure == std::errc::too_many_files_open_in_system;
}

std::string strangers_sentence(const Strangers& now, const Strangers& before, Service service,
                               const std::string& last_from) {
  std::vector<std::string> kinds;
  const auto add = [&](std::uint64_t Strangers::*kind, const char* text) {
    if (const auto count = now.*kind - before.*kind; count > 0)
      kinds.push_back(fmt::format("{} {}", count, text));
  };
  add(&Strangers::gone, "ended without a word");
  add(&Strangers::late, "did not say in time who they are");
  add(&Strangers::foreign, "said something else");
  add(&Strangers::unproven, "did not know the job's token");
  add(&Strangers::crowded, "made room for newer ones");
  return fmt::format(
      "connections to rank 0's port for {} that were not of this job's ranks: {} ({}), the last "
      "one "
      "from {}; the job goes on",
      service == Service::watchdog ? "the watchdog" : "slices of checkpoints",
      now.all() - before.all(), fmt::join(kinds, ", "), last_from);
}

}  // namespace

RankListener::RankListener(asio::io_context& context, const Sign& sign,
                           const std::vector<std::string>& addresses, Admit admit, Tell tell)
    : context_(context),
      sign_(sign),
      admit_(std::move(admit)),
      tell_(std::move(tell)),
      most_(fitting_strangers(sign.ranks)) {
  hold_reserve();
  for (const std::string& address : addresses) open(address);
  if (acceptors_.empty()) open_everywhere();
  for (tcp::acceptor& acceptor : acceptors_)
    asio::co_spawn(context_, accept_all(acceptor), asio::detached);
}

// Not where the address is not this host's any more.
void RankListener::open(const std::string& text) {
  asio::error_code failure;
  const auto address = asio::ip::make_address(text, failure);
  if (failure) return;
  const tcp::endpoint here(address, 0);
  tcp::acceptor acceptor(context_);
  acceptor.open(here.protocol(), failure);
  if (!failure && address.is_v6()) acceptor.set_option(asio::ip::v6_only(true), failure);
  if (!failure) acceptor.bind(here, failure);
  if (!failure) acceptor.listen(tcp::acceptor::max_listen_connections, failure);
  if (!failure)
    acceptors_.push_back(std::move(acceptor));
  else if (address.is_v4() && address.is_loopback())
    open("::1");
}

void RankListener::open_everywhere() {
  tcp::acceptor acceptor(context_);
  asio::error_code none;
  acceptor.open(tcp::v6(), none);
  if (!none) acceptor.set_option(asio::ip::v6_only(false), none);
  if (!none) acceptor.bind({tcp::v6(), 0}, none);
  if (none) acceptor = tcp::acceptor(context_, {tcp::v4(), 0});
  acceptor.listen();
  acceptors_.push_back(std::move(acceptor));
}

std::vector<Endpoint> RankListener::endpoints() const {
  std::vector<Endpoint> all;
  for (const tcp::acceptor& acceptor : acceptors_) {
    const tcp::endpoint here = acceptor.local_endpoint();
    if (!here.address().is_unspecified()) {
      all.push_back({here.address().to_string(), here.port()});
      continue;
    }
    all.push_back({"127.0.0.1", here.port()});
    for (const std::string& address : host::own_addresses()) all.push_back({address, here.port()});
  }
  return all;
}

asio::awaitable<void> RankListener::accept_all(tcp::acceptor& acceptor) {
  Clock::duration pause = shortest_pause;
  for (;;) {
    asio::error_code failure;
    tcp::socket socket =
        co_await acceptor.async_accept(asio::redirect_error(use_awaitable, failure));
    if (failure == asio::error::operation_aborted) co_return;
    if (!failure) {
      pause = shortest_pause;
      let_in(std::move(socket));
      co_await keep_pace();
      continue;
    }
    // The kernel says so even where nobody waits to be let in.
    const bool full = lacks_descriptors(failure);
    if (full)
      co_await acceptor.async_wait(tcp::acceptor::wait_read,
                                   asio::redirect_error(use_awaitable, failure));
    if (failure == asio::error::operation_aborted) co_return;
    if (full && make_room()) continue;
    co_await wait(pause);
    pause = std::min<Clock::duration>(2 * pause, longest_pause);
  }
}

void RankListener::let_in(tcp::socket socket) {
  if (strangers_.size() >= most_) drop_oldest();
  asio::error_code failure;
  const tcp::endpoint from = socket.remote_endpoint(failure);
  const auto stranger = std::make_shared<Stranger>(
      Stranger{std::move(socket), failure ? "nowhere" : from.address().to_string()});
  strangers_.push_back(stranger);
  asio::co_spawn(context_, greet(stranger), asio::detached);
}

asio::awaitable<void> RankListener::greet(StrangerPointer stranger) {
  std::optional<std::size_t> rank;
  bool late = false;
  {
    const TimeLimit limit(stranger->socket, greeting_time);
    try {
      rank = co_await authenticate_rank(stranger->socket, sign_, stranger->fate);
    } catch (const std::exception&) {  // no memory, or libcrypto fails: for this one
      rank.reset();
    }
    late = limit.over();
  }
  strangers_.remove(stranger);
  if (rank && stranger->socket.is_open()) {
    admit_(std::move(stranger->socket), *rank);
    co_return;
  }
  if (late) stranger->fate = &Strangers::late;
  asio::error_code ignored;
  stranger->socket.close(ignored);
  hold_reserve();
  count(*stranger);
}

// Whether a descriptor has come free.
bool RankListener::make_room() {
  if (!strangers_.empty()) {
    drop_oldest();
    return true;
  }
  const bool held = reserve_.get() >= 0;
  reserve_ = FileDescriptor();
  return held;
}

void RankListener::drop_oldest() {
  const StrangerPointer oldest = strangers_.front();
  strangers_.pop_front();
  oldest->fate = &Strangers::crowded;
  asio::error_code ignored;
  oldest->socket.close(ignored);  // which ends examine()
}

void RankListener::hold_reserve() {
  if (reserve_.get() < 0) reserve_ = FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

// So that a flood takes little of the processor: what is too much waits in the kernel's queue.
asio::awaitable<void> RankListener::keep_pace() {
  const auto now = Clock::now();
  if (now >= slice_end_) {
    slice_end_ = now + slice_time;
    in_slice_ = 0;
  }
  if (++in_slice_ > most_a_slice + static_cast<std::size_t>(sign_.ranks))
    co_await wait(slice_end_ - now);
}

asio::awaitable<void> RankListener::wait(Clock::duration time) {
  asio::steady_timer timer(context_, time);
  co_await timer.async_wait(use_awaitable);
}

void RankListener::count(const Stranger& stranger) {
  ++(counts_.*stranger.fate);
  last_from_ = stranger.from;
  if (tell_ && !std::exchange(telling_, true))
    asio::co_spawn(context_, tell_later(), asio::detached);
}

asio::awaitable<void> RankListener::tell_later() {
  const auto now = Clock::now();
  const auto due = told_at_ == Clock::time_point{} ? now + first_telling
                                                   : std::max(told_at_ + tellings_apart, now);
  co_await wait(due - now);
  telling_ = false;
  told_at_ = Clock::now();
  tell_(strangers_sentence(counts_, told_, sign_.service, last_from_));
  told_ = counts_;
}

asio::awaitable<std::optional<std::size_t>> authenticate_rank(tcp::socket& socket,
                                                              RankListener::Sign sign,
                                                              std::uint64_t Strangers::*& fate) {
  Call call;
  asio::error_code failure;
  co_await asio::async_read(socket, asio::buffer(&call, sizeof call),
                            asio::redirect_error(use_awaitable, failure));
  if (failure) co_return std::nullopt;
  fate = &Strangers::foreign;
  if (call.magic != Call::magic_number) co_return std::nullopt;
  const bool understood = call.version == protocol_version;
  if (understood && (call.service != static_cast<std::uint32_t>(sign.service) ||
                     call.rank >= static_cast<std::uint32_t>(sign.ranks)))
    co_return std::nullopt;
  const Challenge challenge = understood ? make_challenge(sign.token, call) : Challenge{};
  co_await asio::async_write(socket, asio::buffer(&challenge, sizeof challenge),
                             asio::redirect_error(use_awaitable, failure));
  if (failure || !understood) co_return std::nullopt;
  fate = &Strangers::gone;
  Proof proof;
  co_await asio::async_read(socket, asio::buffer(proof),
                            asio::redirect_error(use_awaitable, failure));
  if (failure) co_return std::nullopt;
  fate = &Strangers::unproven;
  if (!proves_rank(sign.token, call, challenge, proof)) co_return std::nullopt;
  co_return call.rank;
}

}  // namespace ringtrain::monitor
