#!/usr/bin/env bash
# slow_links.sh TRAIN SLOW_SWITCH: between hosts with 5 ms from each to each, several sums run at once; the bits are those of fast links.
set -u
train=$(realpath "$1") SLOW_SWITCH=$(realpath "$2")
. "$(dirname "$0")/checks.sh"
hosts=$(dirname "$(readlink -f "$0")")/../support/hosts/hosts.sh
HOSTS_RUN=$(mktemp -d)
export HOSTS_RUN SLOW_SWITCH
trap '"$hosts" down; rm -rf "$HOSTS_RUN"' EXIT
why_not=$("$hosts" check 200mbit 5) || { echo "skipped: $why_not"; exit 77; }
cd "$HOSTS_RUN" || exit 1

run() { # NAME OPTION...
  local name=$1
  shift
  timeout 100 "$hosts" mpirun 1 "$train" --model mlp --data shapes --batch 2 --threads 1 --bucket-mb 0.1 --eval-every 0 \
    --log-every 1 --check-every 1 --steps 6 --checkpoint-dir "$HOSTS_RUN/$name" "$@" >log 2>&1 || { echo "$name failed:"; cat log; exit 1; }
}
state() { "$train" --inspect "$HOSTS_RUN/$1/step-0000000006.h5" | tail -n 1; }

"$hosts" up 3 || exit 1
run fast
check "fast links: what was measured is told" has "^links: [0-9]+ MB/s from host to host, .* [0-9]+ sums? at once"
"$hosts" down
"$hosts" up 3 200mbit 5 || exit 1
run slow
check "slow links: a hop" has "^links: 2[0-9] MB/s from host to host, [3-7]\\.[0-9]+ ms a hop"
check "slow links: several sums at once" has "^links: .* [2-9] sums at once"
check "slow links: the same bits" is "$(state slow)" "$(state fast)"
exit $bad
