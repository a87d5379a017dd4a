#!/usr/bin/env bash
# Sourced by the scripts here with their arguments, BUILD first: hosts made for them, and runs on them, each with a name. What a run printed
# and measured is kept in $results by that name; a run that is there is not made again, so that a script goes on where it was stopped.
set -u
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
hosts=$here/../../support/hosts/hosts.sh
build=$(readlink -f "$1")
train=$build/train server=$build/test/bench/complaints/parameter_server
results=$(realpath -m "${RESULTS:-complaints-results}")/$(basename "$0" .sh)
HOSTS_RUN=$(mktemp -d)
export HOSTS_RUN OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir -p "$results"
trap 'clean_up; "$hosts" down; rm -rf "$HOSTS_RUN"' EXIT
clean_up() { :; }
why_not=$("$hosts" check) || { echo "skipped: $why_not"; exit 0; }
up=

on_hosts() { # COUNT RATE: makes them, unless they are there
  [[ $up == "$*" ]] && return
  [[ $up ]] && "$hosts" down
  "$hosts" up "$@"
  up=$*
}
stamp() { echo "$2 $(date '+%F %T.%6N')" >>"$results/$1.times"; } # NAME WHAT: it happened to the run just now
# begin NAME: whether the run is still to be made
begin() {
  [[ -e $results/$1.load ]] && return 1
  rm -f "$results/$1".*
  stamp "$1" began
  echo "$(date +%T) $1 (load $(cut -d' ' -f1 /proc/loadavg))" >&2
}
end() { # NAME METRICS...: it is kept, if it has measured
  local file
  for file in "${@:2}"; do
    grep -q '"kind":"step"' "$file" 2>/dev/null || { echo "$1 failed:" && tail -n 5 "$results/$1".*log; } >&2
  done
  cut -d' ' -f1-3 /proc/loadavg >"$results/$1.load"
}
# ring NAME OPTION...: one rank on each host
ring() {
  local name=$1
  shift
  begin "$name" || return 0
  timeout "${LIMIT_S:-3000}" "$hosts" mpirun 1 "$here/core.sh" "$train" "$@" --threads 1 --eval-every 0 --metrics "$results/$name.jsonl" >"$results/$name.log" 2>&1
  end "$name" "$results/$name.jsonl"
}
# parameter_server NAME KEYS OPTION...: a worker on each host but the last, which is the server
parameter_server() {
  local name=$1 keys=$2 workers=$((${up%% *} - 1)) w pids=()
  shift 2
  begin "$name" || return 0
  keys+=" workers=$workers"
  # shellcheck disable=SC2086
  "$hosts" exec "$workers" timeout "${LIMIT_S:-3000}" "$server" serve $keys -- "$@" >"$results/$name.server.log" 2>&1 &
  pids+=($!)
  for ((w = 0; w < workers; w++)); do
    # shellcheck disable=SC2086
    "$hosts" exec "$w" timeout "${LIMIT_S:-3000}" "$here/core.sh" "$server" work $keys host="10.77.0.$((workers + 1))" worker="$w" -- "$@" --threads 1 \
      --metrics "$results/$name.w$w.jsonl" >"$results/$name.w$w.log" 2>&1 &
    pids+=($!)
  done
  wait "${pids[@]}"
  end "$name" "$results/$name".w*.jsonl
}
# alone NAME CORE OPTION...: one machine without any network
alone() {
  local name=$1 core=$2
  shift 2
  begin "$name" || return 0
  timeout "${LIMIT_S:-3000}" taskset -c "$core" "$train" "$@" --threads 1 --eval-every 0 --metrics "$results/$name.jsonl" >"$results/$name.log" 2>&1
  end "$name" "$results/$name.jsonl"
}
# Prints the table and draws $results.svg.
show() { "$here/show.py" "$(basename "$0" .sh)" "$results"; }
