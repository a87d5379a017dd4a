#pragma once
// Room `io/dataset`: labelled images by index, whatever they lie in. One file for each kind; what
// is listed once is kept in the user's cache folder.
//
// Threads: a Dataset serves many at once; a reader belongs to one. Not collective.
//
// A sample that cannot be decoded is the sample's failure; a file that is gone ends the job.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/base/work_progress.hpp"
#include "ringtrain/io/files/read_retries.hpp"
#include "ringtrain/io/image/image.hpp"

namespace ringtrain::io {

/// One thread's way to the pixels of a data set; keeps its buffers and decoders from sample to
/// sample. It must not outlive the data set.
class SampleReader {
 public:
  virtual ~SampleReader() = default;
  /// From here on it tries reads again by these, which outlive it, instead of by its own.
  virtual void share(ReadRetries&) {}
  /// Makes `sample` the current one and returns its extent. Throws UnreadableSample.
  virtual Extent open(std::uint64_t sample) = 0;
  /// What is needed of the current sample, valid until the next open(). What is not needed may stay
  /// unread, and damage there unnoticed. Throws UnreadableSample.
  virtual PixelView pixels(const CropRequest& need) = 0;
};

/// Labelled images, read in any order by any number of threads. Its extent, names and labels are
/// checked when it is opened; pixels are first seen by a reader.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::uint64_t size() const = 0;
  /// In the order of the labels; bytes as the data set has them.
  virtual const std::vector<std::string>& class_names() const = 0;
  /// A class, 0..classes()-1; -1 of what open_to_predict() opens: nobody says.
  virtual int label(std::uint64_t sample) const = 0;
  /// What the sample is called: its path, bytes as they are, its place in a file of many, or its
  /// number.
  virtual std::string name(std::uint64_t sample) const { return std::to_string(sample); }
  virtual std::unique_ptr<SampleReader> reader() const = 0;
  /// One line for the log.
  virtual std::string description() const = 0;
  /// A hash of every sample's name, size and label, not of where the data lies: ranks that see the
  /// same data agree.
  virtual std::uint64_t manifest_hash() const = 0;

  int classes() const { return static_cast<int>(class_names().size()); }
  /// One whole sample, for those in no hurry.
  Image read(std::uint64_t sample) const;
};

enum class Split { training, evaluation };

/// Divides the images of each class between training and evaluation, by a hash of their names.
struct ValSplit {
  double share = 0;  ///< of the evaluation; at least one image of a class that has two
  std::uint64_t seed = 0;
  bool required = false;  ///< refused where the data have a part for evaluation, or are others
};

struct DatasetOptions {
  /// What `synthetic` makes; the other kinds know their own.
  Extent extent{32, 32};
  int classes = 10;
  /// Of images:DIR, tfrecord:DIR and records:DIR that have no training part: those that a network
  /// learned, by label; none: the evaluation's own.
  std::vector<std::string> class_names = {};
  /// Nothing is trained: where images:DIR or records:DIR has a training part, too, class_names
  /// count, unless they lack a class of the evaluation.
  bool only_evaluated = false;
  /// Of images:DIR and records:DIR whose classes are all called as WordNet's nouns (n and eight
  /// digits): the names by label, whatever classes there are; none: its own.
  std::vector<std::string> wnids = {};
  /// Of images:DIR whose classes lie in DIR itself, or in train/ alone: what is evaluated on.
  std::optional<ValSplit> val_split = {};
  /// Of images:DIR: a CSV file of paths in DIR and labels, names or numbers, in place of folders.
  /// Paths in val/ and the like are evaluated on, else what val_split draws.
  std::string labels_file = {};
  /// The evaluation is of another data set than the training: class_names are the training's, and
  /// images may also lie in DIR/<class>/.
  bool elsewhere = false;
  /// An image of more pixels is unreadable, found before memory is taken for it.
  std::uint64_t max_pixels = std::uint64_t{1} << 26;
  /// Where indexes of shards are kept from run to run; empty: nowhere.
  std::string cache_folder = {};
  int threads = 1;         ///< that make an index
  int index_wait_s = 300;  ///< for another process that makes it
  /// Is given lines for the user while a data set is opened, on the thread that opens it.
  std::function<void(const std::string&)> tell = [](const std::string&) {};
  WorkProgress* progress = nullptr;  ///< hears which path is listed or read; null: nobody
};

/// Throws Error(Exit::usage) where `spec`, as open_dataset() takes it, names no kind of data, or
/// not the directory of one. Reads no file.
void expect_kind_of_data(std::string_view spec);

/// Opens `synthetic`, `shapes`, `cifar10:DIR`, `mnist:DIR`, `images:DIR`, `tfrecord:DIR` or
/// `records:DIR`. Throws Error(Exit::usage) for a specification that names nothing,
/// Error(Exit::data) for data that cannot be trained on. Reads no file of another split, but for
/// the class names. Null for the evaluation split of data that have none. An evaluation needs no
/// training part beside it.
std::unique_ptr<Dataset> open_dataset(std::string_view spec, Split split,
                                      const DatasetOptions& options = {});

/// Opens what --predict names: files and folders of images, in that order and a folder's by name,
/// one data set as open_dataset() takes it, for its evaluation, or one array of numpy.save(), uint8
/// of images x height x width x channels (3 or 1). `names` are those of the network's classes: an
/// image's label is that of the outermost of its folders, from the named one on, that is called so;
/// -1 where none is. A file that is not there is an unreadable sample. Throws Error(Exit::data)
/// where there is no image at all, and as open_dataset() does.
std::unique_ptr<Dataset> open_to_predict(const std::vector<std::string>& paths,
                                         const std::vector<std::string>& names,
                                         const DatasetOptions& options);

/// Whether training, evaluation or packing ends where so many of `samples` cannot be read: more
/// than ten, and more than 0.1 % of them.
bool too_many_unreadable(std::uint64_t unreadable, std::uint64_t samples);

/// Throws Error(Exit::data) when one step of `global_batch` samples, on all ranks together, needs
/// more than there are.
void check_enough(const Dataset& dataset, int global_batch);

}  // namespace ringtrain::io
