#!/usr/bin/env bash
# bytes_between_hosts.sh HOSTS EMULATED_STEPS: ranks that share a host sum among themselves first: what crosses its link is what one rank
# a host sends there, which is the least that a ring can.
. "$(dirname "$0")/../support/lib.sh"
count=$1 steps=$(realpath "$2")
enter_folder
make_hosts "$count"
kib=4096 more=20
# Two runs of different lengths differ by the steps alone.
sent() { # so far, a line a host
  local host
  for ((host = 0; host < count; host++)); do "$hosts" exec "$host" sed -n "s/.*eth0://p" /proc/net/dev; done | awk "{ print \$9 }"
}
run() { # RANKS_A_HOST STEPS
  limit=60 launch_on_hosts "$1" "$steps" kib=$kib compute_ms=0 warm_up=0 steps="$2" || give_up "a run of $2 steps failed"
}
sent_by_steps() { # RANKS_A_HOST
  sent >before
  run "$1" 1
  sent >between
  run "$1" $((more + 1))
  sent | paste before between - | awk -v more=$more '{ printf "%.0f\n", ($3 - 2 * $2 + $1) / more }'
}

sent_by_steps 1 >alone
sent_by_steps 2 >pairs
paste alone pairs | awk -v least=$((kib * 1024 * 2 * (count - 1) / count)) '
  { printf "host %d sends %d bytes a step with one rank, %d with two; the least is %d\n", NR - 1, $1, $2, least }
  $1 < least || $1 > 1.06 * least || $2 < least || $2 > 1.06 * least { print "wrong: that is not within 6 %"; bad = 1 }
  END { exit bad || NR < 2 }'
