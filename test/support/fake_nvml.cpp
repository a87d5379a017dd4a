// Stands in for NVIDIA's management library: one GPU, slowed down by heat and by its power limit.
// Built with that library's name.
#include <cstring>

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  constexpr int not_found = 6;
  static int gpu;
  *device = &gpu;
  return std::strcmp(bus_id, "0000:01:00.0") == 0 ? 0 : not_found;
}
int nvmlDeviceGetClockInfo(void*, int kind, unsigned* megahertz) {
  constexpr int invalid = 2;
  *megahertz = 1200;
  return kind == 1 ? 0 : invalid;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = 0x20 | 0x4;
  return 0;
}
}
