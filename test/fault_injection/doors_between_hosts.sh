#!/usr/bin/env bash
# doors_between_hosts.sh TRAIN: with ranks on two hosts, rank 0 listens on the addresses that the job uses and on the loopback, not on
# those of its host's other networks; ranks of both hosts come in, with and without shards.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1")
enter_folder
make_hosts 2
# Another network, which the job does not use: mpirun is told of 10.77.0.0/24.
"$hosts" exec 0 sh -c 'ip link add other type bridge && ip addr add 10.99.0.1/24 dev other && ip link set other up' || exit 1

run() { # OPTION...
  limit=120 launch_on_hosts 2 "$train" --model mlp --data shapes --batch 8 --threads 1 --eval-every 0 "$@"
}
run --doctor
exits "--doctor" 0
check "--doctor says where rank 0 listens" has "rank 0 listens on 127.0.0.1[[:space:]]+10.77.0.1$"

run --steps 1000000 --log-every 10 --shard-optimizer --checkpoint-dir "$dir/saves" --checkpoint-every 500 &
await 90 has_checkpoint saves  # slices came to it
# What its processes listen on, and what they are connected to, beside MPI's own.
"$hosts" exec 0 ss -Htlnp >listening
"$hosts" exec 0 ss -Htnp >connected
for address in 127.0.0.1 10.77.0.1; do
  check "rank 0 listens on $address, twice" test "$(grep '"train"' listening | awk '{ print $4 }' | grep -c "^$address:")" -eq 2
done
check "rank 0 does not listen on its other network" test -z "$(grep '"train"' listening | grep '10\.99\.0\.1')"
port=$(grep '"train"' listening | awk '{ print $4 }' | sed -n 's/^10\.77\.0\.1://p' | head -n 1)
check "the port is closed from its other network" test -z "$("$hosts" exec 0 bash -c "</dev/tcp/10.99.0.1/$port && echo open" 2>/dev/null)"
come=0
for port in $(grep '"train"' listening | awk '{ print $4 }' | sed -n 's/^10\.77\.0\.1://p'); do
  come=$((come + $(awk -v here="10.77.0.1:$port" '$4 == here && $5 ~ /^10\.77\.0\.2:/' connected | wc -l)))
done
check "both ranks of the other host are connected: $come" test "$come" -ge 2
"$hosts" pids 0 | xargs -r ps -o pid=,comm= -p | awk '$2 == "train" { print $1 }' | head -n 1 | xargs kill -TERM
wait $!
exits "ended by a signal" 143
check "all ranks are watched" lacks "not watched|does not reach|not of this job"
exit $bad
