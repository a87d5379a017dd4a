// Writes messages of the side channel for the fuzzer to start from. Usage: message_seeds DIR
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>

#include "monitor/channel/handshake.hpp"

using namespace ringtrain;

namespace {

template <class Message>
std::string bytes_of(const Message& message, std::string_view text = {}) {
  std::string bytes(reinterpret_cast<const char*>(&message), sizeof message);
  return bytes.append(text);
}

std::string beat(std::string_view item, std::string_view stack, bool leaving = false) {
  monitor::Heartbeat beat;
  beat.step = 7;
  beat.in_phase_s = 40;
  beat.limit_s = 27;
  beat.phase = 6;
  beat.leaving = leaving ? 1 : 0;
  beat.text_bytes = static_cast<std::uint32_t>(item.size() + stack.size());
  beat.item_bytes = static_cast<std::uint32_t>(item.size());
  return bytes_of(beat, std::string(item).append(stack));
}

std::string answer(std::uint16_t code, std::string_view text) {
  return bytes_of(monitor::HeartbeatReply{code, 3, static_cast<std::uint32_t>(text.size())}, text);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: " << argv[0] << " DIR\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  // The first byte is the end at which they come, as in messages_fuzz.cpp.
  const auto write = [&](const char* name, char end, const std::string& bytes) {
    std::ofstream(folder / name, std::ios::binary) << end << bytes;
  };
  const monitor::Call call{monitor::Call::magic_number,
                           monitor::protocol_version,
                           static_cast<std::uint32_t>(monitor::Service::watchdog),
                           1,
                           {}};
  write("call", 0, bytes_of(call) + std::string(sizeof(monitor::Proof), 'p'));
  write("challenge", 1, bytes_of(monitor::Challenge{}));
  write("beats", 2, beat("", "") + beat("/data/images", "") + beat("", "a stack", true));
  write("answers", 3, answer(0, "") + answer(72, "why") + answer(0, "goodbye"));
  return 0;
}
