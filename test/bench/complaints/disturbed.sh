#!/usr/bin/env bash
# disturbed.sh BUILD: the first complaint, disturbed: after a minute and a half the link of the second worker carries 50 Mbit/s, and
# once that is over three other processes want its core. What does the ring say, what the server?
. "$(dirname "$(readlink -f "$0")")/runs.sh"
options=(--model cifar10_cnn --data shapes --batch 32 --log-every 5 --steps 1000000)
harm=()
clean_up() { ((${#harm[@]})) && kill "${harm[@]}"; }

link() { "$hosts" exec 1 tc qdisc change dev eth0 root tbf rate "$1" burst 24kb latency 20ms; }
disturb() { # beside run $name
  sleep 90
  stamp "$name" link
  link 50mbit
  sleep 30
  stamp "$name" healed
  link 1gbit
  sleep 345 # until that is told to be over
  stamp "$name" core
  for _ in 1 2 3; do
    taskset -c 1 sh -c 'while :; do :; done' &
    harm+=($!)
  done
  sleep 30
  stamp "$name" healed
  kill "${harm[@]}"
  harm=()
  sleep 15
  # shellcheck disable=SC2046
  kill -TERM $(for h in 0 1 2; do "$hosts" pids $h; done 2>/dev/null)
}
for name in ring asynchronous; do
  [[ -e $results/$name.load ]] && continue
  if [[ $name == ring ]]; then
    on_hosts 2 1gbit
    ring ring "${options[@]}" &
  else
    on_hosts 3 1gbit
    parameter_server asynchronous "updates=async" "${options[@]}" &
  fi
  run=$!
  disturb 2>/dev/null
  wait $run
done
show
