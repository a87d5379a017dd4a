#!/usr/bin/env bash
# one_owner.sh TRAIN here|far: a checkpoint directory has one owner, whom a second job names; its death frees the directory at
# once. The owner is on this host or, as far as one machine can show it, on another.
set -u
train=$(realpath "$1")
. "$(dirname "$0")/checks.sh"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
job() { timeout 200 "$train" --model mlp --data shapes --batch 32 --eval-every 0 --checkpoint-dir d "$@" >log 2>&1 </dev/null; }

host=$(hostname)
owner() { exec "$@"; }
if [ "$2" = far ]; then  # a host name of its own, and no signal reaches anyone
  unshare --uts --pid --fork --mount-proc hostname far.example 2>why || { echo "skipped: no other host can be made here: $(tail -n 1 why)"; exit 77; }
  host=far.example
  owner() { exec unshare --uts --pid --fork --mount-proc --kill-child sh -c 'hostname far.example; exec "$0" "$@"' "$@"; }
fi

owner "$train" --model mlp --data shapes --batch 32 --eval-every 0 --checkpoint-dir d --steps 1000000 >first 2>&1 </dev/null &
first=$!
for ((i = 0; i < 300; i++)); do grep -q "step 10," first && break || sleep 0.1; done
job --steps 10
check "a second job: exit code $?" test $? -eq 73
check "a second job: told once, with run, host and process" \
  is "$(grep -cE "^train: .*/d: in use by run [^ ]+ on host $host, process [0-9]+; give each job its own --checkpoint-dir" log)" 1
kill -9 $first
wait 2>/dev/null
now_ms() { echo $(($(date +%s%N) / 1000000)); }
start=$(now_ms)
timeout 200 "$train" --model mlp --data shapes --batch 32 --eval-every 0 --checkpoint-dir other --steps 10 >log 2>&1 </dev/null
plain_ms=$(($(now_ms) - start)) start=$(now_ms)
job --steps 10
check "after the owner's death: exit code $?" test $? -eq 0
took_ms=$(($(now_ms) - start))
check "after the owner's death: the lock is free" lacks "in use"
check "after the owner's death: nothing is waited for" test $took_ms -lt $((10 * plain_ms))
exit $bad
