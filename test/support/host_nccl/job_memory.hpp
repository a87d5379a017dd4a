#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ringtrain::host_nccl {

constexpr int most_ranks = 16;
constexpr std::size_t most_bytes = std::size_t(1) << 30;  ///< of a collective

/// What a rank calls, which must be the same on all ranks.
struct Call {
  enum class Kind { all_reduce, broadcast, reduce_scatter, all_gather };
  Kind kind = Kind::all_reduce;
  std::uint64_t count =
      0;  ///< as NCCL has it: of what each rank gives to a gather, or gets of a scatter
  int type = 0, operation = 0, root = 0;
  /// Of `count` numbers.
  std::size_t bytes() const;
  bool operator==(const Call&) const = default;
};

/// What a rank shows to the others. All zero at first.
struct RankState {
  std::atomic<int> process;  ///< its id, once the rank has joined; everything above is written then
  int size;
  char gpu[160];  ///< host and PCI bus id
  Call call;
  std::atomic<std::uint64_t> arrived;  ///< collectives that it has begun; its numbers are there
  std::atomic<std::uint64_t> taken;    ///< collectives whose result it has
  std::atomic<bool> finished;          ///< it will begin no more
};

/// Memory that the ranks of one communicator share, by its name. Unlinked once all have joined.
class JobMemory {
 public:
  explicit JobMemory(const std::string& name);
  ~JobMemory();
  JobMemory(const JobMemory&) = delete;
  JobMemory& operator=(const JobMemory&) = delete;

  RankState& rank(int rank) const { return static_cast<RankState*>(data_)[rank]; }
  /// The numbers of a rank, `most_bytes`.
  std::byte* numbers(int rank) const;
  /// No more ranks come.
  void unlink() const;

 private:
  const std::string name_;
  void* data_;
};

}  // namespace ringtrain::host_nccl
