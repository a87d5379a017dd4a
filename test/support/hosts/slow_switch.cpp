// slow_switch MILLISECONDS DEVICE...: an Ethernet switch between these devices that holds every
// frame for so long. For hosts.sh, where the kernel has no netem. Frames keep their offloads: those
// larger than a packet stay whole.
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Address = std::array<unsigned char, 6>;

constexpr std::size_t offloads = 10;  // a virtio_net_hdr, whose header is none for C++

struct Frame {
  Clock::time_point due;
  std::size_t from;
  std::vector<unsigned char> bytes;  // offloads, then Ethernet's

  Address address(std::size_t at) const {
    Address found;
    std::memcpy(found.data(), bytes.data() + offloads + at, found.size());
    return found;
  }
  Address to() const { return address(0); }
  Address sender() const { return address(6); }
};

int require(int result, const char* call) {
  if (result >= 0) return result;
  std::perror(call);
  std::exit(1);
}

template <class Value>
void set(int socket, int level, int option, const Value& value, const char* name) {
  require(::setsockopt(socket, level, option, &value, sizeof value), name);
}

int open_port(const char* device) {
  const int port =
      require(::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL)), "socket");
  const int index = static_cast<int>(::if_nametoindex(device));
  sockaddr_ll place{};
  place.sll_family = AF_PACKET;
  place.sll_protocol = htons(ETH_P_ALL);
  place.sll_ifindex = index;
  set(port, SOL_PACKET, PACKET_VNET_HDR, 1, "PACKET_VNET_HDR");
  set(port, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING");
  set(port, SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20, "SO_RCVBUFFORCE");
  set(port, SOL_SOCKET, SO_SNDBUFFORCE, 64 << 20, "SO_SNDBUFFORCE");
  require(::bind(port, reinterpret_cast<const sockaddr*>(&place), sizeof place), device);
  packet_mreq all{};
  all.mr_ifindex = index;
  all.mr_type = PACKET_MR_PROMISC;
  set(port, SOL_PACKET, PACKET_ADD_MEMBERSHIP, all, "PACKET_ADD_MEMBERSHIP");
  return port;
}

class Switch {
 public:
  Switch(std::chrono::microseconds delay, char** devices) : delay_(delay) {
    for (; *devices != nullptr; ++devices) ports_.push_back({open_port(*devices), POLLIN, 0});
  }

  [[noreturn]] void run() {
    while (true) {
      std::optional<timespec> left;
      if (!held_.empty()) left = until(held_.front().due);
      require(::ppoll(ports_.data(), ports_.size(), left ? &*left : nullptr, nullptr), "ppoll");
      for (std::size_t port = 0; port < ports_.size(); ++port)
        if (ports_[port].revents != 0) take_all(port);
      while (!held_.empty() && held_.front().due <= Clock::now()) {
        pass_on(held_.front());
        held_.pop_front();
      }
    }
  }

 private:
  static timespec until(Clock::time_point due) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(due - Clock::now());
    return {0, left.count() > 0 ? static_cast<long>(left.count() % 1'000'000'000) : 0};
  }

  void take_all(std::size_t port) {
    ssize_t bytes = 0;
    while ((bytes = ::recv(ports_[port].fd, room_.data(), room_.size(), 0)) > 0) {
      held_.push_back({Clock::now() + delay_, port, {room_.begin(), room_.begin() + bytes}});
      known_[held_.back().sender()] = port;
    }
  }

  // What a full queue does not take is lost, as in any switch.
  void pass_on(const Frame& frame) {
    const auto known = known_.find(frame.to());
    for (std::size_t port = 0; port < ports_.size(); ++port)
      if (port != frame.from && (known == known_.end() || known->second == port))
        static_cast<void>(::send(ports_[port].fd, frame.bytes.data(), frame.bytes.size(), 0));
  }

  const std::chrono::microseconds delay_;
  std::vector<pollfd> ports_;
  std::deque<Frame> held_;
  std::map<Address, std::size_t> known_;  // the port behind which an address is
  std::vector<unsigned char> room_ = std::vector<unsigned char>(1 << 17);
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 64;
  ::prctl(PR_SET_TIMERSLACK, 1);
  Switch(std::chrono::microseconds(static_cast<long>(1000 * std::atof(argv[1]))), argv + 2).run();
}
