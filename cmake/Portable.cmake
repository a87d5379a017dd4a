# For a program that is carried to other machines (RINGTRAIN_PORTABLE, scripts/wheel.sh): small libraries and the C++ runtime are
# linked into it; what remains (oneDNN with OpenMP's runtime) is installed beside it, in lib, but for glibc and Open MPI, which
# the other machine has.
set(before ${CMAKE_FIND_LIBRARY_SUFFIXES})
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
find_package(ZLIB REQUIRED)
find_package(PNG REQUIRED)
find_package(JPEG REQUIRED)
find_package(Protobuf REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
set(OPENSSL_USE_STATIC_LIBS ON)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)
find_library(RINGTRAIN_STATIC_HDF5 NAMES hdf5_serial hdf5 REQUIRED)
find_library(RINGTRAIN_STATIC_SZ sz REQUIRED)
find_library(RINGTRAIN_STATIC_AEC aec REQUIRED)
set(CMAKE_FIND_LIBRARY_SUFFIXES ${before})

# libcrypto's functions stay the program's own: another copy of it that some library brings keeps to itself.
add_link_options(-Wl,--exclude-libs,libcrypto.a)
# Only HDF5's driver for files in S3 wants curl and OpenSSL. Nobody calls it, so the linker leaves it in the archive.
find_path(RINGTRAIN_HDF5_INCLUDE_DIR hdf5.h PATH_SUFFIXES hdf5/serial REQUIRED)
add_library(hdf5::hdf5 INTERFACE IMPORTED)
target_include_directories(hdf5::hdf5 INTERFACE ${RINGTRAIN_HDF5_INCLUDE_DIR})
target_link_libraries(hdf5::hdf5 INTERFACE ${RINGTRAIN_STATIC_HDF5} ${RINGTRAIN_STATIC_SZ} ${RINGTRAIN_STATIC_AEC} ZLIB::ZLIB
  m ${CMAKE_DL_LIBS})

# Its functions become the program's own, and the linker drops its library.
find_package(fmt REQUIRED)
add_compile_definitions(FMT_HEADER_ONLY=1)
add_link_options(-Wl,--as-needed -static-libstdc++ -shared-libgcc -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/own_runtime.map)

# Looked for before LD_LIBRARY_PATH, also for what these libraries need (RPATH, not RUNPATH): a cluster's own ones do not get
# in between. Last is where Open MPI's Python package has libmpi: the lib of the environment that this one is installed into.
add_link_options(-Wl,--disable-new-dtags)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib" "$ORIGIN/../../../..")
if(SKBUILD)  # where NVIDIA's packages (the extra cuda13) lie beside this one
  list(APPEND CMAKE_INSTALL_RPATH "$ORIGIN/../../nvidia/cudnn/lib" "$ORIGIN/../../nvidia/nccl/lib" "$ORIGIN/../../nvidia/cu13/lib")
endif()
set(RINGTRAIN_BROUGHT_ALONG RUNTIME_DEPENDENCIES PRE_EXCLUDE_REGEXES
  "^ld-linux" "^lib(c|m|mvec|dl|pthread|rt|stdc\\+\\+|gcc_s|mpi|cuda|nvidia-ml)\\.so")
