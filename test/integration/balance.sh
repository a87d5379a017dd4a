#!/usr/bin/env bash
# balance.sh MPIRUN TRAIN COMPARE: classes that come equally often, or weigh more, train alike on any ranks and through resumes; what
# changes is told, what is wrong is refused.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") compare=$(realpath "$3")
need "$python"
enter_folder
cat >tiny.model <<'MODEL'
model tiny classes=3
recipe batch=8 lr=0.05 lr-schedule=constant optimizer=momentum
images pad=1 flip=yes
input size=8 channels=1 mean=0.5 deviation=0.25
fc1 = matrix_product outputs=16
relu
dropout keep=0.8
fc2 = matrix_product outputs=$classes
loss
MODEL
mkdir mnist && printf 'a\nb\nc\n' >mnist/classes.txt
"$python" - <<'PYTHON'
import random, struct
random.seed(2)
for name, labels in (("train", [0] * 60 + [1] * 60 + [2] * 6), ("t10k", [0, 1, 2] * 10)):
    with open(f"mnist/{name}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">II", 0x801, len(labels)) + bytes(labels))
    with open(f"mnist/{name}-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">IIII", 0x803, len(labels), 8, 8))
        for label in labels:
            file.write(bytes(random.randint(0, 115) + 70 * label for _ in range(64)))
PYTHON
printf 'class,weight\nc,4\na,1\nb,0.5\n' >w.csv
printf '0,1\n1,0.5\n2,4\n' >numbers.csv
printf 'a,1\nb,1\nc,1\n' >ones.csv

job() { # RANKS OPTION...
  launch "$1" "$train" --model-file tiny.model --data mnist:mnist --threads 1 --data-threads 1 --eval-every 0 "${@:2}"
}
balanced=(--balance --class-weights w.csv --label-smoothing 0.1 --global-batch 18)

job 1 "${balanced[@]}" --steps 20 --checkpoint-dir alone
exits "one rank" 0
check "how often classes come: told" has "^--balance: 42 images an epoch of each of 3 classes, which have 6 to 60$"
check "the weights: told" has "^--class-weights: 0.5 to 4$"
for ranks in 2 3; do
  job $ranks "${balanced[@]}" --steps 20 --checkpoint-dir "on$ranks"
  exits "$ranks ranks" 0
  check "$ranks ranks as one" "$compare" "$(file_of alone 20)" "$(file_of "on$ranks" 20)" 1e-5
done
for without in "--class-weights w.csv" "--balance"; do
  # shellcheck disable=SC2086
  job 1 $without --label-smoothing 0.1 --global-batch 18 --steps 20 --checkpoint-dir other
  check "$without alone: other bits" differ "$(bits other)" "$(bits alone)"
  rm -rf other
done
job 1 --class-weights ones.csv --global-batch 18 --steps 20 --checkpoint-dir ones
job 1 --global-batch 18 --steps 20 --checkpoint-dir none
check "weights of 1 as none" "$compare" "$(file_of none 20)" "$(file_of ones 20)" 1e-6

job 2 "${balanced[@]}" --steps 9 --checkpoint-dir parts
job 2 "${balanced[@]}" --class-weights numbers.csv --steps 20 --checkpoint-dir parts
exits "goes on amid an epoch" 0
check "goes on: the same bits" is "$(bits parts)" "$(bits on2)"
check "goes on: the same weights in another file are no change" lacks "changed since that checkpoint: (class|balance)"
job 2 --class-weights ones.csv --global-batch 18 --steps 21 --checkpoint-dir parts
check "other weights: told" has "changed since that checkpoint: class-weights: file [0-9a-f]* -> file [0-9a-f]*$"
check "no longer balanced: told" has "changed since that checkpoint: balance: true -> unset$"
job 2 "${balanced[@]}" --verify-resume 10
exits "--verify-resume" 0

job 1 --eval-only --resume "$(file_of none 20)"
before=$(top1)
job 1 --eval-only --resume "$(file_of none 20)" "${balanced[@]}"
check "an evaluation is not weighted" is "$(top1)" "$before"

timeout 100 "$mpirun" --oversubscribe -np 2 sh -c 'cp "$([ $OMPI_COMM_WORLD_RANK = 0 ] && echo w || echo ones).csv" $OMPI_COMM_WORLD_RANK.csv
  exec "$0" --model-file tiny.model --data mnist:mnist --threads 1 --steps 2 --class-weights $OMPI_COMM_WORLD_RANK.csv' "$train" >log 2>&1 </dev/null
exits "ranks with other weights" 64
check "ranks with other weights: told" has "the ranks were not started alike"
printf 'a,1\nb,1\n' >two.csv
job 2 --class-weights two.csv --steps 2
exits "a class is missing" 64
check "a class is missing: told" has "class-weights two.csv: has no row of 1 of the 3 classes: c"
exit $bad
