#pragma once
#include <memory>
#include <string>

#include "io/dataset/encoded_dataset.hpp"

// One function for each kind that open_dataset() knows, each with a file of its own.
namespace ringtrain::io {

/// Noise with random labels, made once: what training costs when input costs nothing.
std::unique_ptr<Dataset> open_synthetic(Split split, const DatasetOptions& options);
/// Ten drawn shapes, see memory/shapes_dataset.cpp.
std::unique_ptr<Dataset> open_shapes(Split split);
/// CIFAR-10's binary version, held in memory.
std::unique_ptr<Dataset> open_cifar10(const std::string& directory, Split split,
                                      WorkProgress* progress);
/// MNIST, Fashion-MNIST and others in its files, held in memory.
std::unique_ptr<Dataset> open_mnist(const std::string& directory, Split split,
                                    WorkProgress* progress);
/// An image folder: <split>/<class>/<image>.
std::unique_ptr<EncodedDataset> open_images(const std::string& directory, Split split,
                                            const DatasetOptions& options);
/// images:DIR whose labels are in options.labels_file, a CSV file of path and label. Null where no
/// row is for the evaluation.
std::unique_ptr<EncodedDataset> open_labelled(const std::string& directory, Split split,
                                              const DatasetOptions& options);
/// Shards of tf.Examples: train-00000-of-01024, and validation-, val- or test- likewise.
std::unique_ptr<EncodedDataset> open_tfrecord(const std::string& directory, Split split,
                                              const DatasetOptions& options);
/// What pack() made.
std::unique_ptr<EncodedDataset> open_records(const std::string& directory, Split split,
                                             const DatasetOptions& options);

/// An array of images that numpy.save() wrote, to predict.
std::unique_ptr<Dataset> open_numpy(const std::string& path, const DatasetOptions& options);
/// Files of images, and those in folders: open_to_predict() has the contract.
std::unique_ptr<EncodedDataset> open_paths(const std::vector<std::string>& paths,
                                           const DatasetOptions& options);

/// Opens `images:DIR`, `tfrecord:DIR` or `records:DIR`; a directory alone is an image folder.
/// Throws Error(Exit::usage) for any other kind of data.
std::unique_ptr<EncodedDataset> open_encoded(std::string_view spec, Split split,
                                             const DatasetOptions& options);

}  // namespace ringtrain::io
