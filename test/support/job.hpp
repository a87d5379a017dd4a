#pragma once
#include <errno.h>  // program_invocation_short_name

#include <exception>
#include <string>
#include <string_view>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::test {

/// Of a program of several ranks that is a test. Throws Error unless `kept`: `what` does not hold.
inline void require(bool kept, std::string_view what) {
  if (!kept) throw Error(program_invocation_short_name, std::string(what) + " does not hold");
}

/// Makes the session and calls run(session); what that throws ends the job on all ranks.
template <class Run>
void run_job(const Run& run) {
  const allreduce::MpiSession session;
  try {
    run(session);
  } catch (const std::exception& failure) {
    session.abort(failure);
  }
}

}  // namespace ringtrain::test
