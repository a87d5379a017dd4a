#include <fmt/core.h>

#include <cstring>
#include <limits>

#include "io/weights/pickle_instructions.hpp"
#include "io/weights/saved_bytes.hpp"
#include "io/weights/zip_writer.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::io {
namespace {

/// Writes the instructions of a pickle of protocol 2, as torch.save() does.
class PickleWriter {
 public:
  void add(PickleInstruction instruction) { text_ += static_cast<char>(instruction); }
  void global(std::string_view module, std::string_view name) {
    add(PickleInstruction::global);
    text_ += fmt::format("{}\n{}\n", module, name);
  }
  void string(std::string_view value) {
    add(PickleInstruction::text4);
    put(static_cast<std::uint32_t>(value.size()));
    text_ += value;
  }
  void integer(std::uint64_t value) {
    if (value <= std::uint64_t(std::numeric_limits<std::int32_t>::max())) {
      add(PickleInstruction::integer4);
      put(static_cast<std::int32_t>(value));
    } else {
      add(PickleInstruction::long1);
      put(std::uint8_t{sizeof value});
      put(value);
    }
  }
  void integers(std::span<const std::uint64_t> values) {
    add(PickleInstruction::mark);
    for (const std::uint64_t value : values) integer(value);
    add(PickleInstruction::tuple);
  }
  void empty_ordered_dict() {
    global("collections", "OrderedDict");
    add(PickleInstruction::empty_tuple);
    add(PickleInstruction::reduce);
  }
  std::string take() { return std::move(text_); }

 private:
  template <class T>
  void put(T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    text_.append(bytes, sizeof value);
  }
  std::string text_;
};

// ("storage", type, key, device, count of numbers), which torch finds as the file data/<key>
void add_storage(PickleWriter& pickle, const TensorToSave& tensor, std::size_t key) {
  pickle.add(PickleInstruction::mark);
  pickle.string("storage");
  pickle.global("torch", is_whole(tensor) ? "LongStorage" : "FloatStorage");
  pickle.string(std::to_string(key));
  pickle.string("cpu");
  pickle.integer(element_count(tensor.info));
  pickle.add(PickleInstruction::tuple);
  pickle.add(PickleInstruction::persistent);
}

// _rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks)
void add_tensor(PickleWriter& pickle, const TensorToSave& tensor, std::size_t key) {
  pickle.string(tensor.info.name);
  pickle.global("torch._utils", "_rebuild_tensor_v2");
  pickle.add(PickleInstruction::mark);
  add_storage(pickle, tensor, key);
  pickle.integer(0);
  pickle.integers(tensor.info.shape);
  pickle.integers(row_major(tensor.info.shape));
  pickle.add(PickleInstruction::no);
  pickle.empty_ordered_dict();
  pickle.add(PickleInstruction::tuple);
  pickle.add(PickleInstruction::reduce);
}

std::string pickle_of(std::span<const TensorToSave> tensors) {
  PickleWriter pickle;
  pickle.add(PickleInstruction::protocol);
  pickle.add(PickleInstruction{2});
  pickle.empty_ordered_dict();
  pickle.add(PickleInstruction::mark);
  for (std::size_t i = 0; i < tensors.size(); ++i) add_tensor(pickle, tensors[i], i);
  pickle.add(PickleInstruction::set_items);
  pickle.add(PickleInstruction::stop);
  return pickle.take();
}

}  // namespace

void write_torch_zip(std::ostream& out, std::span<const TensorToSave> tensors) {
  constexpr std::uint64_t around = 1 << 10;  // more than heads and padding take
  const std::string index = pickle_of(tensors);
  std::uint64_t size = index.size() + around;
  for (const TensorToSave& tensor : tensors) size += saved_size(tensor) + around;
  if (size > ZipWriter::most_bytes)
    throw Error(Exit::usage, "--export torch",
                fmt::format("{:.1f} GB do not fit its zip file, which has 4 GiB at most: export "
                            "safetensors",
                            double(size) * 1e-9));
  ZipWriter zip(out);
  zip.add("archive/data.pkl", index);
  zip.add("archive/byteorder", "little");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<char> bytes = saved_bytes(tensors[i]);
    zip.add(fmt::format("archive/data/{}", i), {bytes.data(), bytes.size()});
  }
  zip.add("archive/version", "3\n");
  zip.finish();
}

}  // namespace ringtrain::io
