#pragma once
#include <omp.h>

#include <cstddef>
#include <exception>

namespace ringtrain::compute::onednn {

/// Runs f(item) for each of `items` items on `threads` threads. Items follow from the shapes alone,
/// never from the number of threads, and each writes its own result: so bits do not depend on it.
/// What an item throws is thrown here once all are done.
template <class F>
void for_each_item(int threads, std::size_t items, const F& f) {
  std::exception_ptr failure;
#pragma omp parallel for schedule(static) num_threads(threads)
  for (std::size_t item = 0; item < items; ++item) try {
      f(item);
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  if (failure) std::rethrow_exception(failure);
}

/// Which of the threads runs this item: for scratch memory that items must not share.
inline int this_thread() { return omp_get_thread_num(); }

}  // namespace ringtrain::compute::onednn
