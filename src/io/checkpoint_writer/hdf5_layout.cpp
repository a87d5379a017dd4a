#include "io/checkpoint_writer/hdf5_layout.hpp"

#include <fmt/core.h>
#include <hdf5.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/io/checkpoint_writer/checkpoint_writer.hpp"

namespace ringtrain::io {
namespace {

using Hdf5File = UniqueHandle<hid_t, H5Fclose, hid_t{-1}>;
using Group = UniqueHandle<hid_t, H5Gclose, hid_t{-1}>;
using H5Dataset = UniqueHandle<hid_t, H5Dclose, hid_t{-1}>;
using Dataspace = UniqueHandle<hid_t, H5Sclose, hid_t{-1}>;
using Datatype = UniqueHandle<hid_t, H5Tclose, hid_t{-1}>;
using Properties = UniqueHandle<hid_t, H5Pclose, hid_t{-1}>;

herr_t note_innermost(unsigned, const H5E_error2_t* error, void* text) {
  *static_cast<std::string*>(text) = fmt::format("{} (in {})", error->desc, error->func_name);
  return 1;  // the first one visited is where it began
}

hid_t check(hid_t result, std::string_view call) {
  if (result >= 0) return result;
  std::string reason = "no reason given";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, note_innermost, &reason);
  // only memory, or a limit that the user set for files, can be what is missing
  throw Error(Exit::storage, call, reason);
}

// Left on, libhdf5's exit handler crashes the process after a failed write, and it prints to
// stderr.
void tame_library() {
  H5dont_atexit();
  check(H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr), "H5Eset_auto2");
}

Properties properties(hid_t kind) { return Properties(check(H5Pcreate(kind), "H5Pcreate")); }

Hdf5File create_file(int image, std::uint64_t user_block) {
  const Properties creation = properties(H5P_FILE_CREATE), access = properties(H5P_FILE_ACCESS);
  check(H5Pset_userblock(creation.get(), user_block), "H5Pset_userblock");
  check(H5Pset_obj_track_times(creation.get(), false), "H5Pset_obj_track_times");
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V18), "H5Pset_libver_bounds");
  check(H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG), "H5Pset_fclose_degree");
  // of the drivers for plain files, the one that does not insist on a real path
  check(H5Pset_fapl_stdio(access.get()), "H5Pset_fapl_stdio");
  // a cache line, so that a mapped file can be computed on; small blocks stay packed
  check(H5Pset_alignment(access.get(), 1024, 64), "H5Pset_alignment");
  const std::string path = fmt::format("/proc/self/fd/{}", image);
  return Hdf5File(
      check(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), "H5Fcreate"));
}

/// A dataset of one value, as its bytes are in the file.
struct Scalar {
  std::string name;
  std::string bytes;
  bool is_text;
};

Scalar scalar(const char* name, std::uint64_t value) {
  return {name, {reinterpret_cast<const char*>(&value), sizeof value}, false};
}

Scalar scalar(const char* name, const std::string& text) {
  return {name, text.empty() ? std::string(1, '\0') : text, true};  // HDF5 has no text of no bytes
}

std::vector<Scalar> scalars_of(const CheckpointMetadata& m) {
  std::vector<Scalar> scalars = {scalar("metadata/step", m.step),
                                 scalar("metadata/epoch", m.epoch),
                                 scalar("metadata/position", m.position),
                                 scalar("metadata/seed", m.seed),
                                 scalar("metadata/world_size", m.world_size),
                                 scalar("metadata/global_batch", m.global_batch),
                                 scalar("metadata/model", m.model),
                                 scalar("metadata/model_hash", m.model_hash),
                                 scalar("metadata/config", m.config),
                                 scalar("metadata/optimizer", m.optimizer),
                                 scalar("metadata/plans", m.plans)};
  if (!m.input.empty()) scalars.push_back(scalar("metadata/input", m.input));
  if (!m.network.empty()) scalars.push_back(scalar("metadata/network", m.network));
  if (!m.class_names.empty()) scalars.push_back(scalar("metadata/class_names", m.class_names));
  return scalars;
}

class Layouter {
 public:
  explicit Layouter(hid_t file)
      : file_(file),
        groups_(properties(H5P_GROUP_CREATE)),
        datasets_(properties(H5P_DATASET_CREATE)) {
    check(H5Pset_obj_track_times(groups_.get(), false), "H5Pset_obj_track_times");
    check(H5Pset_layout(datasets_.get(), H5D_CONTIGUOUS), "H5Pset_layout");
    check(H5Pset_alloc_time(datasets_.get(), H5D_ALLOC_TIME_EARLY), "H5Pset_alloc_time");
    check(H5Pset_fill_time(datasets_.get(), H5D_FILL_TIME_NEVER), "H5Pset_fill_time");
    check(H5Pset_obj_track_times(datasets_.get(), false), "H5Pset_obj_track_times");
  }

  std::uint64_t add(const TensorInfo& tensor) {
    const int rank = static_cast<int>(tensor.shape.size());
    const std::vector<hsize_t> sizes(tensor.shape.begin(), tensor.shape.end());
    const Dataspace space(
        check(rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, sizes.data(), nullptr),
              "H5Screate of " + tensor.name));
    const H5Dataset dataset = create(tensor.name, H5T_IEEE_F32LE, space.get());
    return element_count(tensor) == 0 ? 0 : offset_of(dataset, tensor.name);
  }

  std::uint64_t add(const Scalar& scalar) {
    const Dataspace space(check(H5Screate(H5S_SCALAR), "H5Screate"));
    const Datatype type(check(H5Tcopy(scalar.is_text ? H5T_C_S1 : H5T_STD_U64LE), "H5Tcopy"));
    if (scalar.is_text) {
      check(H5Tset_size(type.get(), scalar.bytes.size()), "H5Tset_size");
      check(H5Tset_cset(type.get(), H5T_CSET_UTF8), "H5Tset_cset");
      check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "H5Tset_strpad");
    }
    return offset_of(create(scalar.name, type.get(), space.get()), scalar.name);
  }

 private:
  H5Dataset create(const std::string& name, hid_t type, hid_t space) {
    make_groups_of(name);
    return H5Dataset(check(
        H5Dcreate2(file_, name.c_str(), type, space, H5P_DEFAULT, datasets_.get(), H5P_DEFAULT),
        "H5Dcreate2 of " + name));
  }

  // By hand: groups that HDF5 makes in passing carry the time of day.
  void make_groups_of(const std::string& name) {
    for (auto end = name.find('/'); end != std::string::npos; end = name.find('/', end + 1)) {
      const std::string group = name.substr(0, end);
      if (made_.insert(group).second)
        Group(check(H5Gcreate2(file_, group.c_str(), H5P_DEFAULT, groups_.get(), H5P_DEFAULT),
                    "H5Gcreate2 of " + group));
    }
  }

  static std::uint64_t offset_of(const H5Dataset& dataset, const std::string& name) {
    const haddr_t offset = H5Dget_offset(dataset.get());
    if (offset == HADDR_UNDEF) throw Error("H5Dget_offset", name + " has no place");
    return offset;
  }

  hid_t file_;
  Properties groups_, datasets_;
  std::set<std::string> made_;
};

}  // namespace

Hdf5Layout::Hdf5Layout(const CheckpointMetadata& metadata, std::span<const TensorInfo> tensors,
                       std::uint64_t user_block)
    : user_block_(user_block),
      image_(check_errno(::memfd_create("hdf5", MFD_CLOEXEC), "memfd_create")) {
  tame_library();
  {
    const Hdf5File file = create_file(image(), user_block);
    Layouter layout(file.get());
    for (const Scalar& scalar : scalars_of(metadata))
      scalars_.push_back({layout.add(scalar), scalar.bytes.size()});
    for (const TensorInfo& tensor : tensors) offsets_.push_back(layout.add(tensor));
    check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL), "H5Fflush");
  }
  struct stat status {};
  check_errno(::fstat(image(), &status), "fstat");
  bytes_ = static_cast<std::uint64_t>(status.st_size);
  fill(metadata);
}

bool Hdf5Layout::fits(const CheckpointMetadata& metadata, std::uint64_t user_block) const {
  return user_block == user_block_ &&
         std::ranges::equal(
             scalars_of(metadata), scalars_, {},
             [](const Scalar& scalar) { return scalar.bytes.size(); }, &Place::bytes);
}

void Hdf5Layout::fill(const CheckpointMetadata& metadata) {
  const std::vector<Scalar> scalars = scalars_of(metadata);
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    const std::string& bytes = scalars[i].bytes;
    const ssize_t written =
        ::pwrite(image(), bytes.data(), bytes.size(), static_cast<off_t>(scalars_[i].offset));
    check_storage(written < 0 ? -1 : 0, "write of the metadata to memory");
    expects(written == static_cast<ssize_t>(bytes.size()), "the HDF5 image takes its metadata");
  }
}

LibraryVersion hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return {"HDF5", fmt::format("{}.{}.{}", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE),
          fmt::format("{}.{}.{}", major, minor, release)};
}

}  // namespace ringtrain::io
