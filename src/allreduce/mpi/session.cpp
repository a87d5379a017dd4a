#include "ringtrain/allreduce/mpi/session.hpp"

#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <ranges>
#include <sstream>
#include <string_view>

#include "allreduce/mpi/abort.hpp"
#include "allreduce/mpi/mpi_check.hpp"
#include "allreduce/mpi/shared_file.hpp"
#include "ringtrain/base/program.hpp"
#include "ringtrain/base/unique_handle.hpp"
#include "ringtrain/host/limits.hpp"

namespace ringtrain::allreduce {

using namespace std::chrono_literals;

namespace {

using InterfaceList = UniqueHandle<ifaddrs*, freeifaddrs>;

InterfaceList interfaces() {
  ifaddrs* raw = nullptr;
  check_errno(::getifaddrs(&raw), "getifaddrs");
  return InterfaceList(raw);
}

bool has_address(const ifaddrs& one) {
  return one.ifa_addr != nullptr &&
         (one.ifa_addr->sa_family == AF_INET || one.ifa_addr->sa_family == AF_INET6);
}

// One of the `wanted` interfaces (empty: any but the loopback) is up with an IPv4 address.
bool reaches_by_ipv4(const std::string& wanted) {
  if (wanted.find('/') != std::string::npos) return wanted.find(':') == std::string::npos;
  const InterfaceList list = interfaces();
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP))
      continue;
    if (wanted.empty()
            ? !(i->ifa_flags & IFF_LOOPBACK)
            : ("," + wanted + ",").find("," + std::string(i->ifa_name) + ",") != std::string::npos)
      return true;
  }
  return false;
}

bool is_open_mpi_5() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  mpi::check(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  return std::string_view(text.data()).starts_with("Open MPI v5.");
}

// Settings of Open MPI, given before MPI_Init; what the user or mpirun set already stays.
void configure_mpi(const std::string& interface) {
  // Waiting ranks leave the core to loader and compute threads.
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  if (!interface.empty()) ::setenv("OMPI_MCA_btl_tcp_if_include", interface.c_str(), 1);
  // Open MPI 5 knows one address of each interface. Where that is an IPv6 one, ranks complain that
  // they find no way to others on their own host.
  if (is_open_mpi_5() && reaches_by_ipv4(interface))
    ::setenv("OMPI_MCA_btl_tcp_disable_family", "6", 0);
}

// MPI would pass over a name that does not exist or leads nowhere, and use another network.
void check_interfaces(const std::string& wanted) {
  const InterfaceList list = interfaces();
  std::map<std::string, bool> usable;  // by name
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next)
    usable[i->ifa_name] |= (i->ifa_flags & IFF_UP) != 0 && has_address(*i);
  std::istringstream words(wanted);
  for (std::string name; std::getline(words, name, ',');) {
    if (name.find('/') != std::string::npos) continue;
    const auto found = usable.find(name);
    if (found == usable.end())
      throw Error(Exit::usage, "--interface " + wanted,
                  fmt::format("this host has no network interface {}; it has {}", name,
                              fmt::join(std::views::keys(usable), ", ")));
    if (!found->second)
      throw Error(Exit::usage, "--interface " + wanted,
                  fmt::format("{} is down or has no address on host {}; set it up, or name another",
                              name, own_host()));
  }
}

void add_ranks(std::span<const double> all, std::span<double> sums) {
  std::copy_n(all.begin(), sums.size(), sums.begin());
  for (std::size_t i = sums.size(); i < all.size(); ++i) sums[i % sums.size()] += all[i];
}

int size_as_int(std::size_t size) {
  expects(size <= std::numeric_limits<int>::max(), "MpiSession: texts below 2 GiB");
  return static_cast<int>(size);
}

}  // namespace

MpiSession::MpiSession(const std::string& interface) : host_(own_host()) {
  const JobLaunch launch = launch_from_environment();
  if (!launch.mpi) return;
  if (!interface.empty()) check_interfaces(interface);
  configure_mpi(interface);
  const Guard guard = guard_against_a_hang(300s, "start MPI",
                                           "a rank has not started, or hosts do not reach one "
                                           "another (--interface chooses the network)");
  int provided = 0;
  // Why not SERIALIZED: docs/decisions/0003-mpi-thread-level.md.
  mpi::check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  mpi_ = true;
  // Only some ranks may fail from here on, and the others would wait for them.
  try {
    if (provided < MPI_THREAD_SERIALIZED)
      throw Error(Exit::usage, "start MPI", "this MPI is built without thread support");
    join();
  } catch (const std::exception& failure) {
    abort(failure);
  }
  if (size() < launch.size)  // each of several jobs: the launcher's first rank says why
    throw Error(Exit::usage, "start MPI",
                fmt::format("the launcher started {} ranks, but MPI sees {}; start with mpirun or "
                            "srun --mpi=pmix",
                            launch.size, size()));
}

void MpiSession::join() {
  int rank = 0, size = 0;
  mpi::check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi::check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  mpi::check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  host_of_.resize(static_cast<std::size_t>(size));  // abort() may need it before it is filled
  rank_ = rank;
  find_hosts();
}

void MpiSession::find_hosts() {
  MPI_Comm local = MPI_COMM_NULL;
  mpi::check(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &local),
      "MPI_Comm_split_type");
  mpi::check(MPI_Comm_rank(local, &local_rank_), "MPI_Comm_rank");
  mpi::check(MPI_Comm_size(local, &local_size_), "MPI_Comm_size");
  try {
    reported_ = share_word(open_together(local).get());
  } catch (const Error& failure) {
    // in another container: a failure may be told once in each
    if (failure.code() != Exit::usage) throw;
  }
  int first = rank_;
  mpi::check(MPI_Bcast(&first, 1, MPI_INT, 0, local), "MPI_Bcast");
  std::vector<int> first_of(host_of_.size());  // of each rank: the first rank of its host
  mpi::check(MPI_Allgather(&first, 1, MPI_INT, first_of.data(), 1, MPI_INT, MPI_COMM_WORLD),
             "MPI_Allgather");
  hosts_ = 0;
  for (std::size_t r = 0; r < first_of.size(); ++r) {
    const auto first_there = static_cast<std::size_t>(first_of[r]);
    host_of_[r] = first_there == r ? hosts_++ : host_of_[first_there];
  }
}

MpiSession::~MpiSession() {
  if (!mpi_) return;
  const Guard guard = guard_against_a_hang(
      90s, "leave MPI", "another rank or the network is stuck; this rank's own work was complete");
  MPI_Finalize();
}

// Without MPI_Abort, which may wait within MPI_Finalize. Open MPI 4.1.4's mpirun crashes after
// either (139).
Guard MpiSession::guard_against_a_hang(std::chrono::seconds limit, const char* what,
                                       const char* why) const {
  return {limit, [=, this] {
            const auto text = fmt::format("not done after {}: {}", limit, why);
            ::_exit(report(Error(Exit::stuck, what, text)));
          }};
}

bool MpiSession::threads_share_mpi() const {
  if (!mpi_) return true;
  int provided = 0;
  mpi::check(MPI_Query_thread(&provided), "MPI_Query_thread");
  return provided == MPI_THREAD_MULTIPLE;
}

std::vector<std::string> MpiSession::gather(std::string_view text) const {
  if (!mpi_) return {std::string(text)};
  const Wait waiting = wait();
  const int length = size_as_int(text.size());
  std::vector<int> lengths(rank_ == 0 ? host_of_.size() : 0), begins(lengths.size());
  mpi::check(MPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, MPI_COMM_WORLD),
             "MPI_Gather");
  std::size_t total = 0;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    begins[r] = size_as_int(total);
    total += static_cast<std::size_t>(lengths[r]);
  }
  std::string all(total, '\0');
  mpi::check(MPI_Gatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(), begins.data(),
                         MPI_CHAR, 0, MPI_COMM_WORLD),
             "MPI_Gatherv");
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    texts.push_back(
        all.substr(static_cast<std::size_t>(begins[r]), static_cast<std::size_t>(lengths[r])));
  return texts;
}

std::string MpiSession::broadcast(std::string_view text, int root) const {
  std::string result(text);
  std::uint64_t length = text.size();
  broadcast(std::as_writable_bytes(std::span(&length, 1)), root);
  result.resize(length);
  broadcast(std::as_writable_bytes(std::span(result)), root);
  return result;
}

void MpiSession::broadcast(std::span<std::byte> bytes, int root) const {
  if (!mpi_) return;
  const Wait waiting = wait();
  constexpr std::size_t most = std::size_t{1} << 30;  // MPI counts in int
  for (std::size_t at = 0; at < bytes.size(); at += most)
    mpi::check(MPI_Bcast(bytes.data() + at, static_cast<int>(std::min(most, bytes.size() - at)),
                         MPI_BYTE, root, MPI_COMM_WORLD),
               "MPI_Bcast");
}

void MpiSession::sum(std::span<double> values) const {
  if (!mpi_) return;
  const Wait waiting = wait();
  // MPI_Allreduce adds in whatever order suits it.
  const int count = size_as_int(values.size());
  std::vector<double> all(values.size() * host_of_.size());
  mpi::check(MPI_Allgather(values.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE,
                           MPI_COMM_WORLD),
             "MPI_Allgather");
  add_ranks(all, values);
}

namespace {

// Open MPI's gathers all in one exchange of messages, which needs no rank's help once it is begun.
class SumOfRanks final : public MpiSession::SumUnderWay {
 public:
  SumOfRanks(std::span<const double> values, int ranks)
      : own_(values.begin(), values.end()), all_(own_.size() * static_cast<std::size_t>(ranks)) {
    const int count = size_as_int(own_.size());
    mpi::check(MPI_Iallgather(own_.data(), count, MPI_DOUBLE, all_.data(), count, MPI_DOUBLE,
                              MPI_COMM_WORLD, &request_),
               "MPI_Iallgather");
  }
  bool done() override {
    int done = 0;
    mpi::check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  }
  std::vector<double> values() const override {
    std::vector<double> sums(own_.size());
    add_ranks(all_, sums);
    return sums;
  }

 private:
  const std::vector<double> own_;
  std::vector<double> all_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class SumOfOne final : public MpiSession::SumUnderWay {
 public:
  explicit SumOfOne(std::span<const double> values) : values_(values.begin(), values.end()) {}
  bool done() override { return true; }
  std::vector<double> values() const override { return values_; }

 private:
  const std::vector<double> values_;
};

}  // namespace

std::unique_ptr<MpiSession::SumUnderWay> MpiSession::start_sum(
    std::span<const double> values) const {
  if (!mpi_) return std::make_unique<SumOfOne>(values);
  return std::make_unique<SumOfRanks>(values, size());
}

void MpiSession::maximum(std::span<double> values) const {
  if (!mpi_) return;
  const Wait waiting = wait();
  mpi::check(MPI_Allreduce(MPI_IN_PLACE, values.data(), size_as_int(values.size()), MPI_DOUBLE,
                           MPI_MAX, MPI_COMM_WORLD),
             "MPI_Allreduce");
}

bool MpiSession::all_equal(std::string_view text) const {
  if (!mpi_) return true;
  const Wait waiting = wait();
  const int same_as_first = broadcast(text) == text;
  int all_same = 0;
  mpi::check(MPI_Allreduce(&same_as_first, &all_same, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD),
             "MPI_Allreduce");
  return all_same != 0;
}

void MpiSession::barrier() const {
  const Wait waiting = wait();
  if (mpi_) mpi::check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
}

void MpiSession::barrier_asleep() const {
  if (!mpi_) return;
  const Wait waiting = wait();
  MPI_Request request = MPI_REQUEST_NULL;
  mpi::check(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier");
  for (int done = 0; !done;) {
    mpi::check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (!done) ::usleep(1000);
  }
}

// Everything before the exit can block: the terminal, a lock that another thread died with, MPI.
int MpiSession::report(const std::exception& failure) const noexcept {
  ending_ = true;
  const Error error = host::as_error(failure);
  const int code = static_cast<int>(error.code());
  if (mpi_) exit_after(8, code);
  const int host = host_of_[static_cast<std::size_t>(rank_)];
  if (!mpi_ || wait_to_report(reported_.get(), host)) {
    context_.check_resume();
    write_stderr(
        fmt::format("train: {}{}\n{}", who(), error.what(),
                    fault_line(error.code(), error.kind(), rank_, context_, error.details())));
  }
  std::fflush(nullptr);
  return code;
}

std::string MpiSession::who() const {
  return size() == 1 ? "" : fmt::format("rank {}/{} on {}: ", rank_, size(), host_);
}

std::function<void(const std::string&)> MpiSession::reporter() const {
  return [who = who()](const std::string& line) {
    write_stderr(fmt::format("train: {}{}\n", who, line));
  };
}

void MpiSession::abort(const std::exception& failure) const noexcept {
  const int code = report(failure);
  if (mpi_) MPI_Abort(MPI_COMM_WORLD, code);
  ::_exit(code);
}

void MpiSession::end_within(std::chrono::seconds time, Exit code) const noexcept {
  exit_after(static_cast<int>(time.count()), static_cast<int>(code));
}

void MpiSession::fail_together(std::string_view message, Exit code) const {
  ending_ = true;
  if (mpi_) exit_after(10, static_cast<int>(code));
  if (rank_ == 0) {
    context_.check_resume();
    write_stderr(
        fmt::format("train: {}\n{}", message, fault_line(code, fault_kind(code), rank_, context_)));
  }
  std::fflush(nullptr);
  if (mpi_) MPI_Finalize();
  ::_exit(static_cast<int>(code));
}

}  // namespace ringtrain::allreduce
