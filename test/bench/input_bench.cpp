// What input costs: opening a data set, reading its samples, and the loader with augmentation.
// Usage: input_bench SPEC [SIDE] [none|random|resized] [THREADS]
#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <string_view>

#include "ringtrain/io/loader.hpp"

using namespace ringtrain;
using Clock = std::chrono::steady_clock;

namespace {

constexpr double enough_s = 3;
constexpr int batch_size = 64;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Images a second that `work` makes; it returns how many each call made.
template <class Work>
double rate_of(Work work) {
  work();
  std::uint64_t images = 0;
  const auto start = Clock::now();
  while (seconds_since(start) < enough_s) images += work();
  return static_cast<double>(images) / seconds_since(start);
}

InputRecipe recipe_of(int side, std::string_view crop) {
  InputRecipe recipe{.output = {side, side}, .mirror = crop != "none"};
  if (crop == "random") recipe.crop = Crop::random, recipe.padding = side / 8;
  if (crop == "resized") recipe.crop = Crop::random_resized;
  return recipe;
}

double reading_rate(const Dataset& data) {
  const auto reader = data.reader();
  std::uint64_t sample = 0;
  return rate_of([&] {
    for (int i = 0; i < batch_size; ++i) reader->pixels({.extent = reader->open(sample++ % data.size())});
    return std::uint64_t{batch_size};
  });
}

double loading_rate(const Dataset& data, const InputRecipe& recipe, int threads) {
  Loader loader(
      data,
      {.global_batch = batch_size, .share = {0, batch_size}, .threads = threads, .recipe = recipe});
  return rate_of([&] { return static_cast<std::uint64_t>(loader.next()->size()); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return fmt::print("usage: {} SPEC [SIDE] [CROP] [THREADS]\n", argv[0]), 2;
  const int side = argc > 2 ? std::atoi(argv[2]) : 32;
  const std::string_view crop = argc > 3 ? argv[3] : "random";
  const int threads = argc > 4 ? std::atoi(argv[4]) : 1;

  const auto start = Clock::now();
  const auto data = open_dataset(argv[1], Split::training, {.extent = {side, side}});
  fmt::print("{}: opened in {:.3f} s\n", data->description(), seconds_since(start));
  fmt::print("  read at full size, one thread   {:10.0f} images/s\n", reading_rate(*data));
  fmt::print("  loader, {}x{} {}, {} thread(s)  {:10.0f} images/s\n", side, side, crop, threads,
             loading_rate(*data, recipe_of(side, crop), threads));
}
