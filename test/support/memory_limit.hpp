#pragma once
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <new>
#include <string>

namespace ringtrain {

/// Whether a limit on memory can be set here: the shadow memory of a sanitizer has no such limits.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool memory_is_limited = false;
#else
inline constexpr bool memory_is_limited = true;
#endif

/// While it lives, this process may have `more` bytes of memory more than it has.
class MemoryLimit {
 public:
  explicit MemoryLimit(rlim_t more) {
    ::getrlimit(RLIMIT_AS, &before_);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<rlim_t>(::getpagesize()) + more;
    if (memory_is_limited) ::setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() { ::setrlimit(RLIMIT_AS, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

/// What a hostile file or message may cost: its reader has this much more memory than before.
inline constexpr rlim_t hostile_memory = 64 << 20;

/// Takes what the heap has free, so that nothing is had without asking for more. For a process that
/// ends soon.
inline void use_up_heap() {
  const MemoryLimit none(0);
  void* volatile taken = nullptr;  // the compiler leaves out what nobody looks at
  for (std::size_t bytes = std::size_t{1} << 32; bytes >= 4096; bytes /= 2) do {
      taken = std::malloc(bytes);
    } while (taken != nullptr);
}

/// How `read` ends in a process of its own that may have `hostile_memory` more: what it returns (a
/// text), "refused: " and its exception's words, "out of memory", or "crashed".
template <class Read>
std::string in_limited_memory(const Read& read) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::mallopt(M_ARENA_MAX, 1);  // an arena reserves as much, whatever is taken from it
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, 256 << 10);
    ::pthread_setattr_default_np(&attributes);
    std::string text;
    if (memory_is_limited) use_up_heap();
    {
      const MemoryLimit limit(hostile_memory);
      try {
        text = read();
      } catch (const std::bad_alloc&) {
        text = "out of memory";
      } catch (const std::exception& failure) {
        text = std::string("refused: ") + failure.what();
      }
    }
    text.resize(std::min<std::size_t>(text.size(), 4096));
    const auto written = ::write(ends[1], text.data(), text.size());
    ::_exit(written < 0);
  }
  ::close(ends[1]);
  std::string text(4096, '\0');
  const auto got = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return "crashed";
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return text;
}

}  // namespace ringtrain
