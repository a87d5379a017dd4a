#!/usr/bin/env bash
# local_ranks.sh MPIRUN TRAIN: `train --ranks N` is `mpirun -np N train`, with mpirun's exit codes and signals; what --print-config writes
# repeats the run, under mpirun, by --ranks and from standard input.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
enter_folder
options=(--data shapes --threads 1 --eval-every 0 --steps 6)
unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM  # --ranks needs none

launch_alone "$train" --ranks 2 --model mlp --batch 8 "${options[@]}" --checkpoint-dir ranks
exits "two ranks without mpirun" 0
check "both train" has "on 2 ranks"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
launch 2 "$train" --model mlp --batch 8 "${options[@]}" --checkpoint-dir mpirun
check "the bits of mpirun -np 2" is "$(bits ranks)" "$(bits mpirun)"
launch 2 "$train" --ranks 2 --model mlp --batch 8 "${options[@]}" --checkpoint-dir both
exits "mpirun -np 2 with --ranks 2" 0
launch 2 "$train" --ranks 3 --model mlp
exits "mpirun -np 2 with --ranks 3" 64
check "which is told" has "^train: --ranks 3: mpirun or srun has started a job of 2 ranks; leave --ranks out"
unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM

more=$(($(nproc) + 1))
launch_alone "$train" --ranks $more --model mlp --batch 8 "${options[@]}"
exits "more ranks than cores" 0
check "all of them train" has "on $more ranks"
launch_alone "$train" --ranks 2 --model mlp --batch 8 --steps 50 --lr 1e6 --optimizer sgd --warmup-epochs 0 --lr-schedule constant
exits "numbers that are not finite" 76
env PATH=/nowhere "$train" --ranks 2 --model mlp >"$log" 2>&1
exits "without mpirun" 64
check "what to install is told" has "^train: --ranks 2: there is no mpirun in PATH; install Open MPI: apt-get install openmpi-bin"

"$train" --ranks 2 --model mlp --batch 8 --data shapes --steps 1000000 --eval-every 0 --log-every 10 --checkpoint-dir told >"$log" 2>&1 &
mpi=$!
await 30 has_or_over "step 10,"
kill "$mpi"
ends
check "a signal comes to the ranks, which save" has_checkpoint told
check "and end the job ($took s)" test "$took" -le 30

# Recipes whose rate depends on the images of a step, an average and a warm-up. The first run has given options, the others the file.
for model in resnet20 cifar10_cnn; do
  given=(--model $model --batch 8 "${options[@]}" --label-smoothing 0.1 --checkpoint-dir run --ranks 2)
  "$train" "${given[@]}" --print-config >$model.toml
  exits "--print-config of $model" 0
  check "$model: values, no recipe" test "$(grep -cE "^[a-z-]+ = .*recipe|^# .*: .*recipe" $model.toml)" = 0
  for name in optimizer lr lr-schedule warmup-epochs weight-decay ema; do
    check "$model: $name has a value" grep -q "^$name = " $model.toml
  done
  launch_alone "$train" "${given[@]}"
  first=$(bits run) && rm -rf run
  launch_alone "$train" --config $model.toml
  exits "$model: the file alone" 0
  check "$model: the file alone has the same bits" is "$(bits run)" "$first"
  rm -rf run
  timeout 60 "$train" --config - <$model.toml >"$log" 2>&1
  exits "$model: from standard input" 0
  check "$model: from standard input, too" is "$(bits run)" "$first"
  "$train" --config $model.toml --print-config >again.toml
  check "$model: it writes the same file" cmp -s $model.toml again.toml
  rm -rf run
done
/usr/bin/env python3 - resnet20.toml <<'END' >"$log" 2>&1 || { [ $? = 77 ] || wrong "Python's reader of TOML reads it as it is meant"; }
import sys
try:
    import tomllib
except ImportError:
    sys.exit(77)
read = tomllib.load(open(sys.argv[1], "rb"))
assert read["run"]["ranks"] == 2 and read["run"]["batch"] == 8 and read["run"]["steps"] == 6, read
assert read["model"] == {"model": "resnet20", "sync-batchnorm": False}, read
assert read["optimizer"]["label-smoothing"] == 0.1 and read["checkpoint"]["checkpoint-every"] == "60s", read
END
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 launch 2 "$train" --config - --steps 1
exits "several ranks that mpirun starts have no standard input" 64
check "which is told once" test "$(count "^train: --config -: one of 2 ranks has the standard input")" = 1
exit $bad
