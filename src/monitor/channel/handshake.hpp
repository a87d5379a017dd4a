#pragma once
#include <cstdint>

#include "ringtrain/base/hmac.hpp"
#include "ringtrain/monitor/channel/messages.hpp"

namespace ringtrain::monitor {

// How the two ends of a connection to rank 0 prove to one another that they know the job's token,
// which itself is never sent (docs/internals/watchdog.md). All is sent as it lies in memory:
//   a rank: Call;   rank 0: Challenge, with its proof;   the rank: its proof.
// A proof is an HMAC-SHA256 under the token, over who proves, the Call, and rank 0's nonce: it
// holds for this connection alone, and that of one end is not that of the other.

/// What a connection is for.
enum class Service : std::uint32_t { watchdog = 1, slices = 2 };

/// Another one wherever messages are others: ranks of two builds tell one another so.
inline constexpr std::uint32_t protocol_version = 0x20000 + sizeof(Heartbeat);

using Nonce = std::array<std::byte, 32>;
using Proof = Sha256;

struct Call {
  static constexpr std::uint32_t magic_number = 0x52544331;
  std::uint32_t magic = magic_number;  // these two come first in every version
  std::uint32_t version = protocol_version;
  std::uint32_t service = 0;
  std::uint32_t rank = 0;
  Nonce nonce{};
};
static_assert(sizeof(Call) == 48);

struct Challenge {
  static constexpr std::uint32_t magic_number = 0x52544332;
  std::uint32_t magic = magic_number;
  std::uint32_t version = protocol_version;  // another one than the call's: that is all
  Nonce nonce{};
  Proof proof{};  // rank 0's
};
static_assert(sizeof(Challenge) == 72);

/// A call with a nonce of its own. Throws Error where the kernel has no random bits.
Call make_call(Service service, std::uint32_t rank);
/// Rank 0's answer to it, likewise.
Challenge make_challenge(const JobToken& token, const Call& call);
/// The calling rank's proof.
Proof prove_rank(const JobToken& token, const Call& call, const Challenge& challenge);
bool proves_rank_0(const JobToken& token, const Call& call, const Challenge& challenge);
bool proves_rank(const JobToken& token, const Call& call, const Challenge& challenge,
                 const Proof& proof);

}  // namespace ringtrain::monitor
