#!/usr/bin/env bash
# choose_device.sh MPIRUN TRAIN [TRAIN_ON_SIMULATED_GPU]: what --device auto makes of a machine's GPUs, which are fake lists of a
# kernel and, for the third program, a simulated driver. Prints what each situation said.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") simulated=${3:+$(realpath "$3")}
enter_folder
export OMP_NUM_THREADS=1 XDG_CACHE_HOME=$dir/cache
unset NVIDIA_VISIBLE_DEVICES
export CUDA_VISIBLE_DEVICES=999  # CUDA sees no real GPU by this, and `train` no wish to hide one

plug_in() { # ROOT DRIVER
  local device=$1/sys/bus/pci/devices/0000:3b:00.0
  mkdir -p "$device"
  echo 0x10de >"$device/vendor"
  echo 0x030200 >"$device/class"
  ln -s "../../../bus/pci/drivers/$2" "$device/driver"
}
load_driver() { # ROOT VERSION
  mkdir -p "$1/proc/driver/nvidia/gpus/0000:3b:00.0"
  echo "NVRM version: NVIDIA UNIX x86_64 Kernel Module  $2  Sun May 12 19:39:15 UTC 2024" >"$1/proc/driver/nvidia/version"
  printf 'Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 16\n' >"$1/proc/driver/nvidia/gpus/0000:3b:00.0/information"
}
mkdir none
plug_in bus nouveau
for version in 535.183.01 580.95.05; do plug_in $version nvidia && load_driver $version $version; done

options="--model mlp --data synthetic --batch 4 --steps 2 --eval-every 0 --log-every 1"
told='^(train: |training on CPUs: |GPU )'
# situation NAME CODE TEXT RANKS ROOT PROGRAM ARGUMENTS...: the exit code, and TEXT in the one message to the user
situation() {
  local name=$1 code=$2 text=$3 ranks=$4 root=$5 got
  shift 5
  RINGTRAIN_SYSTEM_ROOT=$dir/$root limit=120 launch "$ranks" "$@" $options
  judge "$name" "$code" "$text" $?
}
judge() { # NAME CODE TEXT GOT
  check "$1: exit code $4, not $2" test "$4" -eq "$2"
  check "$1: one message" test "$(grep -cE "$told" log)" -eq 1
  check "$1: it says so" has "$3"
  echo "--- $1 (exit code $4)"
  grep -E "$told" log
}

# The program as it is built here: no CUDA, or no driver for it.
situation "no GPU" 0 "training on CPUs: no NVIDIA GPU in this machine" 2 none "$train"
CUDA_VISIBLE_DEVICES='' situation "a hidden GPU" 0 "training on CPUs: CUDA_VISIBLE_DEVICES is ''" 2 580.95.05 "$train"
situation "a GPU on the bus, no driver" 64 "^train: --device auto: .*no NVIDIA driver loaded, held by nouveau.*--device cpu" 2 bus "$train"
situation "no GPU, but asked for" 64 "^train: --device cuda: no NVIDIA GPU in this machine" 2 none "$train" --device cuda
RINGTRAIN_SYSTEM_ROOT=$dir/bus limit=120 launch_alone "$train" --device cpu $options
exits "--device cpu" 0
check "--device cpu: nothing is told" lacks "$told"
# Ranks that see different machines end together all the same.
timeout 120 "$mpirun" --oversubscribe -np 2 sh -c 'if [ $OMPI_COMM_WORLD_RANK = 0 ]; then machine=none; else machine=bus; fi
  RINGTRAIN_SYSTEM_ROOT=$0/$machine exec "$@"' "$dir" "$train" $options >log 2>&1 </dev/null
judge "a GPU on one rank only" 64 "^train: rank 1/2 on .*: --device auto: .*NVIDIA GPU at PCI" $?

if [ -n "$simulated" ]; then
  unset CUDA_VISIBLE_DEVICES
  situation "a good GPU" 0 "^GPU .*simulated H100.*fp16" 1 580.95.05 "$simulated"
  SIMULATED_GPU_DRIVER=12020 situation "a driver that is too old" 64 "driver 535.183.01.*for CUDA 12.2, this build's CUDA 13.* wants driver 580" \
    2 535.183.01 "$simulated"
  SIMULATED_GPU_DRIVER=0 situation "a driver without its library" 64 "libcuda.so.1 is not found" 2 580.95.05 "$simulated"
  SIMULATED_GPU_CAPABILITY=70 situation "a GPU that is too old" 64 "compute capability 7.0 is too old: cuDNN 9.11 and CUDA 13 want 7.5" 2 580.95.05 "$simulated"
  options="$options --precision bf16" SIMULATED_GPU_CAPABILITY=75 situation "a GPU without bf16" 64 "compute capability 7.5 has no bf16, 8.0 .Ampere.*--precision fp16" 2 \
    580.95.05 "$simulated"
  SIMULATED_GPU_KERNELS=100-real situation "a GPU for which nothing was compiled" 64 "no kernels for its compute capability 9.0" \
    2 580.95.05 "$simulated"
  # Found before the real one, and no library.
  for library in libcudnn.so.9 libnccl.so.2; do
    mkdir broken-$library && echo broken >broken-$library/$library
    LD_LIBRARY_PATH=$dir/broken-$library situation "a library that cannot be loaded" 64 "cannot train on it: .*$library: .*scripts/setup.sh" \
      2 580.95.05 "$simulated"
  done
  SIMULATED_GPUS=0 situation "a GPU that this job was not given" 64 "CUDA says: no CUDA-capable device" 2 580.95.05 "$simulated"
fi
exit $bad
