#include <unistd.h>

#include <array>

#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

using namespace ringtrain;

namespace {

std::string this_host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

TEST_CASE("Fault line: says kind, code, rank, host, step and what goes on") {
  FaultContext context;
  context.at_step(120);
  context.resume_from("/runs/a/step-0000000100.h5");

  CHECK(fault_line(Exit::storage, "storage", 0, context) ==
        "fault: kind=storage code=75 rank=0 host=" + this_host() +
            " step=120 resume=/runs/a/step-0000000100.h5\n");
  CHECK(fault_line(Exit::stuck, "stuck", 3, {}, key_value("how", "stuck")) ==
        "fault: kind=stuck code=72 rank=3 host=" + this_host() + " step=0 resume=none how=stuck\n");
}

TEST_CASE("Fault line: what is not there any more goes on nowhere") {
  const TemporaryFolder folder;
  FaultContext context;
  context.resume_from(folder.path());
  context.check_resume();
  CHECK(context.resume() == folder.path());

  context.resume_from(folder.path() / "gone" / "step-0000000100.h5");
  context.check_resume();
  CHECK_THAT(fault_line(Exit::storage, "storage", 0, context), Catch::Contains(" resume=none\n"));
}

TEST_CASE("Fault line: a value that could be misread is in quotes, on one line") {
  CHECK(key_value("a", "n1,n2") == " a=n1,n2");
  CHECK(key_value("a", "") == " a=\"\"");
  CHECK(key_value("a", "was killed by signal 9 (Killed)") ==
        " a=\"was killed by signal 9 (Killed)\"");
  CHECK(key_value("a", "x\"y\\z\nkind=storage") == " a=\"x\\\"y\\\\z?kind=storage\"");
}

TEST_CASE("Fault line: each exit code has a kind of its own, which an error may replace") {
  const Error full(Exit::storage, "save", "no space");

  CHECK(full.kind() == "storage");
  CHECK(full.of_kind("writer", " how=x").kind() == "writer");
  CHECK(full.of_kind("writer", " how=x").details() == " how=x");
  CHECK(full.of_kind("writer").code() == Exit::storage);
  CHECK(full.of_kind("", " how=x").kind() == "storage");
  CHECK(Error("a library", "a bug").kind() == "internal");
  CHECK(fault_kind(Exit::rank_lost) == "rank_lost");
  CHECK(fault_kind(Exit::stuck) == "stuck");
  CHECK(fault_kind(Exit::locked) == "locked");
  CHECK(fault_kind(Exit::data) == "data");
  CHECK(fault_kind(Exit::not_finite) == "nan");
  CHECK(fault_kind(Exit::usage) == "usage");
  CHECK(fault_kind(Exit::incompatible_checkpoint) == "mismatch");
  CHECK(fault_kind(Exit::no_valid_checkpoint) == "checkpoint");
  CHECK(fault_kind(Exit::inefficient) == "inefficient");
}
