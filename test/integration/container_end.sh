#!/usr/bin/env bash
# container_end.sh MPIRUN TRAIN ENTRY SUPERVISE: a job in a PID namespace, as in a container, is told to end amid a step of seconds, and all
# is killed 10 s later, as `docker stop` does. With the image's entry point as first process the last step is durable and the exit code 143;
# with a bare mpirun the namespace ends with it, and what was being saved is lost, but nothing else. A worker of a Kubernetes job, whose
# first process is sshd, hands the signal on to its ranks and outlives the last save.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") entry=$(realpath "$3") supervise=$(realpath "$4")
enter_folder
unshare --pid --fork --mount-proc true 2>why || skip "no PID namespace can be made here ($(cat why))"
ln -s "$train" train
sed "s|/opt/ringtrain/share/ringtrain/scripts/supervise|$supervise|" "$entry" >entry && chmod +x entry

# stop FOLDER FIRST...: the exit code of a container whose first process is FIRST, told to end after its second step.
stop() {
  local folder=$1
  shift
  : >log
  unshare --pid --fork --mount-proc --kill-child "$@" "$mpirun" -np 2 --oversubscribe "$dir/train" --model resnet20 --data shapes \
    --batch 16 --accumulate "$accumulate" --threads 1 --eval-every 0 --log-every 1 --steps 1000 --checkpoint-dir "$folder" --checkpoint-every 1h >log 2>&1 &
  local outer=$! first
  wait_for 60 has 'step 2, loss'
  first=$(pgrep -P $outer) || { check "$folder: the container has a first process" false; return; }
  kill -TERM "$first"
  [ ! "$launcher_too" ] || pkill -TERM -f "^$mpirun -np 2 .* --checkpoint-dir $folder "
  wait_for 10 ended $outer
  kill -KILL "$first" 2>/dev/null
  wait $outer
  code=$?
  told=$(sed -n 's/.*: step \([0-9]*\), loss.*/\1/p' log | tail -n 1)
}

# A step of two seconds, however fast the machine is: a run may need two of them to end, and has 10 s.
"$mpirun" -np 2 --oversubscribe "$dir/train" --model resnet20 --data shapes --batch 16 --accumulate 10 --threads 1 --eval-every 0 \
  --log-every 1 --steps 3 >log 2>&1
micro_steps=$(sed -n 's/.* \([0-9.]*\) sec\/batch.*/\1/p' log | tail -n 1 | awk '{ print int(20 / $1) + 1 }')
[ "$micro_steps" ] || give_up "no step could be timed: $(tail -n 3 log)"

accumulate=$micro_steps launcher_too=
stop stopped "$dir/entry"
check "the entry point: 143" is $code 143
check "the entry point: the last step is durable" test -f "$(file_of stopped "$told")" -o -f "$(file_of stopped $((told + 1)))"
check "the entry point says so" has "supervise: the writer saved step [0-9]+: step-[0-9]+.h5|the run ends after step"

printf '#!/bin/sh\ntrap "exit 0" TERM\n"$@" & wait\n' >sshd && chmod +x sshd
stop worker "$dir/entry" "$dir/sshd"
check "a worker: 143" is $code 143
check "a worker: its ranks got the signal" has "the run ends after step"
check "a worker: the last step is durable" test -f "$(file_of worker "$told")"

# As by `kubectl delete`: the launcher's mpirun kills the ranks a second later, amid a step of some seconds.
accumulate=$((3 * micro_steps)) launcher_too=yes
stop killed "$dir/entry" "$dir/sshd"
check "a worker whose ranks are killed: 143" is $code 143
check "a worker whose ranks are killed: amid a step" lacks "the run ends after step"
check "a worker whose ranks are killed: the last step is durable" test -f "$(file_of killed "$told")"
check "a worker whose ranks are killed: by the writer" grep -q "^result: saved" killed/last-save.txt

accumulate=$micro_steps launcher_too=
stop bare
echo "a bare mpirun as first process: exit code $code, $(find bare -name 'step-*.h5' | wc -l) checkpoints"
"$train" --model resnet20 --data shapes --batch 16 --steps 1 --eval-every 0 --checkpoint-dir bare >log 2>&1
exits "a bare mpirun: the directory can be used again" 0
exit $bad
