#pragma once
#include <nccl.h>

#include <cstddef>
#include <span>

namespace ringtrain::host_nccl {

/// Bytes of one number; 0 where the simulated NCCL does not know the type.
std::size_t bytes_of(ncclDataType_t type);

/// What NCCL's ring makes of `count` numbers of each rank. The numbers are cut into as many parts
/// as there are ranks, of whole 16 bytes. Part p begins with rank p + 1's numbers, to which those
/// of p + 2, p + 3 and so on are added, at last rank p's; each sum is rounded to `type`. An average
/// multiplies each rank's numbers by 1/ranks first, and rounds. NCCL itself also cuts by channels.
void ring_sum(std::span<const std::byte* const> ranks, std::size_t count, ncclDataType_t type,
              ncclRedOp_t operation, std::byte* result);

/// What a reduce-scatter's ring makes for `rank`: of as many parts as there are ranks, each of
/// `part` numbers, that one's. The order is ring_sum()'s, whose parts these are where they are
/// whole 16 bytes. With more than two ranks NCCL's own need not be.
void ring_sum_of_part(std::span<const std::byte* const> ranks, std::size_t rank, std::size_t part,
                      ncclDataType_t type, ncclRedOp_t operation, std::byte* result);

}  // namespace ringtrain::host_nccl
