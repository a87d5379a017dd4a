#!/usr/bin/env bash
# measure.sh EMULATED_STEPS SLOW_SWITCH [ROUNDS]: what model.py is fitted to and held against: steps of one rank a host that sleep instead
# of computing, so that 16 hosts fit on few cores, on networks made for it. Prints a JSON object a run; takes 7 minutes a round.
set -u
steps=$(readlink -f "$1") SLOW_SWITCH=$(readlink -f "$2") rounds=${3:-1}
hosts=$(dirname "$(readlink -f "$0")")/../../support/hosts/hosts.sh
HOSTS_RUN=$(mktemp -d)
export HOSTS_RUN SLOW_SWITCH
trap '"$hosts" down; rm -rf "$HOSTS_RUN"' EXIT
why_not=$("$hosts" check) || { echo "skipped: $why_not" >&2; exit 1; }

network() { # HOSTS MBIT MILLISECONDS KEYS...
  local count=$1 mbit=$2 delay=$3 keys
  shift 3
  "$hosts" up "$count" "${mbit}mbit" "${delay#0}"
  for keys in "$@"; do
    # shellcheck disable=SC2086
    timeout 120 "$hosts" mpirun 1 "$steps" mbit="$mbit" delay_ms="$delay" warm_up=3 steps=20 $keys 2>>"$HOSTS_RUN/errors" | grep '^{' ||
      { echo "failed: $count $mbit $delay $keys" >&2; cat "$HOSTS_RUN/errors" >&2; }
  done
  "$hosts" down
}

for ((round = 0; round < rounds; round++)); do
  for count in 2 3 4 8 16; do
    network $count 100 0 "kib=2048 compute_ms=50" "kib=1024 compute_ms=200" "kib=1024 compute_ms=120 jitter_pct=20" "kib=4096 compute_ms=400 jitter_pct=10"
  done
  for count in 2 4 16; do
    network $count 50 0 "kib=2048 compute_ms=50" "kib=1024 compute_ms=200" "kib=1024 compute_ms=120 jitter_pct=20"
  done
  for count in 2 4 8; do
    network $count 200 0 "kib=4096 compute_ms=50" "kib=2048 compute_ms=150 jitter_pct=20"
  done
  for count in 2 3 4; do
    network $count 100 10 "kib=2048 compute_ms=50" "kib=2048 compute_ms=50 at_once=1" "kib=4096 compute_ms=400"
  done
done
