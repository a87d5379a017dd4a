#include "support/host_nccl/ring_sum.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <vector>

namespace ringtrain::host_nccl {
namespace {

// To the nearest, also for sums and products of 16 bits: those are exact in fp32.
template <class T>
T rounded(float value) {
  return static_cast<T>(value);
}

// Of the numbers [first, first + count), cut into parts of `part` numbers.
struct Numbers {
  std::size_t first, count, part;
};

template <class T>
void sum(std::span<const std::byte* const> ranks, const Numbers& numbers, float factor, T* result) {
  const std::size_t n = ranks.size();
  const T scale = rounded<T>(factor);
  for (std::size_t i = numbers.first; i < numbers.first + numbers.count; ++i) {
    const auto number_of = [&](std::size_t rank) {
      const T number = reinterpret_cast<const T*>(ranks[rank % n])[i];
      return factor == 1 ? number
                         : rounded<T>(static_cast<float>(number) * static_cast<float>(scale));
    };
    const std::size_t last = i / numbers.part;
    T total = number_of(last + 1);
    for (std::size_t hop = 2; hop <= n; ++hop)
      total = rounded<T>(static_cast<float>(number_of(last + hop)) + static_cast<float>(total));
    result[i - numbers.first] = total;
  }
}

void sum_as(std::span<const std::byte* const> ranks, const Numbers& numbers, ncclDataType_t type,
            ncclRedOp_t operation, std::byte* result) {
  const float factor = operation == ncclAvg ? 1 / static_cast<float>(ranks.size()) : 1;
  if (type == ncclFloat32) return sum(ranks, numbers, factor, reinterpret_cast<float*>(result));
  if (type == ncclFloat16) return sum(ranks, numbers, factor, reinterpret_cast<__half*>(result));
  sum(ranks, numbers, factor, reinterpret_cast<__nv_bfloat16*>(result));
}

}  // namespace

std::size_t bytes_of(ncclDataType_t type) {
  if (type == ncclFloat32) return 4;
  return type == ncclFloat16 || type == ncclBfloat16 ? 2 : 0;
}

void ring_sum(std::span<const std::byte* const> ranks, std::size_t count, ncclDataType_t type,
              ncclRedOp_t operation, std::byte* result) {
  const std::size_t n = ranks.size(), unit = 16 / bytes_of(type);
  const std::size_t part = (count + n * unit - 1) / (n * unit) * unit;
  sum_as(ranks, {0, count, part}, type, operation, result);
}

void ring_sum_of_part(std::span<const std::byte* const> ranks, std::size_t rank, std::size_t part,
                      ncclDataType_t type, ncclRedOp_t operation, std::byte* result) {
  sum_as(ranks, {rank * part, part, part}, type, operation, result);
}

}  // namespace ringtrain::host_nccl
