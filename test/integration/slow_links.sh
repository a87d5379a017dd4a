#!/usr/bin/env bash
# slow_links.sh TRAIN SLOW_SWITCH: between hosts with 5 ms from each to each, several sums run at once; the bits are those of fast links.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1") SLOW_SWITCH=$(realpath "$2")
export SLOW_SWITCH
enter_folder
need_hosts 200mbit 5

run() { # NAME OPTION...
  local name=$1
  shift
  launch_on_hosts 1 "$train" --model mlp --data shapes --batch 2 --threads 1 --bucket-mb 0.1 --eval-every 0 \
    --log-every 1 --check-every 1 --steps 6 --checkpoint-dir "$dir/$name" "$@" || give_up "$name failed"
}

"$hosts" up 3 || exit 1
run fast
check "fast links: what was measured is told" has "^links: [0-9]+ MB/s from host to host, .* [0-9]+ sums? at once"
"$hosts" down
"$hosts" up 3 200mbit 5 || exit 1
run slow
check "slow links: a hop" has "^links: 2[0-9] MB/s from host to host, [3-7]\\.[0-9]+ ms a hop"
check "slow links: several sums at once" has "^links: .* [2-9] sums at once"
check "slow links: the same bits" is "$(bits slow)" "$(bits fast)"
exit $bad
