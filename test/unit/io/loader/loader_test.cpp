#include "ringtrain/io/loader/loader.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "support/catch.hpp"
#include "unit/io/dataset/data_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;

namespace {

/// One place of a batch, images as a hash.
struct Place {
  std::uint64_t sample, image;
  std::uint32_t epoch, repeat;
  std::int32_t label;
  float brightness, contrast, saturation, hue;
  std::array<int, 4> erased;
  friend bool operator==(const Place&, const Place&) = default;
};

std::vector<Place> places_of(const Batch& batch) {
  std::vector<Place> places;
  for (int i = 0; i < batch.size(); ++i) {
    const auto image =
        std::span(batch.images).subspan(i * batch.image_bytes(), batch.image_bytes());
    const auto& [index, epoch, target, jitter, repeat, erased] = batch.samples[i];
    places.push_back({index,
                      hash_of(image),
                      epoch,
                      repeat,
                      target.label,
                      jitter.brightness,
                      jitter.contrast,
                      jitter.saturation,
                      jitter.hue,
                      {erased.top, erased.left, erased.height, erased.width}});
  }
  return places;
}

/// The first `batches` global batches as `ranks` loaders make them, in global order.
std::vector<Place> first_places(const Dataset& data, LoaderOptions options, int ranks,
                                std::uint64_t batches) {
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int rank = 0; rank < ranks; ++rank) {
    options.share = share_of(options.global_batch, rank, ranks);
    loaders.push_back(std::make_unique<Loader>(data, options));
  }
  std::vector<Place> all;
  for (std::uint64_t b = 0; b < batches; ++b)
    for (const auto& loader : loaders) {
      const Batch* batch = loader->next();
      REQUIRE(batch != nullptr);
      std::ranges::copy(places_of(*batch), std::back_inserter(all));
    }
  return all;
}

std::vector<std::int32_t> labels_of(const Batch& batch) {
  std::vector<std::int32_t> labels;
  for (const Sample& sample : batch.samples) labels.push_back(sample.target.label);
  return labels;
}

LoaderOptions everything_random(int global_batch) {
  return {.seed = 5,
          .global_batch = global_batch,
          .augmentation = {.output = {8, 8},
                           .operations = {RandomResizedCrop{}, RandomHorizontalFlip{},
                                          RandomColorJitter{.brightness = {-63, 63},
                                                            .contrast = {0.2f, 1.8f},
                                                            .saturation = {0.5f, 1.5f},
                                                            .hue = {-0.2f, 0.2f}}}}};
}

LoaderOptions one_rank(LoaderOptions options) {
  options.share = {0, options.global_batch};
  return options;
}

LoaderOptions plain(Split mode, int global_batch, Extent extent) {
  return one_rank({.mode = mode, .global_batch = global_batch, .augmentation = {.output = extent}});
}

}  // namespace

TEST_CASE("loader: shares follow each other and the first ranks get one more") {
  const int global = GENERATE(1, 7, 8, 9, 128), ranks = GENERATE(1, 2, 3, 8);
  int next = 0, least = global, most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const BatchShard share = share_of(global, rank, ranks);
    CHECK(share.first == next);
    CHECK((rank == 0 || share.count <= share_of(global, rank - 1, ranks).count));
    next += share.count;
    least = std::min(least, share.count);
    most = std::max(most, share.count);
  }

  CHECK(next == global);
  CHECK(most - least <= 1);
}

TEST_CASE("loader: batches depend neither on threads nor on slots nor on ranks") {
  const CountingDataset data(53, {11, 13}, {4});
  const LoaderOptions options = everything_random(12);
  const auto expected = first_places(data, options, 1, 12);
  const int threads = GENERATE(1, 2, 3), slots = GENERATE(0, 1, 5), ranks = GENERATE(1, 2, 3, 4, 5);
  CAPTURE(threads, slots, ranks);

  LoaderOptions other = options;
  other.threads = threads;
  other.slots = slots;

  CHECK(first_places(data, other, ranks, 12) == expected);
}

TEST_CASE("loader: what policies and erasing draw depends on seed, epoch and sample alone") {
  const CountingDataset data(53, {11, 13}, {4});
  LoaderOptions options = everything_random(12);
  auto& operations = options.augmentation.operations;
  const AugmentationOperation policy =
      GENERATE(AugmentationOperation(TrivialAugmentWide{}), AugmentationOperation(RandAugment{}),
               AugmentationOperation(AutoAugment{}), AugmentationOperation(TimmRandAugment{}));
  operations.push_back(policy);
  operations.push_back(RandomErasing{.probability = 0.5});
  const auto expected = first_places(data, options, 1, 12);
  const auto erased =
      std::ranges::count_if(expected, [](const Place& p) { return p.erased[2] > 0; });
  CHECK(erased > 43);  // of 144
  CHECK(erased < 101);
  std::map<std::uint64_t, std::set<std::uint64_t>> images;
  for (const Place& place : expected) images[place.sample].insert(place.image);
  CHECK(std::ranges::count_if(images, [](const auto& of) { return of.second.size() > 1; }) > 40);

  LoaderOptions other = options;
  other.threads = GENERATE(1, 3);
  const int ranks = GENERATE(1, 2, 5);

  CHECK(first_places(data, other, ranks, 12) == expected);
  operations.erase(operations.end() - 2);
  CHECK(first_places(data, options, 1, 12) != expected);
}

namespace {

LoaderOptions everything_mixed(int global_batch) {
  LoaderOptions options{.seed = 5, .global_batch = global_batch};
  options.augmentation = {
      .output = {12, 16},
      .operations = {RandomResizedCrop{}, AlternatingFlip{}, TrivialAugmentWide{},
                     RandomErasing{.probability = 0.5, .colour = Colour{}}},
      .mixing = {.mixup = 0.4, .cutmix = 1, .probability = 0.9},
      .repeats = 3};
  return options;
}

struct MixedPlace {
  Place place;
  std::int32_t other;
  float weight;
  friend bool operator==(const MixedPlace&, const MixedPlace&) = default;
};

/// Of so many micro-steps.
std::vector<MixedPlace> mixed_places(const Dataset& data, LoaderOptions options, int ranks,
                                     int micro_steps) {
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int rank = 0; rank < ranks; ++rank) {
    options.share = share_of(options.global_batch, rank, ranks);
    loaders.push_back(std::make_unique<Loader>(data, options));
  }
  std::vector<MixedPlace> all;
  for (int b = 0; b < micro_steps; ++b)
    for (const auto& loader : loaders) {
      const Batch* batch = loader->next();
      const std::vector<Place> places = places_of(*batch);
      for (int i = 0; i < batch->size(); ++i)
        all.push_back({places[i], batch->samples[i].target.other, batch->samples[i].target.weight});
    }
  return all;
}

}  // namespace

TEST_CASE("loader: mixed batches depend neither on threads nor on ranks nor on micro-steps") {
  const CountingDataset data(53, {11, 13}, {4});
  LoaderOptions options = everything_mixed(GENERATE(24, 25));
  options.augmentation.mixing.by_step = GENERATE(false, true);
  const int steps = 5;
  const auto expected = mixed_places(data, options, 1, steps);
  const auto mixed = std::ranges::count_if(expected, [](auto& p) { return p.weight < 1; });
  CHECK(mixed > 40);  // of 120
  if (options.augmentation.mixing.by_step) {
    std::set<float> weights;
    for (int i = 0; i < 24; ++i) weights.insert(expected[i].weight);
    CHECK(weights.size() == 1);
  }

  LoaderOptions other = options;
  other.threads = GENERATE(1, 3);
  const int ranks = GENERATE(1, 2, 3, 4, 7);
  CAPTURE(options.global_batch, ranks);
  CHECK(mixed_places(data, other, ranks, steps) == expected);
  if (options.global_batch != 24) return;
  for (const int micro_steps : {2, 3, 8}) {
    other.global_batch = 24 / micro_steps;
    other.micro_steps = micro_steps;
    if (ranks <= other.global_batch)
      CHECK(mixed_places(data, other, ranks, steps * micro_steps) == expected);
  }
}

TEST_CASE("loader: mixed batches go on at any step") {
  const CountingDataset data(53, {11, 13}, {4});
  LoaderOptions options = everything_mixed(24);
  const auto expected = mixed_places(data, options, 1, 6);
  options.start = 4 * 24;

  const auto rest = mixed_places(data, options, 2, 2);

  CHECK(rest == std::vector(expected.begin() + 4 * 24, expected.end()));
}

TEST_CASE("loader: neighbours of a step are mixed with each other") {
  const CountingDataset data(200, {11, 13}, {4});
  LoaderOptions options = one_rank(plain(Split::training, 9, {11, 13}));
  Loader alone(data, options);
  options.augmentation.mixing = {.mixup = 1};
  Loader mixed(data, options);
  for (int step = 0; step < 4; ++step) {
    const Batch& single = *alone.next();
    const Batch& batch = *mixed.next();
    for (int place = 0; place < 9; ++place) {
      const int partner = place == 8 ? place : place ^ 1;
      const Target& target = batch.samples[place].target;
      const int own = single.samples[place].target.label,
                other = single.samples[partner].target.label;
      const double part = own == other ? -1 : target.share_of(own);
      CHECK(std::set{target.label, target.other} == std::set{own, other});
      if (part < 0) continue;
      for (std::size_t i = 0; i < batch.image_bytes(); ++i) {
        const double a = single.images[place * batch.image_bytes() + i],
                     b = single.images[partner * batch.image_bytes() + i];
        REQUIRE(std::abs(batch.images[place * batch.image_bytes() + i] -
                         (part * a + (1 - part) * b)) <= 0.501);
      }
    }
  }
}

TEST_CASE("loader: an alternating flip mirrors each image in every second epoch") {
  const CountingDataset data(40, {8, 8}, {4});
  LoaderOptions options = one_rank(plain(Split::training, 40, {8, 8}));
  options.augmentation.operations = {AlternatingFlip{}};
  Loader loader(data, options);
  std::map<std::uint64_t, std::vector<std::uint64_t>> images;
  for (int epoch = 0; epoch < 4; ++epoch)
    for (const Place& place : places_of(*loader.next()))
      images[place.sample].push_back(place.image);
  int mirrored_first = 0;
  for (const auto& [sample, seen] : images) {
    CHECK(seen[0] != seen[1]);
    CHECK((seen[0] == seen[2] && seen[1] == seen[3]));
    mirrored_first += seen[0] != hash_of(data.image(sample).pixels);
  }

  CHECK(mirrored_first > 8);
  CHECK(mirrored_first < 32);
}

TEST_CASE("loader: images of one channel are the grey levels of those of three") {
  const CountingDataset data(53, {11, 13}, {4});
  LoaderOptions options = one_rank(everything_random(12));
  Loader in_colours(data, options);
  options.channels = 1;
  Loader in_grey(data, options);

  const Batch &colours = *in_colours.next(), &grey = *in_grey.next();

  CHECK(grey.channels == 1);
  REQUIRE(grey.images.size() * 3 == colours.images.size());
  for (std::size_t i = 0; i < grey.images.size(); ++i) {
    const std::uint8_t* rgb = &colours.images[3 * i];
    const double exact = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2];  // ITU-R 601
    CHECK(std::abs(grey.images[i] - exact) <= 0.51);
  }
}

TEST_CASE("loader: images of four channels have their colours and, cut out likewise, opacity") {
  const TempDirectory home;
  const Image image = gradient_image({13, 17});  // its opacity is half of its red
  write_file(home.path() / "train/a/1.png", encode_png(image, PngKind::rgb_alpha));
  write_file(home.path() / "train/a/2.png", encode_png(image));
  const auto data = open_dataset("images:" + home.path().native(), Split::training);
  LoaderOptions options = one_rank(everything_random(8));
  options.augmentation.operations.push_back(RandomCrop{.padding = GENERATE(0, 4)});
  Loader in_colours(*data, options);
  options.channels = 4;
  Loader in_four(*data, options);

  const Batch &colours = *in_colours.next(), &four = *in_four.next();

  CHECK(four.channels == 4);
  REQUIRE(four.images.size() * 3 == colours.images.size() * 4);
  for (std::size_t i = 0; i < four.images.size() / 4; ++i) {
    const std::uint8_t *rgb = &colours.images[3 * i], *rgba = &four.images[4 * i];
    CHECK(std::equal(rgb, rgb + 3, rgba));
    if (four.samples[i / 64].index == 0)
      CHECK(std::abs(rgba[3] - rgb[0] / 2.0) <= 1);
    else
      CHECK(rgba[3] == (rgb[0] + rgb[1] + rgb[2] > 0 ? 255 : 0));  // around it all is 0
  }
}

TEST_CASE("loader: another seed or epoch gives another order and other crops") {
  const CountingDataset data(10, {11, 13});
  LoaderOptions options = everything_random(10);
  const auto both_epochs = first_places(data, options, 1, 2);
  options.seed = 6;

  CHECK(first_places(data, options, 1, 1) !=
        std::vector(both_epochs.begin(), both_epochs.begin() + 10));
  std::map<std::uint64_t, std::set<std::uint64_t>> images;
  for (const Place& place : both_epochs) images[place.sample].insert(place.image);
  for (const auto& [sample, seen] : images) CHECK(seen.size() == 2);
}

TEST_CASE("loader: every sample once an epoch, batches straddle epochs") {
  const std::uint64_t size = 23;
  const CountingDataset data(size, {3, 4});
  const LoaderOptions options = plain(Split::training, 7, {3, 4});

  const auto places = first_places(data, options, 1, size);

  std::map<std::pair<std::uint32_t, std::uint64_t>, int> seen;
  for (const Place& place : places) ++seen[{place.epoch, place.sample}];
  CHECK(seen.size() == 7 * size);
  for (std::size_t p = 0; p < places.size(); ++p) {
    CHECK(places[p].epoch == p / size);
    CHECK(places[p].label == data.label(places[p].sample));
    CHECK(places[p].image == hash_of(data.image(places[p].sample).pixels));
  }
}

TEST_CASE("loader: starting at a position continues the stream") {
  const CountingDataset data(23, {11, 13});
  LoaderOptions options = everything_random(6);
  const auto all = first_places(data, options, 1, 10);
  options.start = 5 * 6;

  const auto rest = first_places(data, options, 2, 5);

  CHECK(rest == std::vector(all.begin() + 30, all.end()));
}

namespace {

/// Sample 7 is all of its class, the others are of two.
class RareDataset final : public Dataset {
 public:
  explicit RareDataset(std::uint64_t size) : all_(size, {11, 13}) {}
  std::uint64_t size() const override { return all_.size(); }
  const std::vector<std::string>& class_names() const override { return all_.class_names(); }
  int label(std::uint64_t sample) const override {
    return sample == 7 ? 0 : 1 + static_cast<int>(sample % 2);
  }
  std::unique_ptr<SampleReader> reader() const override { return all_.reader(); }
  std::string description() const override { return "rare"; }
  std::uint64_t manifest_hash() const override { return all_.manifest_hash(); }

 private:
  CountingDataset all_;
};

LoaderOptions balanced(int global_batch) {
  LoaderOptions options = everything_random(global_batch);
  options.balance = true;
  return options;
}

}  // namespace

TEST_CASE("loader: balanced batches depend neither on threads nor on ranks, and go on anywhere") {
  const RareDataset data(23);
  LoaderOptions options = balanced(6);
  const auto all = first_places(data, options, 1, 10);
  options.threads = GENERATE(1, 3);
  const int ranks = GENERATE(1, 2, 5);

  CHECK(first_places(data, options, ranks, 10) == all);
  options.start = 5 * 6;
  CHECK(first_places(data, options, ranks, 5) == std::vector(all.begin() + 30, all.end()));
}

TEST_CASE("loader: balanced, an image that comes again in an epoch is augmented otherwise") {
  const std::uint64_t size = 24;
  const RareDataset data(size);
  std::set<std::uint64_t> images;
  std::set<float> brightness;
  std::map<std::int32_t, int> labels;

  for (const Place& place : first_places(data, balanced(8), 1, size / 8)) {
    CHECK(place.epoch == 0);
    CHECK(place.label == data.label(place.sample));
    ++labels[place.label];
    if (place.sample != 7) continue;
    images.insert(place.image);
    brightness.insert(place.brightness);
  }

  CHECK(labels == std::map<std::int32_t, int>{{0, 8}, {1, 8}, {2, 8}});
  CHECK(images.size() == 8);
  CHECK(brightness.size() == 8);
}

TEST_CASE("loader: evaluation sees each sample once, in order, and pads the last batches") {
  const std::uint64_t size = GENERATE(1u, 11u, 12u, 13u);
  const int ranks = GENERATE(1, 2, 3);
  CAPTURE(size, ranks);
  const CountingDataset data(size, {5, 5});
  LoaderOptions options = everything_random(6);
  options.mode = Split::evaluation;
  options.threads = 2;
  const std::uint64_t batches = (size + 5) / 6;

  const auto places = first_places(data, options, ranks, batches);

  REQUIRE(places.size() == batches * 6);
  for (std::uint64_t p = 0; p < places.size(); ++p) {
    CHECK(places[p].sample == p);
    CHECK(places[p].label == (p < size ? data.label(p) : -1));
    CHECK(places[p].brightness == 0);
    CHECK(places[p].contrast == 1);
  }
}

TEST_CASE("loader: an evaluation ends with null on every rank after equally many batches") {
  const CountingDataset data(13, {5, 5});
  for (int rank = 0; rank < 4; ++rank) {
    Loader loader(data, {.mode = Split::evaluation,
                         .global_batch = 6,
                         .share = share_of(6, rank, 4),
                         .augmentation = {.output = {5, 5}}});
    CHECK(loader.evaluation_batches() == 3);
    for (int b = 0; b < 3; ++b) {
      const Batch* batch = loader.next();
      REQUIRE(batch != nullptr);
      CHECK(batch->size() == share_of(6, rank, 4).count);
    }
    CHECK(loader.next() == nullptr);
    CHECK(loader.next() == nullptr);
  }
}

TEST_CASE("loader: a batch's memory is recycled") {
  const CountingDataset data(100, {5, 5});
  LoaderOptions options = plain(Split::training, 4, {5, 5});
  options.threads = 2;
  options.slots = 3;
  Loader loader(data, options);
  std::set<const std::uint8_t*> memory;

  for (int b = 0; b < 50; ++b) memory.insert(loader.next()->images.data());

  CHECK(memory.size() == 3);
}

TEST_CASE("loader: an unreadable sample is replaced by the next readable one, in training") {
  const CountingDataset data(20, {3, 3}, {4, 5, 19});
  Loader loader(data, plain(Split::training, 20, {3, 3}));

  const auto places = places_of(*loader.next());

  for (const Place& place : places) {
    const std::uint64_t source = place.sample == 4 || place.sample == 5 ? 6
                                 : place.sample == 19                   ? 0
                                                                        : place.sample;
    CHECK(place.image == hash_of(data.image(source).pixels));
    CHECK(place.label == data.label(source));
  }
  CHECK(loader.unreadable() == std::set<std::uint64_t>{4, 5, 19});
  const auto events = loader.take_events();
  REQUIRE(events.size() == 3);  // 5 was met twice, the second time in place of 4
  CHECK_THAT(events[0], Contains("planted") && Contains("the next one takes its place"));
  CHECK(loader.take_events().empty());
}

TEST_CASE("loader: a damaged file of an image folder is named, whatever its size and neighbours") {
  const TempDirectory home;
  const auto directory = home.path() / "train/a";
  for (const char* name : {"0.jpg", "1.jpg", "3.jpg", "4.jpg"})
    write_file(directory / name, encode_jpeg(gradient_image({40 + name[0] % 5, 61})));
  Bytes cut = encode_jpeg(gradient_image({400, 300}));
  cut.resize(cut.size() / 2);
  write_file(directory / "2.jpg", cut);
  const auto data = open_dataset("images:" + home.path().native(), Split::training);
  Loader loader(*data, plain(Split::training, 5, {16, 16}));

  const Batch* batch = loader.next();

  CHECK(labels_of(*batch) == std::vector<std::int32_t>(5, 0));
  const auto events = loader.take_events();
  REQUIRE(events.size() == 1);
  CHECK_THAT(events[0], Contains("unreadable sample 2") && Contains("train/a/2.jpg") &&
                            Contains("JPEG, near byte"));
}

TEST_CASE("loader: an unreadable sample counts for nothing in evaluation") {
  const CountingDataset data(6, {3, 3}, {4});
  Loader loader(data, plain(Split::evaluation, 6, {3, 3}));

  const Batch* batch = loader.next();

  CHECK(labels_of(*batch) == std::vector<std::int32_t>{0, 1, 2, 0, -1, 2});
  CHECK(loader.unreadable() == std::set<std::uint64_t>{4});
}

TEST_CASE("loader: an unreadable sample is news once, however many epochs and ranks meet it") {
  const CountingDataset data(30, {2, 2}, {7, 13});
  LoaderOptions options = plain(Split::training, 10, {2, 2});
  options.threads = GENERATE(1, 3);
  Loader loader(data, options);
  loader.add_unreadable(std::vector<std::uint64_t>{13});  // another rank's

  std::vector<std::uint64_t> news;
  for (int batch = 0; batch < 3 * 40; ++batch) {
    loader.next();
    CHECK(loader.has_new_unreadable() == (loader.unreadable().size() == 2 && news.empty()));
    std::ranges::copy(loader.take_unreadable(), std::back_inserter(news));
  }

  CHECK(news == std::vector<std::uint64_t>{7});
  CHECK(loader.unreadable() == std::set<std::uint64_t>{7, 13});
  CHECK_THAT(loader.last_event(), Contains("unreadable sample 7"));
  CHECK(loader.take_events().size() == 1);
}

TEST_CASE("loader: unreadable samples are too many beyond ten and 0.1 % of the set") {
  CHECK_FALSE(too_many_unreadable(10, 10));
  CHECK(too_many_unreadable(11, 11));
  CHECK(too_many_unreadable(11, 10'999));
  CHECK_FALSE(too_many_unreadable(11, 11'000));
  CHECK_FALSE(too_many_unreadable(1281, 1'281'167));
  CHECK(too_many_unreadable(1282, 1'281'167));
}

TEST_CASE("loader: when nothing can be read that is said, not searched for ever") {
  std::vector<std::uint64_t> all(30);
  std::iota(all.begin(), all.end(), 0u);
  const CountingDataset data(30, {2, 2}, all);
  Loader loader(data, plain(Split::training, 4, {2, 2}));

  for (int again = 0; again < 2; ++again) {
    const auto error = error_of([&] { loader.next(); });
    REQUIRE(error);
    CHECK(error->code() == Exit::data);
    CHECK_THAT(error->what(), Contains("counting") && Contains("planted"));
  }
}

namespace {

/// Fails or waits as a file system might.
class TroubledDataset final : public Dataset {
 public:
  explicit TroubledDataset(std::function<void()> trouble) : trouble_(std::move(trouble)) {}
  std::uint64_t size() const override { return 100; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int label(std::uint64_t) const override { return 0; }
  std::unique_ptr<SampleReader> reader() const override;
  std::string description() const override { return "troubled"; }
  std::uint64_t manifest_hash() const override { return 0; }

  void trouble() const { trouble_(); }

 private:
  std::function<void()> trouble_;
  std::vector<std::string> names_{"a"};
};

class TroubledReader final : public SampleReader {
 public:
  explicit TroubledReader(const TroubledDataset& data) : data_(data) {}
  Extent open(std::uint64_t) override {
    data_.trouble();
    image_.reshape({2, 2});
    return image_.extent;
  }
  PixelView pixels(const CropRequest&) override { return {image_.view()}; }

 private:
  const TroubledDataset& data_;
  Image image_;
};

std::unique_ptr<SampleReader> TroubledDataset::reader() const {
  return std::make_unique<TroubledReader>(*this);
}

}  // namespace

TEST_CASE("loader: a failure in a loader thread comes out of next(), after the batches before it") {
  std::atomic<int> opened = 0;
  const TroubledDataset data([&] {
    if (++opened > 10) throw std::runtime_error("out of luck");
  });
  Loader loader(data, plain(Split::training, 5, {2, 2}));

  CHECK(loader.next() != nullptr);
  CHECK(loader.next() != nullptr);
  CHECK_THROWS_WITH(loader.next(), "out of luck");
  CHECK_THROWS_WITH(loader.next(), "out of luck");
}

TEST_CASE("loader: it can be dropped at any moment") {
  std::atomic<int> opened = 0;
  const TroubledDataset data([&] {
    ++opened;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  {
    LoaderOptions options = plain(Split::training, 1000, {2, 2});
    options.threads = 3;
    const Loader loader(data, options);
    while (opened == 0) std::this_thread::yield();
  }

  CHECK(opened < 1000);  // as many as a batch has
}

TEST_CASE("loader: what nobody will ask for is not read") {
  std::atomic<int> opened = 0;
  const TroubledDataset data([&] { ++opened; });
  LoaderOptions options = plain(Split::training, 5, {2, 2});
  options.most_batches = 2;
  {
    Loader loader(data, options);
    CHECK(loader.next() != nullptr);
    CHECK(loader.next() != nullptr);
    CHECK(loader.next() == nullptr);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  CHECK(opened == 10);
}

TEST_CASE("loader: dropped, its threads stop together and not one after the other") {
  constexpr int threads = 8;
  std::atomic<int> opened = 0;
  const TroubledDataset data([&] {
    ++opened;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  });
  {
    LoaderOptions options = plain(Split::training, 1000, {2, 2});
    options.threads = threads;
    const Loader loader(data, options);
    while (opened < threads) std::this_thread::yield();
  }

  CHECK(opened <= 2 * threads);  // stopped in turn, they would open about 36
}

TEST_CASE("loader: refuses a share outside the batch and a recipe that leaves gaps") {
  const CountingDataset data(10, {5, 5});
  const auto with = [&](const LoaderOptions& options) { Loader(data, options); };

  CHECK_THROWS_AS(with({.global_batch = 4, .share = {0, 0}}), Error);
  CHECK_THROWS_AS(with({.global_batch = 4, .share = {3, 2}}), Error);
  CHECK_THROWS_AS(with({.threads = 0}), Error);
  CHECK_THROWS_AS(with({.augmentation = {.output = {32, 32}, .cover = {24, 24}}}), Error);
  CHECK_NOTHROW(
      with({.augmentation = {
                .output = {32, 32}, .cover = {24, 24}, .operations = {RandomCrop{.padding = 4}}}}));
}
