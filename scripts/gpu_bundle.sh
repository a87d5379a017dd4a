#!/usr/bin/env bash
# gpu_bundle.sh DIR: builds what scripts/gpu_check.sh runs and puts it into the new folder DIR, with the libraries it
# needs and Open MPI, so that a machine with a GPU and Python wheels of CUDA needs neither compiler nor packages.
# DIR.tar.gz is the same to send: scripts/gpu_check.sh finds it as ./runtime.tar.gz. Wants Debian 12's packages here.
set -euo pipefail
if [ $# -ne 1 ] || [ -e "$1" ]; then
  echo "usage: scripts/gpu_bundle.sh DIR   (DIR must not exist)" >&2
  exit 64
fi
mkdir -p "$1"
bundle=$(realpath "$1")
cd "$(dirname "$(realpath "$0")")/.."

most_mib=60
system=/usr/lib/x86_64-linux-gnu
libraries=$bundle/lib/x86_64-linux-gnu
components=$libraries/openmpi/lib/openmpi3
# Left to the other machine: what belongs to its kernel and compiler, and CUDA, which wheels or a toolkit bring.
theirs='^(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libcuda|libcudart|libcudnn|libcublas|libnccl|libnvrtc)[.-]|^libcu(dnn|blas)'
# Parts of Open MPI that want these are for networks and programs that a single machine does not have.
networks='libfabric|libuc[pst]\.|libibverbs|librdmacm|libpsm|libnl-|libflux|libbz2|liboshmem'

copy_programs() {
  local name file
  for name in train device_dump test_cuda_gpu; do
    file=$(find build/release -type f -name "$name" -print -quit)
    [ -n "$file" ] || { echo "bundle: $name is not part of this build" >&2; continue; }
    install -D -s "$file" "$bundle/$file"
  done
  [ -n "$(find "$bundle/build" -name device_dump)" ] || { echo "bundle: this build has no CUDA" >&2; exit 69; }
}

copy_open_mpi() {
  local component needs
  mkdir -p "$bundle/bin" "$bundle/share" "$bundle/etc" "$components"
  cp -L /usr/bin/orterun /usr/bin/orted "$bundle/bin/"
  ln -s orterun "$bundle/bin/mpirun"
  cp -r /usr/share/openmpi "$bundle/share/"
  for component in "$system"/openmpi/lib/openmpi3/mca_*.so; do
    needs=$(ldd "$component")
    [[ $needs =~ $networks ]] || cp -L "$component" "$components/"
  done
  mkdir -p "$libraries/pmix2/lib"
  cp -rL "$system/pmix2/lib/pmix" "$libraries/pmix2/lib/"
  cp -rL "$system/pmix2/share" "$libraries/pmix2/"
}

# stand_in SONAME VERSION: a library with the functions of that version that libhdf5 names; all return 0. Only HDF5's
# driver for files in S3 calls them, which is never used; the real ones bring 13 MiB.
stand_in() {
  local work names
  work=$(mktemp -d)
  names=$(objdump -T "$system/libhdf5_serial.so.103" | awk -v version="($2)" 'NF > 1 && $(NF-1) == version { print $NF }')
  for name in $names; do echo "long $name(void) { return 0; }"; done >"$work/stand_in.c"
  echo "$2 { global: ${names//$'\n'/; }; local: *; };" >"$work/stand_in.map"
  gcc -shared -fPIC -w -fno-builtin -Wl,-soname,"$1" -Wl,--version-script,"$work/stand_in.map" -o "$libraries/$1" "$work/stand_in.c"
  rm -r "$work"
}

copy_libraries() {
  local file
  stand_in libcurl.so.4 CURL_OPENSSL_4
  stand_in libcrypto.so.3 OPENSSL_3.0.0
  find "$bundle" -type f \( -name '*.so*' -o -path '*/bin/*' -o -path '*/build/*' \) -exec env LD_LIBRARY_PATH="$libraries" ldd {} + |
    awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u | while read -r file; do
      [[ $(basename "$file") =~ $theirs ]] || cp -Ln "$file" "$libraries/"
    done
  find "$bundle" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec strip --strip-unneeded {} +
}

write_env() {
  cat >"$bundle/env.sh" <<'EOF'
# Source this: the libraries and the mpirun of this folder, and CUDA's from Python wheels.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
wheels=$(python3 -c 'import glob, nvidia; print(":".join(f for p in nvidia.__path__ for f in sorted(glob.glob(p + "/*/lib"))))' 2>/dev/null || true)
export OPAL_PREFIX=$here OPAL_LIBDIR=$here/lib/x86_64-linux-gnu/openmpi/lib OPAL_SYSCONFDIR=$here/etc
export PMIX_INSTALL_PREFIX=$here/lib/x86_64-linux-gnu/pmix2 PMIX_MCA_pcompress_base_silence_warning=1
export PMIX_MCA_mca_base_component_path=$here/lib/x86_64-linux-gnu/pmix2/lib/pmix
export OMPI_MCA_plm_rsh_agent=false OMPI_MCA_btl_base_warn_component_unused=0
export PATH=$here/bin:$PATH
export LD_LIBRARY_PATH=$here/lib/x86_64-linux-gnu:${wheels:+$wheels:}/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
unset here wheels
EOF
}

cmake --preset release >/dev/null
cmake --build --preset release --target gpu_check_programs
copy_programs
copy_open_mpi
copy_libraries
write_env
tar -C "$bundle" --transform 's,^\.,runtime,' -czf "$bundle.tar.gz" .
mib() { echo $(($(du -sb "$1" | cut -f 1) / 1048576 + 1)); }
echo "bundle: $(mib "$bundle") MiB in $bundle, $(mib "$bundle.tar.gz") MiB as $bundle.tar.gz"
[ "$(mib "$bundle.tar.gz")" -le $most_mib ] || { echo "bundle: more than $most_mib MiB to send" >&2; exit 1; }
