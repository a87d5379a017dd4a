#pragma once
#include <cstdint>

#include "ringtrain/base/philox.hpp"

namespace ringtrain::compute::cuda::kernels {

/// Four random words.
struct Words {
  std::uint32_t at[4];
};

/// The words of ringtrain::Philox(seed, purpose, a, b).at(position), where GPUs can compute them.
constexpr Words philox(std::uint64_t seed, Purpose purpose, std::uint32_t a, std::uint64_t b,
                       std::uint32_t position) {
  using Word = std::uint32_t;
  Words x{{position, (static_cast<Word>(purpose) << 24) ^ a, static_cast<Word>(b),
           static_cast<Word>(b >> 32)}};
  Word k0 = static_cast<Word>(seed), k1 = static_cast<Word>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p = 0xD2511F53ull * x.at[0], q = 0xCD9E8D57ull * x.at[2];
    x = {{static_cast<Word>(q >> 32) ^ x.at[1] ^ k0, static_cast<Word>(q),
          static_cast<Word>(p >> 32) ^ x.at[3] ^ k1, static_cast<Word>(p)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return x;
}

}  // namespace ringtrain::compute::cuda::kernels
