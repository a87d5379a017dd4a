#include "io/weights/pickle.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "io/weights/pickle_instructions.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

using Kind = PickleValue::Kind;

constexpr std::size_t most_values = 1 << 19, most_items = 1 << 21;
constexpr int newest_protocol = 5;

[[noreturn]] void fail_pickle(const std::string& why) { throw BadWeights("its pickle " + why); }

/// Of the names that are not known, those that build tensors or their storages.
void expect_no_tensor(std::string_view module, std::string_view name) {
  const bool storage =
      (module == "torch" || module == "torch.storage") && name.ends_with("Storage");
  const bool tensor = module == "torch._utils" && name.starts_with("_rebuild_");
  if (storage || tensor)
    throw BadWeights(Exit::incompatible_checkpoint,
                     fmt::format("has a tensor of {}.{}, a kind that is not read (as complex, "
                                 "quantized, sparse and float8 ones): convert it by .float(), "
                                 ".to_dense() or .dequantize(), and save it again",
                                 module, brief(name, 100)));
}

/// The machine. Its memory grows by a few numbers an instruction, each of a byte or more.
class PickleReader {
 public:
  explicit PickleReader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  Pickle read() {
    for (;;) {
      const auto instruction = PickleInstruction(number<std::uint8_t>());
      if (instruction == PickleInstruction::stop) break;
      if (!scalar(instruction) && !structure(instruction) && !memory(instruction) &&
          !object(instruction))
        fail_pickle(fmt::format("has the instruction 0x{:02x}, which files of weights do not need",
                                static_cast<int>(instruction)));
    }
    pickle_.root = take();
    pickle_.bytes = at_;
    return std::move(pickle_);
  }

 private:
  std::span<const std::uint8_t> next(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail_pickle("ends in the middle of an instruction");
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, next(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text(std::uint64_t size) {
    const auto found = next(size);
    return {reinterpret_cast<const char*>(found.data()), found.size()};
  }
  std::string_view line() {
    const auto rest = bytes_.subspan(at_);
    const auto end = std::ranges::find(rest, std::uint8_t{'\n'});
    if (end == rest.end()) fail_pickle("ends in the middle of a name");
    const std::string_view found = text(end - rest.begin());
    ++at_;
    return found;
  }

  void push(PickleId id) {
    if (stack_.size() == most_values) fail_pickle("is too deep");
    stack_.push_back(id);
  }
  void push(PickleValue value) {
    if (pickle_.values.size() == most_values) fail_pickle("holds too many values");
    count(value.items.size());
    pickle_.values.push_back(std::move(value));
    push(static_cast<PickleId>(pickle_.values.size() - 1));
  }
  void count(std::size_t items) {
    items_ += items;
    if (items_ > most_items) fail_pickle("holds too many values");
  }
  // What was pushed since the last mark stays with what is there below it.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleId take() {
    if (stack_.size() <= floor()) fail_pickle("takes a value where there is none");
    const PickleId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  PickleValue& top() {
    if (stack_.size() <= floor()) fail_pickle("takes a value where there is none");
    return pickle_.values[stack_.back()];
  }
  std::vector<PickleId> take_last(std::size_t count) {
    if (stack_.size() - floor() < count) fail_pickle("takes values where there are none");
    std::vector<PickleId> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  std::vector<PickleId> take_marked() {
    if (marks_.empty()) fail_pickle("lacks a mark");
    auto items = take_last(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }

  bool scalar(PickleInstruction instruction);
  bool structure(PickleInstruction instruction);
  bool memory(PickleInstruction instruction);
  bool object(PickleInstruction instruction);
  void push_long();
  void push_global(std::string_view module, std::string_view name);
  void put(std::uint32_t place);
  void get(std::uint32_t place);
  void add(Kind kind, const std::vector<PickleId>& items);
  void call();
  void expect_no_metadata(std::span<const PickleId> arguments) const;
  PickleValue ordered_dict_of(std::span<const PickleId> arguments);
  void name_storage();

  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0, items_ = 0;
  Pickle pickle_;
  std::vector<PickleId> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, PickleId> memo_;
};

bool PickleReader::scalar(PickleInstruction instruction) {
  using enum PickleInstruction;
  const auto integer = [&](std::int64_t value) { push({Kind::integer, value}); };
  const auto string = [&](std::uint64_t size) { push({Kind::text, 0, text(size)}); };
  switch (instruction) {
    case none:
      push(PickleValue{});
      break;
    case yes:
    case no:
      push({Kind::boolean, instruction == yes});
      break;
    case integer1:
      integer(number<std::uint8_t>());
      break;
    case integer2:
      integer(number<std::uint16_t>());
      break;
    case integer4:
      integer(number<std::int32_t>());
      break;
    case long1:
      push_long();
      break;
    case real_bytes:
      next(8);
      push({Kind::real});
      break;
    case text1:
    case byte_text1:
      string(number<std::uint8_t>());
      break;
    case text4:
    case byte_text4:
      string(number<std::uint32_t>());
      break;
    case text8:
      string(number<std::uint64_t>());
      break;
    default:
      return false;
  }
  return true;
}

// Two's complement, of as many bytes as it needs.
void PickleReader::push_long() {
  const auto found = next(number<std::uint8_t>());
  if (found.size() > 8) fail_pickle("has an integer of more than 64 bits");
  std::uint64_t value = !found.empty() && (found.back() & 0x80) != 0 ? ~std::uint64_t{0} : 0;
  if (!found.empty()) std::memcpy(&value, found.data(), found.size());
  push({Kind::integer, static_cast<std::int64_t>(value)});
}

bool PickleReader::structure(PickleInstruction instruction) {
  using enum PickleInstruction;
  switch (instruction) {
    case mark:
      if (marks_.size() == most_values) fail_pickle("is too deep");
      marks_.push_back(stack_.size());
      break;
    case empty_tuple:
    case empty_list:
      push({.kind = Kind::sequence});
      break;
    case empty_dictionary:
      push({.kind = Kind::dictionary});
      break;
    case tuple1:
      push({.kind = Kind::sequence, .items = take_last(1)});
      break;
    case tuple2:
      push({.kind = Kind::sequence, .items = take_last(2)});
      break;
    case tuple3:
      push({.kind = Kind::sequence, .items = take_last(3)});
      break;
    case tuple:
      push({.kind = Kind::sequence, .items = take_marked()});
      break;
    case append:
      add(Kind::sequence, take_last(1));
      break;
    case appends:
      add(Kind::sequence, take_marked());
      break;
    case set_item:
      add(Kind::dictionary, take_last(2));
      break;
    case set_items:
      add(Kind::dictionary, take_marked());
      break;
    default:
      return false;
  }
  return true;
}

void PickleReader::add(Kind kind, const std::vector<PickleId>& items) {
  PickleValue& into = top();
  if (into.kind != kind) fail_pickle("puts items into what takes none");
  if (kind == Kind::dictionary && items.size() % 2 != 0) fail_pickle("has a key without a value");
  count(items.size());
  into.items.insert(into.items.end(), items.begin(), items.end());
}

bool PickleReader::memory(PickleInstruction instruction) {
  using enum PickleInstruction;
  switch (instruction) {
    case protocol:
      if (number<std::uint8_t>() > newest_protocol) fail_pickle("is of a later protocol than 5");
      break;
    case frame:
      next(8);
      break;
    case put1:
      put(number<std::uint8_t>());
      break;
    case put4:
      put(number<std::uint32_t>());
      break;
    case memoize:
      put(static_cast<std::uint32_t>(memo_.size()));
      break;
    case get1:
      get(number<std::uint8_t>());
      break;
    case get4:
      get(number<std::uint32_t>());
      break;
    default:
      return false;
  }
  return true;
}

void PickleReader::put(std::uint32_t place) {
  if (memo_.size() == most_values && !memo_.contains(place))
    fail_pickle("remembers too many values");
  top();
  memo_[place] = stack_.back();
}

void PickleReader::get(std::uint32_t place) {
  const auto found = memo_.find(place);
  if (found == memo_.end()) fail_pickle("recalls a value that it never had");
  push(found->second);
}

bool PickleReader::object(PickleInstruction instruction) {
  using enum PickleInstruction;
  switch (instruction) {
    case global: {
      const std::string_view module = line();
      push_global(module, line());
      break;
    }
    case stack_global: {
      const auto names = take_last(2);
      const PickleValue &module = pickle_[names[0]], &name = pickle_[names[1]];
      if (module.kind != Kind::text || name.kind != Kind::text)
        fail_pickle("has a global without a name");
      push_global(module.text, name.text);
      break;
    }
    case reduce:
      call();
      break;
    case build:  // attributes, as a state dictionary's `_metadata`: of no use here
      take();
      top();
      break;
    case persistent:
      name_storage();
      break;
    default:
      return false;
  }
  return true;
}

void PickleReader::push_global(std::string_view module, std::string_view name) {
  const auto* found = std::ranges::find_if(known_globals, [&](const KnownGlobal& known) {
    return known.module == module && known.name == name;
  });
  if (found == std::end(known_globals)) {
    expect_no_tensor(module, name);
    throw BadWeights(
        Exit::incompatible_checkpoint,
        fmt::format("its pickle names {}.{}: only tensors, dictionaries, numbers and strings are "
                    "read, and nothing is executed; save the state dictionary alone, as "
                    "torch.save(model.state_dict(), FILE) does",
                    brief(module, 100), brief(name, 100)));
  }
  push({found->kind, found->number});
}

void PickleReader::call() {
  const PickleId arguments = take(), function = take();
  if (pickle_[function].kind != Kind::function || pickle_[arguments].kind != Kind::sequence)
    fail_pickle("calls what is no function");
  const auto& items = pickle_[arguments].items;
  const auto called = PickleFunction(pickle_[function].number);
  if (called == PickleFunction::ordered_dict)
    push(ordered_dict_of(items));
  else if (called == PickleFunction::rebuild_parameter && !items.empty())
    push(items[0]);
  else if (called == PickleFunction::rebuild_tensor && items.size() >= 4) {
    expect_no_metadata(items);
    push({.kind = Kind::tensor, .items = {items[0], items[1], items[2], items[3]}});
  } else
    fail_pickle("calls a function with too few arguments");
}

// The seventh argument says what reading has to do to the numbers.
void PickleReader::expect_no_metadata(std::span<const PickleId> arguments) const {
  constexpr std::size_t place = 6;
  if (arguments.size() <= place) return;
  const PickleValue& metadata = pickle_[arguments[place]];
  if (metadata.kind == Kind::nothing) return;
  if (metadata.kind == Kind::dictionary && metadata.items.empty()) return;
  const bool named = metadata.kind == Kind::dictionary;
  throw BadWeights(
      Exit::incompatible_checkpoint,
      fmt::format(
          "has a tensor with metadata ({}), as of a view that is negated or conjugated when "
          "it is read: save what .resolve_neg() and .resolve_conj() give",
          named ? brief(pickle_[metadata.items[0]].text, 40) : "of another kind"));
}

// Python 2 gives it a list of pairs.
PickleValue PickleReader::ordered_dict_of(std::span<const PickleId> arguments) {
  PickleValue made{.kind = Kind::dictionary};
  if (arguments.empty()) return made;
  const auto& pairs = pickle_[arguments[0]].items;
  count(2 * pairs.size());
  for (const PickleId pair : pairs) {
    const PickleValue& both = pickle_[pair];
    if (both.kind != Kind::sequence || both.items.size() != 2)
      fail_pickle("makes a dictionary of what are no pairs");
    made.items.insert(made.items.end(), both.items.begin(), both.items.end());
  }
  return made;
}

// ("storage", type, key, device, count of numbers); legacy files add a view of another storage.
void PickleReader::name_storage() {
  const PickleValue& id = pickle_[take()];
  const auto& items = id.items;
  if (id.kind != Kind::sequence || items.size() < 5 || pickle_[items[0]].text != "storage" ||
      pickle_[items[1]].kind != Kind::storage_type || pickle_[items[2]].kind != Kind::text)
    fail_pickle("names a storage in a way that is not known");
  if (items.size() > 5 && pickle_[items[5]].kind != Kind::nothing)
    throw BadWeights(Exit::incompatible_checkpoint,
                     "has views of storages, as torch wrote them before version 0.4: load and save "
                     "it by a later torch");
  push({.kind = Kind::storage, .items = {items[1], items[2], items[4]}});
}

}  // namespace

const PickleValue* Pickle::find(const PickleValue& dictionary, std::string_view key) const {
  const auto& items = dictionary.items;
  for (std::size_t i = items.size(); i >= 2; i -= 2)
    if (values[items[i - 2]].kind == Kind::text && values[items[i - 2]].text == key)
      return &values[items[i - 1]];
  return nullptr;
}

std::uint64_t Pickle::count(PickleId id) const {
  if (values[id].kind != Kind::integer || values[id].number < 0)
    fail_pickle("has something else where a number belongs");
  return static_cast<std::uint64_t>(values[id].number);
}

std::vector<std::uint64_t> Pickle::counts(PickleId sequence) const {
  if (values[sequence].kind != Kind::sequence ||
      values[sequence].items.size() > most_weight_dimensions)
    fail_pickle("has something else where a shape belongs");
  std::vector<std::uint64_t> numbers;
  for (const PickleId item : values[sequence].items) numbers.push_back(count(item));
  return numbers;
}

Pickle read_pickle(std::span<const std::uint8_t> bytes) { return PickleReader(bytes).read(); }

}  // namespace ringtrain::io
