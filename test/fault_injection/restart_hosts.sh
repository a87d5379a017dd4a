#!/usr/bin/env bash
# restart_hosts.sh TRAIN SUPERVISE: of four hosts one loses power; the job is started again on the other three, from its newest
# checkpoint and with the same images a step, and trains to its end.
set -u
train=$1 supervise=$(realpath "$2") bad=0
hosts=$(dirname "$(readlink -f "$0")")/../support/hosts/hosts.sh
HOSTS_RUN=$(mktemp -d)
export HOSTS_RUN HOSTS_DETACHED=1 TMPDIR=$HOSTS_RUN  # TMPDIR: where reports go
trap '"$hosts" down; rm -rf "$HOSTS_RUN"' EXIT
why_not=$("$hosts" check) || { echo "skipped: $why_not"; exit 77; }
export MPIRUN_BY=$supervise \
  MPIRUN_FLAGS="--mca oob_tcp_keepalive_time 3 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3"
log=$HOSTS_RUN/log saves=$HOSTS_RUN/saves metrics=$HOSTS_RUN/metrics

since() { bc <<<"scale=1; ($(date +%s.%N) - $1) / 1"; }
await() { # PATTERN FILE SECONDS
  for ((i = 0; i < 10 * $3; i++)); do
    grep -qE "$1" "$2" 2>/dev/null && return
    sleep 0.1
  done
  echo "not within $3 s: $1"
  cat "$log"
  exit 1
}
says() { grep -qE "$1" "$log" || { echo "nobody says: $1"; bad=1; }; }

"$hosts" up 4
"$hosts" mpirun 1 "$train" --model mlp --data shapes --steps 1000000 --batch 16 --threads 1 --log-every 20 --eval-every 0 \
  --checkpoint-dir "$saves" --checkpoint-every 100 --metrics "$metrics" --restarts 2 --without-lost-hosts >"$log" 2>&1 &
job=$!
await 'checkpoint [1-9]' "$log" 200
"$hosts" power 3
lost=$(date +%s.%N)
await '^supervise: restart 1 of 2: ' "$log" 200
told=$(since "$lost")
await '^saved by 4 ranks, going on with 3' "$log" 200
resumed=$(since "$lost")
lines=$(wc -l <"$metrics")
for ((i = 0; i < 2000 && $(tail -n "+$((lines + 1))" "$metrics" | grep -c '"kind":"step"') == 0; i++)); do sleep 0.1; done
echo "power loss of one of 4 hosts: told after $told s, resumed on the others after $resumed s, the first steps logged after $(since "$lost") s"
kill -TERM "$job"
wait "$job"
says '^supervise: restart 1 of 2: .*-3.*; without .*-3, with 3 of 4 ranks; going on from step-'
says '^as 4 ranks: 64 images a step, 2 times 11 or less on a rank'
says '^supervise: SIGTERM: not started again'
grep -q '^changed since that checkpoint: images a step' "$log" && { echo "the images a step are others"; bad=1; }
tail -n "+$((lines + 1))" "$metrics" | grep -q '"kind":"step"' || { echo "no step after the restart"; bad=1; }
[ $bad -eq 0 ] || cat "$log"
exit $bad
