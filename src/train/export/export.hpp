#pragma once
// Room `train/export`: a trained network for other programs: PyTorch's state dictionaries and ONNX.
//
// Threads: the main one. Not collective: it needs neither other ranks nor data.
//
// The formats are `io/weights`'s and `model`'s to know; here they get what a checkpoint, or
// published weights, hold.
#include <functional>
#include <string>

#include "ringtrain/config/options.hpp"

namespace ringtrain::train {

/// Writes the network of `options`, with the weights of their --init-from, as `what` says: the
/// moving averages where the file has them. An existing file is replaced by the whole new one.
/// Lines for the user go to `tell`. Throws Error as ModelSource and load_weights() do, and with
/// Exit::storage where the file cannot be written.
void export_network(config::Options options, const config::Export& what,
                    const std::function<void(const std::string&)>& tell);

}  // namespace ringtrain::train
