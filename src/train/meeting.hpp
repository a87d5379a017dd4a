#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "train/side_messages.hpp"

namespace ringtrain {

/// Where rank 0 listens for the others, which its broadcast tells them.
struct Meeting {
  JobToken token{};
  std::uint16_t port = 0;
  std::vector<std::string> addresses{};
  ProcessName process{};  ///< rank 0's
};

/// Throws Error where the system has no random bits.
JobToken new_token();
/// Whether they are equal; takes equally long whatever is wrong.
bool same(const JobToken& a, const JobToken& b);
std::string to_text(const Meeting& meeting);
Meeting meeting_from_text(const std::string& text);

}  // namespace ringtrain
