// Writes a line for everything that a GPU runs for this process, as it ends there: "kind start_ns
// duration_ns stream node bytes blocks name". CUDA loads this library where CUDA_INJECTION64_PATH
// names it; RINGTRAIN_KERNEL_TIMES names the file. Kernels of CUDA graphs are told one by one.
#include <cupti.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace {

constexpr std::size_t buffer_bytes = 1 << 20;
constexpr unsigned flush_ms = 200;  // the program may end without a last word

std::FILE* file() {
  static std::FILE* const out = [] {
    const char* const name = std::getenv("RINGTRAIN_KERNEL_TIMES");
    return name == nullptr ? nullptr : std::fopen(name, "w");
  }();
  return out;
}

void print(const CUpti_ActivityKernel10& k) {
  std::fprintf(file(), "kernel %llu %llu %u %llu 0 %d %s\n", (unsigned long long)k.start,
               (unsigned long long)(k.end - k.start), k.streamId, (unsigned long long)k.graphNodeId,
               k.gridX * k.gridY * k.gridZ, k.name);
}

void print(const CUpti_ActivityMemcpy6& c) {
  std::fprintf(file(), "copy %llu %llu %u %llu %llu 0 copy kind %d\n", (unsigned long long)c.start,
               (unsigned long long)(c.end - c.start), c.streamId, (unsigned long long)c.graphNodeId,
               (unsigned long long)c.bytes, int(c.copyKind));
}

void print(const CUpti_ActivityMemset4& s) {
  std::fprintf(file(), "set %llu %llu %u %llu %llu 0 memset\n", (unsigned long long)s.start,
               (unsigned long long)(s.end - s.start), s.streamId, (unsigned long long)s.graphNodeId,
               (unsigned long long)s.bytes);
}

void print(const CUpti_Activity& record) {
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return print(reinterpret_cast<const CUpti_ActivityKernel10&>(record));
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return print(reinterpret_cast<const CUpti_ActivityMemcpy6&>(record));
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return print(reinterpret_cast<const CUpti_ActivityMemset4&>(record));
    default:
      return;
  }
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, buffer_bytes));
  *bytes = *buffer == nullptr ? 0 : buffer_bytes;
  *most_records = 0;  // as many as there is room for
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) print(*record);
  std::free(buffer);
  std::fflush(file());
}

void flush_all() { static_cast<void>(cuptiActivityFlushAll(1)); }

}  // namespace

// CUDA calls it before it starts. Returns 1: all is well.
extern "C" int InitializeInjection() {
  if (file() == nullptr) return 1;
  bool fine = cuptiActivityRegisterCallbacks(give_buffer, take_buffer) == CUPTI_SUCCESS;
  for (const auto kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                          CUPTI_ACTIVITY_KIND_MEMSET})
    fine = cuptiActivityEnable(kind) == CUPTI_SUCCESS && fine;
  fine = cuptiActivityFlushPeriod(flush_ms) == CUPTI_SUCCESS && fine;
  if (!fine) std::fprintf(stderr, "kernel_times: CUPTI cannot record here\n");
  std::atexit(flush_all);
  return 1;
}
