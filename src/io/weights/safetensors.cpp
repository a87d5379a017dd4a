#include <fmt/core.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "io/weights/weights_index.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t length_bytes = 8;
constexpr std::string_view metadata_key = "__metadata__";

struct NamedType {
  std::string_view name;
  StoredType type;
};
constexpr NamedType types[] = {{"F64", StoredType::f64}, {"F32", StoredType::f32},
                               {"F16", StoredType::f16}, {"BF16", StoredType::bf16},
                               {"I64", StoredType::i64}, {"I32", StoredType::i32},
                               {"I16", StoredType::i16}, {"I8", StoredType::i8},
                               {"U8", StoredType::u8},   {"BOOL", StoredType::boolean}};

/// Takes {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {}}
/// as it is parsed, so that memory is that of the tensors.
class SafetensorsHeader final : public nlohmann::json_sax<Json> {
 public:
  explicit SafetensorsHeader(const Part& data) : data_(data) {}

  WeightsIndex finish() && {
    if (depth_ != 0 || !begun_) fail("ends early");
    return std::move(index_);
  }

  bool start_object(std::size_t) override {
    expect(!in_list_ && depth_ < 2 && (depth_ > 0 || !begun_));
    begun_ = true;
    if (++depth_ == 2) begin_tensor();
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2 && !is_metadata()) end_tensor();
    return true;
  }
  bool key(string_t& text) override {
    if (depth_ == 1) name_ = text;
    field_ = depth_ == 2 ? text : "";
    return true;
  }
  bool start_array(std::size_t) override {
    expect(depth_ == 2 && !in_list_ && (field_ == "shape" || field_ == "data_offsets"));
    list_.clear();
    return in_list_ = true;
  }
  bool end_array() override {
    (field_ == "shape" ? tensor_.info.shape : offsets_) = list_;
    in_list_ = false;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    expect(in_list_ && list_.size() < most_weight_dimensions);
    list_.push_back(value);
    return true;
  }
  bool string(string_t& text) override {
    expect(depth_ == 2 && !in_list_);
    if (!is_metadata() && field_ == "dtype") take_type(text);
    return true;
  }
  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool parse_error(std::size_t at, const std::string&, const Json::exception&) override {
    fail(fmt::format("is no JSON at byte {}", at));
  }

 private:
  [[noreturn]] static void fail(const std::string& why) { throw BadWeights("its header " + why); }
  static void expect(bool right) {
    if (!right) fail("is not as safetensors have it");
  }
  static bool other() { fail("is not as safetensors have it"); }
  bool is_metadata() const { return name_ == metadata_key; }

  void begin_tensor() {
    tensor_ = {};
    offsets_.clear();
    has_type_ = false;
  }
  void take_type(const std::string& name) {
    const auto* found = std::ranges::find(types, name, &NamedType::name);
    if (found == std::end(types))
      throw BadWeights(Exit::incompatible_checkpoint,
                       fmt::format("tensor {} is of type {}, which is not read", brief(name_, 100),
                                   brief(name, 40)));
    tensor_.type = found->type;
    has_type_ = true;
  }
  void end_tensor() {
    if (!has_type_ || offsets_.size() != 2 || offsets_[0] > offsets_[1] || offsets_[1] > data_.size)
      fail(fmt::format("gives tensor {} no place in the file", brief(name_, 100)));
    if (!names_.insert(name_).second) fail(fmt::format("has tensor {} twice", brief(name_, 100)));
    tensor_.info.name = name_;
    tensor_.storage = {data_.offset + offsets_[0], offsets_[1] - offsets_[0]};
    tensor_.strides = row_major(tensor_.info.shape);
    expect_within_storage(tensor_);
    const std::uint64_t needed = element_count(tensor_.info) * bytes_of(tensor_.type);
    if (tensor_.storage.size != needed)
      fail(
          fmt::format("gives tensor {} {} bytes, but its type and shape need {}: fetch the file "
                      "again",
                      brief(name_, 100), tensor_.storage.size, needed));
    if (index_.tensors.size() == most_weights) fail("has too many tensors");
    index_.tensors.push_back(std::move(tensor_));
  }

  const Part data_;
  WeightsIndex index_{.format = "safetensors"};
  std::set<std::string> names_;
  StoredWeights tensor_;
  std::vector<std::uint64_t> offsets_, list_;
  std::string name_, field_;
  int depth_ = 0;
  bool begun_ = false, in_list_ = false, has_type_ = false;
};

}  // namespace

WeightsIndex read_safetensors(ByteSource& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.at({0, length_bytes}).data(), length_bytes);
  if (length > most_weights_index || length > bytes.size() - length_bytes)
    throw BadWeights("its header is longer than the file, or than 16 MiB");
  const auto text = bytes.at({length_bytes, length});
  const std::uint64_t data = length_bytes + length;
  SafetensorsHeader header({data, bytes.size() - data});
  Json::sax_parse(text.begin(), text.end(), &header);
  return std::move(header).finish();
}

}  // namespace ringtrain::io
