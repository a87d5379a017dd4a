#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ringtrain/io/dataset/dataset.hpp"

namespace ringtrain::io {

/// How many samples each class of `dataset` has, by label.
std::vector<std::uint64_t> class_counts(const Dataset& dataset);

/// What a sample of each of `classes` classes weighs so that the samples of every class weigh
/// equally much, and all as much as without weights: samples / (classes with samples * samples of
/// the class), as scikit-learn's "balanced". A class without samples weighs 1.
std::vector<float> balanced_weights(const std::vector<std::uint64_t>& counts, int classes);

/// The same from a CSV file: a class and its weight a row, below a head or not. A class is one of
/// `names`, by label, or else a label, which may be beyond the names; those weigh 1 where no row
/// says otherwise. Throws Error(Exit::usage) where a class of `names` has no row, or one has two,
/// for other classes, for weights that are no finite number from 0 on, and where all are 0.
std::vector<float> read_class_weights(const std::string& file,
                                      const std::vector<std::string>& names, int classes);

}  // namespace ringtrain::io
