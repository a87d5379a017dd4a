#pragma once
#include <memory>

#include "ringtrain/allreduce/communicator/communicator.hpp"

namespace ringtrain::allreduce {

/// A job of this rank alone, whatever others there are: sums cost nothing. Not collective.
std::unique_ptr<Communicator> make_solo_communicator();

}  // namespace ringtrain::allreduce
