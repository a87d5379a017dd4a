#include "io/files/csv.hpp"
#include "ringtrain/base/text.hpp"
#include "support/catch.hpp"
#include "unit/io/dataset/data_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;

namespace {

using Rows = std::vector<std::vector<std::string>>;

const Image labelled_picture = gradient_image({8, 9});

/// What a folder with that CSV file has of a part, as "name=label".
std::vector<std::string> labelled(const TempDirectory& home, std::string_view csv, Split split,
                                  DatasetOptions options = {}) {
  write_text(home.path() / "labels.csv", std::string(csv));
  options.labels_file = (home.path() / "labels.csv").native();
  const auto data = open_dataset("images:" + home.path().native(), split, options);
  std::vector<std::string> all;
  for (std::uint64_t i = 0; data && i < data->size(); ++i)
    all.push_back(data->name(i).substr(home.path().native().size() + 1) + "=" +
                  data->class_names()[data->label(i)]);
  return all;
}

std::string labels_complaint(std::string_view csv, const DatasetOptions& options = {}) {
  const TempDirectory home;
  const auto error = error_of([&] { labelled(home, csv, Split::training, options); });
  REQUIRE(error);
  return error->what();
}

}  // namespace

TEST_CASE("csv: rows of plain and quoted fields, whatever ends a line") {
  CHECK(csv_rows("a,b\r\nc,\"d, \"\"e\"\"\nf\"\n\n,x") ==
        Rows{{"a", "b"}, {"c", "d, \"e\"\nf"}, {"", "x"}});
  CHECK(csv_rows("\xef\xbb\xbf"
                 "a\n") == Rows{{"a"}});
  CHECK(csv_rows("").empty());
  CHECK_THROWS_WITH(csv_rows("a\n\"b"), Contains("line 2: a quote does not end"));
  CHECK_THROWS_WITH(csv_rows("\"a\"b\n"), Contains("line 1: a quote ends amid its field"));
}

TEST_CASE("labels: rows say what images are, by name or number, with a head or without") {
  const TempDirectory home;
  write_file(home.path() / "a/1.png", encode_png(labelled_picture));
  using Names = std::vector<std::string>;

  CHECK(labelled(home, "a/1.png,dog\n2.png,cat\n", Split::training) ==
        Names{"a/1.png=dog", "2.png=cat"});
  CHECK(labelled(home, "id,Label,file\n7,dog,x.png\n", Split::training) == Names{"x.png=dog"});
  CHECK(labelled(home, "x.png,2\ny.png,0\n", Split::training) == Names{"x.png=2", "y.png=0"});
  write_text(home.path() / "classes.txt", "zebra\nape\n");
  CHECK(labelled(home, "x.png,ape\n", Split::training) == Names{"x.png=ape"});
  const auto data = open_dataset("images:" + home.path().native(), Split::training,
                                 {.labels_file = (home.path() / "labels.csv").native()});
  CHECK(data->label(0) == 1);
}

TEST_CASE("labels: rows in val/ are evaluated on, else what --val-split draws of each class") {
  const TempDirectory home;
  const std::string parts = "train/1.png,a\nVal/2.png,b\n3.png,b\n";
  CHECK(labelled(home, parts, Split::training).size() == 2);
  CHECK(labelled(home, parts, Split::evaluation) == std::vector<std::string>{"Val/2.png=b"});
  CHECK(labelled(home, "1.png,a\n", Split::evaluation).empty());

  std::string rows;
  for (int i = 0; i < 20; ++i)
    rows += std::to_string(i) + ".png," + (i % 4 == 0 ? "b" : "a") + "\n";
  const DatasetOptions split{.val_split = ValSplit{0.2, 3, true}};
  CHECK(labelled(home, rows, Split::training, split).size() == 16);
  CHECK(labelled(home, rows, Split::evaluation, split).size() == 4);
}

TEST_CASE("labels: what cannot be is said with file and row") {
  CHECK_THAT(labels_complaint("\n"), Contains("labels.csv: holds no rows of path,label"));
  CHECK_THAT(labels_complaint("a.png\n"), Contains("row 1 has no path and label: a.png"));
  CHECK_THAT(labels_complaint("path,label\na.png,\n"), Contains("row 2 has no path and label"));
  CHECK_THAT(labels_complaint("\"a.png,0\n"), Contains("line 1: a quote does not end"));
  CHECK_THAT(labels_complaint("a.png,99999999\n"),
             Contains("label 99999999 is not one of classes"));
  CHECK_THAT(labels_complaint("a.png,x\nb.png,y\n./a.png,y\n"),
             Contains("rows 1 and 3 are both of ./a.png"));
  CHECK_THAT(labels_complaint("path,label\n"), Contains("no row of an image to train on"));
  CHECK_THAT(labels_complaint("val/a.png,x\n", {.val_split = ValSplit{0.2, 1, true}}),
             Contains("leave --val-split out"));
}
