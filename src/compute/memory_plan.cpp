#include "ringtrain/compute/memory_plan.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace ringtrain::compute {
namespace {

struct Lifetime {
  std::size_t first = SIZE_MAX, last = 0;  // steps, inclusive
  bool used() const { return first != SIZE_MAX; }
  bool meets(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

std::vector<Lifetime> lifetimes(const Schedule& schedule) {
  std::vector<Lifetime> result(schedule.tensors.size());
  for (std::size_t s = 0; s < schedule.steps.size(); ++s)
    for_each_tensor(schedule.steps[s], [&](TensorId id, Access) {
      Lifetime& life = result[schedule.place_of(id).of];
      life.first = std::min(life.first, s);
      life.last = s;
    });
  return result;
}

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

MemoryPlan plan_memory(const Schedule& schedule, std::span<const std::size_t> bytes) {
  expects(bytes.size() == schedule.tensors.size(), "plan_memory: one size a tensor");
  const std::vector<Lifetime> lives = lifetimes(schedule);
  std::vector<TensorId> by_size(bytes.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::ranges::stable_sort(by_size, std::greater{}, [&](TensorId id) { return bytes[id]; });

  MemoryPlan plan{std::vector<std::size_t>(bytes.size(), 0), 0};
  std::vector<TensorId> placed;  // by offset
  for (const TensorId id : by_size) {
    if (!lives[id].used()) continue;
    std::size_t offset = 0, best = SIZE_MAX, best_gap = SIZE_MAX;
    for (const TensorId other : placed) {
      if (!lives[id].meets(lives[other])) continue;
      if (plan.offset[other] >= offset + bytes[id] && plan.offset[other] - offset < best_gap) {
        best_gap = plan.offset[other] - offset;
        best = offset;
      }
      offset = std::max(offset, aligned(plan.offset[other] + bytes[other]));
    }
    plan.offset[id] = best == SIZE_MAX ? offset : best;
    plan.bytes = std::max(plan.bytes, aligned(plan.offset[id] + bytes[id]));
    placed.insert(std::ranges::upper_bound(placed, plan.offset[id], {},
                                           [&](TensorId p) { return plan.offset[p]; }),
                  id);
  }
  for (const auto& [id, place] : schedule.slices) plan.offset[id] = plan.offset[place.of];
  return plan;
}

}  // namespace ringtrain::compute
