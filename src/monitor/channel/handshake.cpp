#include "monitor/channel/handshake.hpp"

#include <algorithm>
#include <string_view>

namespace ringtrain::monitor {
namespace {

// Of one length, so that no two proofs are made of the same bytes.
constexpr std::string_view by_rank_0 = "ringtrain: I am rank 0  ";
constexpr std::string_view by_other = "ringtrain: I am the rank";
static_assert(by_rank_0.size() == 24 && by_other.size() == 24);

Proof proof_of(std::string_view who, const JobToken& token, const Call& call, const Nonce& nonce) {
  std::array<std::byte, 24 + sizeof(Call) + sizeof(Nonce)> proven;
  auto end = std::ranges::copy(std::as_bytes(std::span(who)), proven.begin()).out;
  end = std::ranges::copy(std::as_bytes(std::span(&call, 1)), end).out;
  std::ranges::copy(nonce, end);
  return hmac_sha256(token, proven);
}

}  // namespace

Call make_call(Service service, std::uint32_t rank) {
  Call call{.service = static_cast<std::uint32_t>(service), .rank = rank};
  fill_randomly(call.nonce);
  return call;
}

Challenge make_challenge(const JobToken& token, const Call& call) {
  Challenge challenge;
  fill_randomly(challenge.nonce);
  challenge.proof = proof_of(by_rank_0, token, call, challenge.nonce);
  return challenge;
}

Proof prove_rank(const JobToken& token, const Call& call, const Challenge& challenge) {
  return proof_of(by_other, token, call, challenge.nonce);
}

bool proves_rank_0(const JobToken& token, const Call& call, const Challenge& challenge) {
  return same_secret(challenge.proof, proof_of(by_rank_0, token, call, challenge.nonce));
}

bool proves_rank(const JobToken& token, const Call& call, const Challenge& challenge,
                 const Proof& proof) {
  return same_secret(proof, prove_rank(token, call, challenge));
}

}  // namespace ringtrain::monitor
