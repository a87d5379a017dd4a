#!/usr/bin/env bash
# one_owner.sh TRAIN: a checkpoint directory has one owner, whom a second job names; its death frees the directory at once.
set -u
train=$(realpath "$1")
. "$(dirname "$0")/checks.sh"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
job() { timeout 60 "$train" --model mlp --data shapes --batch 32 --eval-every 0 --checkpoint-dir d "$@" >log 2>&1 </dev/null; }

# From another host, as far as one machine can show it: a host name of its own, and no signal reaches anyone.
far() { exec unshare --uts --pid --fork --mount-proc --kill-child sh -c 'hostname far.example; exec "$0" "$@"' "$@"; }
host=far.example
unshare --uts --pid --fork --mount-proc true 2>/dev/null || { host=$(hostname); far() { exec "$@"; }; }

far "$train" --model mlp --data shapes --batch 32 --eval-every 0 --checkpoint-dir d --steps 1000000 >first 2>&1 </dev/null &
first=$!
for ((i = 0; i < 300; i++)); do grep -q "step 10," first && break || sleep 0.1; done
job --steps 10
check "a second job: exit code $?" test $? -eq 73
check "a second job: told once, with run, host and process" \
  is "$(grep -cE "^train: .*/d: in use by run [^ ]+ on host $host, process [0-9]+; give each job its own --checkpoint-dir" log)" 1
kill -9 $first
wait 2>/dev/null
before=$(date +%s%N)
job --steps 10
check "after the owner's death: exit code $?" test $? -eq 0
check "after the owner's death: the lock is free" lacks "in use"
check "after the owner's death: nothing is waited for" test $((($(date +%s%N) - before) / 1000000)) -lt 10000
exit $bad
