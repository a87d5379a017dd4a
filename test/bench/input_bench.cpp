// What input costs: opening a data set, and the loader with each way of cropping, interleaved; for
// images:DIR also next to libjpeg alone, decoding every pixel of the files that it can read.
// Usage: input_bench SPEC [SIDE [THREADS [ROUNDS]]]
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string_view>

#include "bench/bare_jpeg.hpp"
#include "ringtrain/io/loader/loader.hpp"

using namespace ringtrain;

namespace {

constexpr double enough_s = 0.5;
constexpr int batch_size = 16;

/// Of all threads together, so that it means little what else the machine does.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Images a second and core that `work` makes; it returns how many each call made.
template <class Work>
double rate_of(Work work) {
  work();
  std::uint64_t images = 0;
  const double start = cpu_seconds();
  while (cpu_seconds() - start < enough_s) images += work();
  return static_cast<double>(images) / (cpu_seconds() - start);
}

struct Contender {
  std::string name;
  std::function<double()> rate;
  std::vector<double> rates = {};
};

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

using Files = std::vector<std::vector<std::uint8_t>>;

/// The JPEG files of images:DIR; none of another specification.
Files jpeg_files(std::string_view spec) {
  Files files;
  if (!spec.starts_with("images:")) return files;
  const auto home = std::filesystem::path(spec.substr(7)) / "train";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(home)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
    if (bytes.size() > 2 && bytes[0] == 0xFF && bytes[1] == 0xD8) files.push_back(std::move(bytes));
  }
  return files;
}

double bare_rate(const Files& files) {
  return rate_of([&] {
    for (const auto& bytes : files) bare_decode(bytes);
    return files.size();
  });
}

double reading_rate(const io::Dataset& data) {
  const auto reader = data.reader();
  std::uint64_t sample = 0;
  return rate_of([&] {
    for (int i = 0; i < batch_size; ++i)
      reader->pixels({.extent = reader->open(sample++ % data.size())});
    return std::uint64_t{batch_size};
  });
}

double loading_rate(const io::Dataset& data, const io::Augmentation& recipe, int threads) {
  io::Loader loader(data, {.global_batch = batch_size,
                           .share = {0, batch_size},
                           .threads = threads,
                           .augmentation = recipe});
  return rate_of([&] { return static_cast<std::uint64_t>(loader.next()->size()); });
}

std::vector<Contender> contenders(const io::Dataset& data, const Files& files, int side,
                                  int threads) {
  const io::Extent output{side, side};
  const auto loading = [&data, threads](const io::Augmentation& recipe) {
    return [&data, recipe, threads] { return loading_rate(data, recipe, threads); };
  };
  std::vector<Contender> all;
  if (!files.empty()) all.push_back({"libjpeg alone", [&] { return bare_rate(files); }});
  all.push_back({"read whole", [&] { return reading_rate(data); }});
  all.push_back({"central 87.5 %", loading({.output = output, .central_fraction = 0.875f})});
  all.push_back({"random window", loading({.output = output,
                                           .operations = {io::RandomCrop{.padding = 4},
                                                          io::RandomHorizontalFlip{}}})});
  all.push_back({"random resized",
                 loading({.output = output,
                          .operations = {io::RandomResizedCrop{}, io::RandomHorizontalFlip{}}})});
  for (const char* policy : {"ta_wide", "rand-m9-mstd0.5-inc1"})
    all.push_back(
        {policy, loading({.output = output,
                          .operations = {io::RandomResizedCrop{}, io::RandomHorizontalFlip{},
                                         *io::parse_policy(policy)}})});
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return fmt::print("usage: {} SPEC [SIDE [THREADS [ROUNDS]]]\n", argv[0]), 2;
  const auto number = [&](int i, int other) { return argc > i ? std::atoi(argv[i]) : other; };
  const int side = number(2, 32), threads = number(3, 1), rounds = number(4, 7);

  const double start = cpu_seconds();
  const auto data = io::open_dataset(argv[1], io::Split::training, {.extent = {side, side}});
  fmt::print("{}: opened in {:.3f} s of a core\n", data->description(), cpu_seconds() - start);
  const Files files = jpeg_files(argv[1]);
  auto all = contenders(*data, files, side, threads);
  for (int round = 0; round < rounds; ++round)
    for (Contender& one : all) one.rates.push_back(one.rate());
  fmt::print("images a second and core to {}x{}, {} thread(s), median of {} rounds\n", side, side,
             threads, rounds);
  for (const Contender& one : all)
    fmt::print("  {:20} {:7.0f}   {:.2f} of the first\n", one.name, median(one.rates),
               median(one.rates) / median(all.front().rates));
}
