#include "train/meeting.hpp"

#include <fmt/ranges.h>
#include <sys/random.h>

#include <cstring>
#include <sstream>

#include "ringtrain/base/error.hpp"

namespace ringtrain {

JobToken new_token() {
  JobToken token;
  if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size()))
    throw Error("getrandom", "gave no random bits");
  return token;
}

bool same(const JobToken& a, const JobToken& b) {
  std::byte difference{};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{};
}

std::string to_text(const Meeting& meeting) {
  std::string text(sizeof meeting.token, '\0');
  std::memcpy(text.data(), meeting.token.data(), sizeof meeting.token);
  return text + fmt::format("{} {} {} {}", meeting.port, meeting.process.of, meeting.process.id,
                            fmt::join(meeting.addresses, " "));
}

Meeting meeting_from_text(const std::string& text) {
  Meeting meeting;
  std::memcpy(meeting.token.data(), text.data(), sizeof meeting.token);
  std::istringstream words(text.substr(sizeof meeting.token));
  words >> meeting.port >> meeting.process.of >> meeting.process.id;
  for (std::string address; words >> address;) meeting.addresses.push_back(address);
  return meeting;
}

}  // namespace ringtrain
