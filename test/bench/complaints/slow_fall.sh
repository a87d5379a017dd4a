#!/usr/bin/env bash
# slow_fall.sh BUILD [MINUTES]: the first complaint as it was made: steps become some three times as slow within MINUTES (20), so evenly
# that no moment stands out. The second worker's link falls from 1 Gbit/s to 250 Mbit/s, and heals two minutes later. What does the ring say,
# and when?
. "$(dirname "$(readlink -f "$0")")/runs.sh"
fall_s=$((60 * ${2:-20})) quiet_s=150

link() { "$hosts" exec 1 tc qdisc change dev eth0 root tbf rate "$1" burst 24kb latency 20ms; }
disturb() { # beside the ring
  local begin
  sleep $quiet_s
  stamp ring fall
  begin=$SECONDS
  while ((SECONDS - begin < fall_s)); do
    link "$(bc -l <<<"1000 * e(l(0.25) * ($SECONDS - $begin) / $fall_s)" | cut -d. -f1)mbit"
    sleep 2
  done
  sleep 120
  stamp ring healed
  link 1gbit
  sleep 345 # until it is told to be over
  # shellcheck disable=SC2046
  kill -TERM $(for h in 0 1; do "$hosts" pids $h; done)
}
if [[ ! -e $results/ring.load ]]; then
  on_hosts 2 1gbit
  LIMIT_S=$((fall_s + 900)) ring ring --model cifar10_cnn --data shapes --lr 0.01 --batch 32 --log-every 20 --steps 10000000 &
  run=$!
  disturb 2>"$results/ring.disturb"
  wait $run
fi
show
