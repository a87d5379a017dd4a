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
. scripts/bundle_parts.sh
# Left to the other machine: what belongs to its kernel and compiler, and CUDA, which wheels or a toolkit bring.
theirs='^(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libcuda|libcudart|libcudnn|libcublas|libnccl|libnvrtc|libcupti)[.-]|^libcu(dnn|blas)'

copy_programs() {
  local name file
  for name in train device_dump test_cuda_gpu compare_checkpoints libkernel_times.so; do
    # The newest: where a folder has moved, the build keeps what was made before.
    file=$(find build/gpu-bundle -type f -name "$name" -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)
    [ -n "$file" ] || { echo "bundle: $name is not part of this build" >&2; continue; }
    install -D -s "$file" "$bundle/build/release/${file#build/gpu-bundle/}"
  done
  [ -n "$(find "$bundle/build" -name device_dump)" ] || { echo "bundle: this build has no CUDA" >&2; exit 69; }
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

cmake --preset release -B build/gpu-bundle -DRINGTRAIN_RELEASE=ON >/dev/null  # for whatever GPU is there
cmake --build build/gpu-bundle --target gpu_check_programs
copy_programs
copy_open_mpi
copy_libraries "$theirs"
write_env
tar -C "$bundle" --transform 's,^\.,runtime,' -czf "$bundle.tar.gz" .
echo "bundle: $(mib "$bundle") MiB in $bundle, $(mib "$bundle.tar.gz") MiB as $bundle.tar.gz"
[ "$(mib "$bundle.tar.gz")" -le $most_mib ] || { echo "bundle: more than $most_mib MiB to send" >&2; exit 1; }
