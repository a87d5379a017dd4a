#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "ringtrain/base/hash.hpp"
#include "support/catch.hpp"
#include "unit/io/dataset/data_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;

namespace {

std::unique_ptr<Dataset> open(const TempDirectory& home, Split split = Split::training) {
  return open_dataset("images:" + home.path().native(), split);
}

/// The line for the log about a split.
std::string told(const TempDirectory& home, Split split = Split::training) {
  std::vector<std::string> lines;
  open_dataset("images:" + home.path().native(), split,
               {.tell = [&](const std::string& line) { lines.push_back(line); }});
  REQUIRE(lines.size() == 1);
  return lines[0];
}

std::string folder_complaint(const TempDirectory& home, Split split = Split::training) {
  const auto error = error_of([&] { open(home, split); });
  REQUIRE(error);
  CHECK(error->code() == Exit::data);
  return error->what();
}

const Image small_picture = gradient_image({8, 9});

}  // namespace

TEST_CASE("images: sorted class directories are labels, formats go by content") {
  const TempDirectory home;
  write_file(home.path() / "train/b/2.jpg", encode_jpeg(small_picture));
  write_file(home.path() / "train/b/1.JPEG", encode_png(small_picture));  // misnamed
  write_file(home.path() / "train/B/x", encode_png(small_picture, PngKind::palette));
  write_file(home.path() / "train/a-c/y.png", encode_png(small_picture));
  write_text(home.path() / "train/b/.hidden", "x");
  write_text(home.path() / "train/README", "x");
  std::filesystem::create_symlink("1.JPEG", home.path() / "train/b/3-link");

  const auto images = open(home);

  CHECK(images->class_names() == std::vector<std::string>{"B", "a-c", "b"});
  REQUIRE(images->size() == 5);
  CHECK(images->label(0) == 0);
  CHECK(images->label(1) == 1);
  CHECK(images->label(2) == 2);
  CHECK(images->label(3) == 2);
  CHECK(images->read(2).pixels == small_picture.pixels);
  CHECK(largest_difference(images->read(3).view(), small_picture.view()) < 12);
  CHECK(images->read(4).pixels == small_picture.pixels);
}

TEST_CASE("images: evaluation reads val, else test, with training's labels") {
  const TempDirectory home;
  for (const char* name : {"train/a/1", "train/b/1", "train/c/1", "test/c/1", "test/c/2"})
    write_file(home.path() / name, encode_png(small_picture));

  const auto from_test = open(home, Split::evaluation);
  write_file(home.path() / "val/b/1", encode_png(small_picture));
  const auto from_val = open(home, Split::evaluation);

  CHECK(from_test->size() == 2);
  CHECK(from_test->label(0) == 2);
  CHECK(from_val->size() == 1);
  CHECK(from_val->label(0) == 1);
  CHECK(from_val->classes() == 3);
}

TEST_CASE("images: without val and test there is nothing to evaluate on") {
  const TempDirectory home;
  write_file(home.path() / "train/a/1", encode_png(small_picture));

  CHECK(open(home, Split::evaluation) == nullptr);
  CHECK(open(home)->size() == 1);
}

TEST_CASE("images: an evaluation alone has its own classes, or those that a network learned") {
  const TempDirectory home;
  for (const char* name : {"val/b/1", "val/c/1"})
    write_file(home.path() / name, encode_png(small_picture));
  const auto open_with = [&](std::vector<std::string> names) {
    return open_dataset("images:" + home.path().native(), Split::evaluation,
                        {.class_names = std::move(names)});
  };

  CHECK(open(home, Split::evaluation)->class_names() == std::vector<std::string>{"b", "c"});
  const auto learned = open_with({"c", "a", "b"});
  CHECK(learned->classes() == 3);
  CHECK(learned->label(0) == 2);
  CHECK(learned->label(1) == 0);
  CHECK_THROWS_WITH(open_with({"a", "b"}), Contains("val/c") && Contains("no such class"));
  CHECK_THAT(folder_complaint(home), Contains("no directory train/"));
  write_file(home.path() / "train/c/1", encode_png(small_picture));
  write_file(home.path() / "train/b/1", encode_png(small_picture));
  CHECK(open_with({"c", "a", "b"})->classes() == 2);  // training's word counts
}

TEST_CASE("images: an evaluation alone whose classes nobody names says so") {
  const TempDirectory home;
  write_file(home.path() / "val/b/1", encode_png(small_picture));
  const auto told_with = [&](std::vector<std::string> names) {
    std::string all;
    open_dataset(
        "images:" + home.path().native(), Split::evaluation,
        {.class_names = std::move(names), .tell = [&](const std::string& line) { all += line; }});
    return all;
  };

  CHECK_THAT(told_with({}), Contains("to evaluate on; no training part and no checkpoint names"));
  CHECK_THAT(told_with({"a", "b"}), !Contains("no checkpoint"));
  write_file(home.path() / "train/b/1", encode_png(small_picture));
  CHECK_THAT(told_with({}), !Contains("no checkpoint"));
}

TEST_CASE("images: where nothing is trained, learned names count beside a training part") {
  const TempDirectory home;
  for (const char* name : {"train/a/1", "train/b/1", "train/c/1", "val/b/1", "val/c/1"})
    write_file(home.path() / name, encode_png(small_picture));
  const auto open_with = [&](std::vector<std::string> names) {
    return open_dataset("images:" + home.path().native(), Split::evaluation,
                        {.class_names = std::move(names), .only_evaluated = true});
  };

  const auto learned = open_with({"b", "c"});  // `a` is new since
  CHECK(learned->classes() == 2);
  CHECK(learned->label(0) == 0);
  CHECK(learned->label(1) == 1);
  CHECK(open_with({"1", "2", "3"})->label(0) == 1);  // of shards, which have other names
}

TEST_CASE(
    "images: of learned names that are equal no label follows, and the others stay in place") {
  const TempDirectory home;
  for (const char* name : {"val/crane/1", "val/dog/1"})
    write_file(home.path() / name, encode_png(small_picture));
  const auto open_with = [&](std::vector<std::string> names) {
    return open_dataset("images:" + home.path().native(), Split::evaluation,
                        {.class_names = std::move(names)});
  };

  CHECK_THROWS_WITH(open_with({"crane", "cat", "crane", "dog"}),
                    Contains("val/crane: the network's classes 0 and 2 are both called so"));
  std::filesystem::remove_all(home.path() / "val/crane");
  CHECK(open_with({"crane", "cat", "crane", "dog"})->label(0) == 3);
}

TEST_CASE("images: what cannot be trained on is found when opened") {
  const TempDirectory home;

  CHECK_THAT(folder_complaint(home), Contains("no directory train/"));
  std::filesystem::create_directories(home.path() / "train");
  CHECK_THAT(folder_complaint(home), Contains("no class directories"));
  write_file(home.path() / "train/cat/1.png", encode_png(small_picture));
  std::filesystem::create_directories(home.path() / "train/dog/inner");
  CHECK_THAT(folder_complaint(home), Contains("train/dog") && Contains("the class has no images"));
  write_file(home.path() / "train/dog/1.png", encode_png(small_picture));
  write_file(home.path() / "val/bird/1.png", encode_png(small_picture));
  CHECK_THAT(folder_complaint(home, Split::evaluation),
             Contains("val/bird") && Contains("training has no such class"));
}

TEST_CASE("images: a directory that may not be read is named") {
  const TempDirectory home;
  const auto secret = home.path() / "train/cat";
  write_file(secret / "1.png", encode_png(small_picture));
  std::filesystem::permissions(secret, std::filesystem::perms::none);
  const OrdinaryUser user(home.path());

  CHECK_THAT(folder_complaint(home), Contains("train/cat") && Contains("Permission denied"));
}

TEST_CASE("images: names that are no UTF-8 work and are escaped in messages") {
  const TempDirectory home;
  write_file(home.path() / "train/caf\xe9/n\n1", encode_png(small_picture));
  write_text(home.path() / "train/caf\xe9/n\n2.jpg", "text");
  const auto images = open(home);

  CHECK(images->class_names()[0] == "caf\xe9");
  CHECK(images->read(0).pixels == small_picture.pixels);
  const auto error = error_of([&] { images->read(1); });
  REQUIRE(error);
  CHECK_THAT(error->what(), Contains("caf\\xe9/n\\x0a2.jpg") && Contains("neither JPEG nor PNG"));
}

TEST_CASE("images: an unreadable file is an error of its sample alone, with path and reason") {
  const TempDirectory home;
  const auto directory = home.path() / "train/a";
  write_file(directory / "0-empty.jpg", {});
  write_text(directory / "1-text.jpg", "hello");
  Bytes cut = encode_jpeg(small_picture);
  cut.resize(cut.size() - 20);
  write_file(directory / "2-cut.jpg", cut);
  write_file(directory / "3-replaced.jpg", encode_jpeg(small_picture));
  write_file(directory / "4-good.jpg", encode_jpeg(small_picture));
  const auto images = open(home);
  std::filesystem::remove(directory / "3-replaced.jpg");
  REQUIRE(::mkfifo((directory / "3-replaced.jpg").c_str(), 0600) == 0);

  const auto reader = images->reader();
  const auto why = [&](std::uint64_t sample) -> std::string {
    try {
      reader->pixels({.extent = reader->open(sample)});
    } catch (const UnreadableSample& failure) {
      return failure.what();
    }
    return "";
  };

  CHECK_THAT(why(0), Contains("0-empty.jpg") && Contains("0 bytes"));
  CHECK_THAT(why(1), Contains("1-text.jpg") && Contains("neither JPEG nor PNG"));
  CHECK_THAT(why(2), Contains("2-cut.jpg") && Contains("JPEG, near byte"));
  CHECK_THAT(why(3), Contains("3-replaced.jpg") && Contains("not a regular file"));
  CHECK(why(4) == "");
}

TEST_CASE("images: a file that is gone ends the job, and nothing takes its place") {
  const TempDirectory home;
  const auto directory = home.path() / "train/a";
  for (const char* name : {"1.jpg", "2.jpg"})
    write_file(directory / name, encode_jpeg(small_picture));
  const auto images = open(home);
  std::filesystem::remove(directory / "2.jpg");

  const auto error = error_of([&] { images->read(1); });

  REQUIRE(error);
  CHECK(error->code() == Exit::data);
  CHECK_THAT(error->what(), Contains("2.jpg: No such file or directory") && Contains("mend that"));
  CHECK_THROWS_MATCHES(images->read(1), Error, !Catch::Predicate<Error>([](const Error& failure) {
                         return dynamic_cast<const UnreadableSample*>(&failure) != nullptr;
                       }));
}

TEST_CASE("images: a file that is a link to nowhere is refused before training") {
  const TempDirectory home;
  write_file(home.path() / "train/a/1.jpg", encode_jpeg(small_picture));
  std::filesystem::create_symlink("nowhere", home.path() / "train/a/2.jpg");

  CHECK_THAT(folder_complaint(home), Contains("train/a/2.jpg") && Contains("No such file"));
}

TEST_CASE("images: a class that is a link to nowhere would shift labels, and is refused") {
  const TempDirectory home;
  write_file(home.path() / "train/b/1", encode_png(small_picture));
  std::filesystem::create_directory_symlink(home.path() / "moved", home.path() / "train/a");

  const auto error = error_of([&] { open(home); });

  REQUIRE(error);
  CHECK(error->code() == Exit::data);
  CHECK_THAT(error->what(), Contains("train/a") && Contains("the link leads nowhere"));
  write_file(home.path() / "moved/1", encode_png(small_picture));
  CHECK(open(home)->class_names() == std::vector<std::string>{"a", "b"});
}

TEST_CASE("images: those in folders below a class are its own, behind those of the class itself") {
  const TempDirectory home;
  const std::vector<std::string> in_order{"a/z.png",      "a/early/d.png",     "a/more/a.png",
                                          "a/more/b.png", "a/more/deep/c.png", "b/images/e.png"};
  for (std::size_t i = 0; i < in_order.size(); ++i)
    write_file(home.path() / "train" / in_order[i],
               encode_png(gradient_image({8, 9 + static_cast<int>(i)})));

  const auto images = open(home);

  CHECK(images->class_names() == std::vector<std::string>{"a", "b"});
  REQUIRE(images->size() == 6);
  for (int i = 0; i < 6; ++i) {
    CHECK(images->read(i).extent.width == 9 + i);
    CHECK(images->label(i) == (i < 5 ? 0 : 1));
  }
  CHECK_THAT(told(home), Contains("images: 6 files of 2 classes in 5 folders of ") &&
                             Contains("/train, to train on") && !Contains("left out"));
}

TEST_CASE("images: folders that servers, archives and hidden names make hold none") {
  const TempDirectory home;
  for (const char* name : {"a/1.png", "a/@eaDir/1.png", "a/.cache/1.png", "a/x/__MACOSX/1.png",
                           "a/x/2.png", "@eaDir/1.png", "__MACOSX/a/1.png", ".b/1.png"})
    write_file(home.path() / "train" / name, encode_png(small_picture));

  CHECK(open(home)->size() == 2);
  CHECK(open(home)->class_names() == std::vector<std::string>{"a"});
}

TEST_CASE("images: what is no image by content is left out where its name says nothing") {
  const TempDirectory home;
  const auto directory = home.path() / "train/a";
  write_file(directory / "1", encode_jpeg(small_picture));
  write_file(directory / "2.db", encode_png(small_picture));
  write_text(directory / "3-damaged.JPG", "no image");
  write_text(directory / "4-other.gif", "GIF89a");
  write_text(directory / "Thumbs.db", "thumbs");
  write_text(directory / "desktop.ini", "");
  write_text(directory / "below/boxes.txt", "1 2 3 4");

  CHECK(open(home)->size() == 4);
  CHECK_THAT(told(home), Contains("images: 4 files of 1 classes in 1 folder of ") &&
                             Contains("left out: 3 files of no image, the first ") &&
                             Contains("/train/a/Thumbs.db"));
  write_text(home.path() / "train/b/boxes.txt", "1 2 3 4");
  CHECK_THAT(folder_complaint(home), Contains("train/b: the class has no images"));
}

TEST_CASE("images: the folder to evaluate on has many names, and the one that is used is told") {
  const auto name = GENERATE("val", "valid", "validation", "Val", "VALIDATION", "test");
  const TempDirectory home;
  for (const char* image : {"train/a/1.png", "train/b/1.png"})
    write_file(home.path() / image, encode_png(small_picture));
  write_file(home.path() / name / "b/1.png", encode_png(small_picture));
  write_file(home.path() / "zoo/b/1.png", encode_png(small_picture));

  const auto images = open(home, Split::evaluation);
  REQUIRE(images);
  CHECK(images->label(0) == 1);
  CHECK_THAT(told(home, Split::evaluation),
             Contains("images: 1 files of 1 of 2 classes in 1 folder of ") &&
                 Contains("/" + std::string(name) + ", to evaluate on; not used: zoo/"));
}

TEST_CASE("images: of several folders to evaluate on the first is used, and the others are told") {
  const TempDirectory home;
  for (const char* image : {"train/a/1.png", "test/a/1.png", "Valid/a/1.png", "valid/a/1.png"})
    write_file(home.path() / image, encode_png(small_picture));

  CHECK_THAT(told(home, Split::evaluation), Contains("/valid, to ") && Contains("Valid/, test/"));
  write_file(home.path() / "Val/a/1.png", encode_png(small_picture));
  CHECK_THAT(told(home, Split::evaluation), Contains("/Val, to "));
}

TEST_CASE("images: a folder that may be meant to evaluate on is told where none is used") {
  const TempDirectory home;
  write_file(home.path() / "train/a/1.png", encode_png(small_picture));
  write_file(home.path() / "dev/a/1.png", encode_png(small_picture));

  CHECK_THAT(told(home, Split::evaluation), Contains("no val/") && Contains("not used: dev/"));
}

TEST_CASE("images: links to folders are followed, but for those that would never end") {
  const TempDirectory home;
  const auto train = home.path() / "train";
  write_file(train / "a/1.png", encode_png(small_picture));
  write_file(train / "b/1.png", encode_png(small_picture));
  write_file(home.path() / "elsewhere/1.png", encode_png(small_picture));
  const auto link = [&](const char* to, const char* from) {
    std::filesystem::create_directory_symlink(to, train / from);
  };
  link("../../elsewhere", "a/elsewhere");
  link(".", "a/self");
  link("../..", "a/top");
  link("../train/a", "../elsewhere/back");

  CHECK(open(home)->size() == 3);
  CHECK_THAT(told(home), Contains("not followed: 3 links to a folder that holds it, the first") &&
                             Contains("/train/a/elsewhere/back"));
  link("../train", "again");
  CHECK_THAT(folder_complaint(home), Contains("train/again: the link leads to a folder that hold"));
}

TEST_CASE("images: the manifest follows names, sizes and labels, not the place") {
  const TempDirectory one, two;
  for (const auto* home : {&one, &two}) write_text(home->path() / "train/a/1.jpg", "12345");
  const auto before = open(two)->manifest_hash();
  REQUIRE(open(one)->manifest_hash() == before);
  CHECK(before == hash_text("0 5", hash_text("1.jpg")));  // as in old checkpoints

  write_text(two.path() / "train/a/1.jpg", "123456");
  const auto longer = open(two)->manifest_hash();
  write_text(one.path() / "train/a/2.jpg", "1");

  CHECK(longer != before);
  CHECK(open(one)->manifest_hash() != before);
}

TEST_CASE("images: folders named by wnid have the network's labels, however many there are") {
  const TempDirectory home;
  for (const char* place : {"train/n00000003/1", "train/n00000001/1", "val/n00000001/1"})
    write_file(home.path() / place, encode_png(small_picture));
  std::vector<std::string> lines;
  DatasetOptions options{.wnids = {"n00000001", "n00000002", "n00000003", "n00000004"},
                         .tell = [&](const std::string& line) { lines.push_back(line); }};
  const std::string spec = "images:" + home.path().native();

  const auto training = open_dataset(spec, Split::training, options);
  const auto evaluation = open_dataset(spec, Split::evaluation, options);

  CHECK(training->classes() == 4);
  CHECK(training->label(0) == 0);
  CHECK(training->label(1) == 2);
  CHECK(evaluation->classes() == 4);
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[0], Contains("2 of 4 classes") &&
                           Contains("of which 2 have no images (n00000002, n00000004)"));

  write_file(home.path() / "train/n00000005/1", encode_png(small_picture));
  CHECK_THAT(error_of([&] { open_dataset(spec, Split::training, options); })->what(),
             Contains("train/n00000005") && Contains("no such wnid"));
  write_file(home.path() / "train/cat/1", encode_png(small_picture));  // then they are no wnids
  CHECK(open_dataset(spec, Split::training, options)->classes() == 4);
}

TEST_CASE("images: an evaluation elsewhere has the training's labels, and needs no val/") {
  const TempDirectory bare, split;
  write_file(bare.path() / "dog/1", encode_png(small_picture));
  write_file(split.path() / "train/ant/1", encode_png(small_picture));
  write_file(split.path() / "val/dog/1", encode_png(small_picture));
  const DatasetOptions options{.class_names = {"cat", "dog"}, .elsewhere = true};

  for (const TempDirectory* home : {&bare, &split}) {
    const auto images = open_dataset("images:" + home->path().native(), Split::evaluation, options);
    REQUIRE(images);
    CHECK(images->classes() == 2);
    CHECK(images->label(0) == 1);
  }
  CHECK_FALSE(open(bare, Split::evaluation));
}

namespace {

/// Labels and names of a part, by --val-split 0.25.
std::set<std::string> part(const TempDirectory& home, Split split, std::uint64_t seed = 1) {
  const auto data = open_dataset("images:" + home.path().native(), split,
                                 {.val_split = ValSplit{0.25, seed, true}});
  std::set<std::string> names;
  for (std::uint64_t i = 0; data && i < data->size(); ++i)
    names.insert(fmt::format("{} {}", data->class_names()[data->label(i)], data->name(i)));
  return names;
}

}  // namespace

TEST_CASE("images: --val-split divides each class, by names and seed alone") {
  const TempDirectory home;
  const auto add = [&](const std::string& file) {
    write_file(home.path() / file, encode_png(small_picture));
  };
  for (int i = 0; i < 40; ++i) add(fmt::format("cat/{:02}.png", i));
  for (const char* file : {"dog/a.png", "dog/inner/b.png", "one/only.png"}) add(file);
  const auto training = part(home, Split::training), evaluation = part(home, Split::evaluation);

  CHECK(training.size() == 30 + 1 + 1);
  CHECK(evaluation.size() == 10 + 1);
  std::set<std::string> both = training;
  both.insert(evaluation.begin(), evaluation.end());
  CHECK(both.size() == 43);
  CHECK(part(home, Split::evaluation) == evaluation);
  CHECK(part(home, Split::evaluation, 2) != evaluation);

  add("cat/99.png");  // of 41 the same ten, or nine of them and the new one
  std::vector<std::string> kept;
  std::ranges::set_intersection(evaluation, part(home, Split::evaluation),
                                std::back_inserter(kept));
  CHECK(kept.size() >= 10);
}

TEST_CASE("images: --val-split is refused where the data have an evaluation, unless it was kept") {
  const TempDirectory home;
  for (const char* file : {"train/a/1.png", "val/a/2.png"})
    write_file(home.path() / file, encode_png(small_picture));
  const auto open_with = [&](std::string_view spec, bool required) {
    return open_dataset(spec, Split::evaluation, {.val_split = ValSplit{0.5, 1, required}});
  };
  const std::string images = "images:" + home.path().native();

  CHECK(error_of([&] { open_with(images, true); })->code() == Exit::usage);
  CHECK(error_of([&] { open_with("shapes", true); })->code() == Exit::usage);
  CHECK(open_with(images, false)->size() == 1);
}
