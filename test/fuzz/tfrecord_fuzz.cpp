// Any bytes as a TFRecord file, and as the data of records whose checksums are right.
#include "io/files/tfrecord.hpp"
#include "io/image/decoder.hpp"
#include "unit/io/files/tfrecord_support.hpp"

using namespace ringtrain;

namespace {

using Bytes = std::span<const std::uint8_t>;

void expect(bool kept) {
  if (!kept) __builtin_trap();
}

bool lies_within(Bytes part, Bytes whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

void read(Bytes file, const io::Record& record) {
  expect(record.offset <= file.size() && record.bytes <= file.size() - record.offset);
  expect(record.label >= -1 && record.label <= io::largest_label);
  const Bytes bytes = file.subspan(record.offset, record.bytes);
  try {
    expect(lies_within(io::unpack_tfrecord(bytes).image, bytes));
  } catch (const io::Undecodable&) {
  }
}

void load(Bytes file) {
  io::MemorySource source(file);
  try {
    for (const io::Record& record : io::index_tfrecord(source).records) read(file, record);
  } catch (const io::Undecodable&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  load({bytes, size});
  const std::string record = test::framed({reinterpret_cast<const char*>(bytes), size});
  const std::string file = record + record;
  load({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()});
  return 0;
}
