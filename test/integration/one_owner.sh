#!/usr/bin/env bash
# one_owner.sh TRAIN here|far: a checkpoint directory has one owner, whom a second job names; its death frees the directory at
# once. The owner is on this host or, as far as one machine can show it, on another.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1")
enter_folder
limit=200
job() { launch_alone "$train" --model mlp --data shapes --batch 32 --eval-every 0 --checkpoint-dir d "$@"; }

host=$(hostname)
owner() { exec "$@"; }
if [ "$2" = far ]; then  # a host name of its own, and no signal reaches anyone
  unshare --uts --pid --fork --mount-proc hostname far.example 2>why || skip "no other host can be made here: $(tail -n 1 why)"
  host=far.example
  owner() { exec unshare --uts --pid --fork --mount-proc --kill-child sh -c 'hostname far.example; exec "$0" "$@"' "$@"; }
fi

owner "$train" --model mlp --data shapes --batch 32 --eval-every 0 --checkpoint-dir d --steps 1000000 >first 2>&1 </dev/null &
first=$!
log=first await 90 has "step 10,"
job --steps 10
exits "a second job" 73
check "a second job: told once, with run, host and process" \
  is "$(grep -cE "^train: .*/d: in use by run [^ ]+ on host $host, process [0-9]+; give each job its own --checkpoint-dir" log)" 1
kill -9 $first
wait 2>/dev/null
start=$(now_ms)
job --steps 10 --checkpoint-dir other
plain_ms=$(($(now_ms) - start)) start=$(now_ms)
job --steps 10
exits "after the owner's death" 0
took_ms=$(($(now_ms) - start))
check "after the owner's death: the lock is free" lacks "in use"
check "after the owner's death: nothing is waited for" test $took_ms -lt $((10 * plain_ms))
exit $bad
