#!/usr/bin/env bash
# doctor.sh MPIRUN TRAIN: what is checked before training, and what a user hears of it.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
enter_folder

job() { # RANKS ARGUMENTS...
  local ranks=$1
  shift
  limit=60 launch "$ranks" "$train" --model mlp --data shapes --batch 8 --steps 3 --eval-every 0 "$@"
}

job 2 --doctor --checkpoint-dir new
exits "--doctor" 0
for row in options hosts threads GPUs MPI network EFA memory /dev/shm limits data checkpoints; do
  check "--doctor: the row $row" has "^  (ok|note|warning) +$row +[a-zA-Z0-9]"
done
check "--doctor: all is tried" has "training would begin"
check "--doctor: does not train" lacks "trained|step "
check "--doctor: writes no checkpoint" is "$(ls new)" lock

"$train" --model mlp --data shapes --doctor >log 2>&1
exits "--doctor without a launcher" 0

job 2 --doctor --data images:nowhere
exits "no data" 74
check "no data: the table says so, for both ranks" has "stop +options"
check "no data: is told once, with the way to go" is "$(grep -c '^train: --doctor: training would not begin: .*nowhere' log)" 1

mkdir -p pictures/{train,test}/{cat,dog}
for n in 1 2 3 4; do for d in {train,test}/{cat,dog}; do echo "no picture $n" >"pictures/$d/$n.jpg"; done; done
job 2 --doctor --data images:pictures --model resnet20 --batch 1
exits "unreadable" 0
check "unreadable: both ends are named" is "$(grep -c 'sample cannot be read' log)" 4

"$train" --model mlp --data shapes --steps 1000000 --log-every 1 --checkpoint-dir taken >log 2>&1 &
owner=$!
await 60 has "step "
job 2 --doctor --checkpoint-dir taken
exits "a directory of another job" 73
kill $owner && wait $owner 2>/dev/null

# What is found is told by every run, once, also with --quiet; where all is well nobody hears of it.
job 2
exits "all well" 0
sed -Ei '/doctor: (hosts|threads|GPUs|network|EFA|memory|\/dev\/shm|limits): /d' log  # as this machine may be
check "all well: nothing is told" lacks "doctor"
(ulimit -n 130 && job 2 --quiet)
exits "few files" 0
check "few files: told once, for both ranks" is "$(grep -c 'doctor: limits: a process may open 130 files.*ranks 0-1 on' log)" 1
exit $bad
