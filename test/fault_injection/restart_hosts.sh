#!/usr/bin/env bash
# restart_hosts.sh TRAIN SUPERVISE: of four hosts one loses power; the job is started again on the other three, from its newest
# checkpoint and with the same images a step, and trains to its end.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1") supervise=$(realpath "$2")
enter_folder
need_hosts
export HOSTS_DETACHED=1 TMPDIR=$dir  # TMPDIR: where reports go
export MPIRUN_BY=$supervise \
  MPIRUN_FLAGS="--mca oob_tcp_keepalive_time 3 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3"
says() { check "it is said" has "$1"; }
new_steps() { tail -n "+$((lines + 1))" metrics | grep -q '"kind":"step"'; }

"$hosts" up 4 || give_up "no hosts are made"
"$hosts" mpirun 1 "$train" --model mlp --data shapes --steps 1000000 --batch 16 --threads 1 --log-every 20 --eval-every 0 \
  --checkpoint-dir "$dir/saves" --checkpoint-every 100 --metrics "$dir/metrics" --restarts 2 --without-lost-hosts >log 2>&1 &
job=$!
await 200 has 'checkpoint [1-9]'
"$hosts" power 3
lost=$(date +%s.%N)
await 200 has '^supervise: restart 1 of 2: '
told=$(since "$lost")
await 200 has '^saved by 4 ranks, going on with 3'
resumed=$(since "$lost")
lines=$(wc -l <metrics)
await 200 new_steps  # after the restart
echo "power loss of one of 4 hosts: told after $told s, resumed on the others after $resumed s, the first steps logged after $(since "$lost") s"
kill -TERM "$job"
wait "$job"
says '^supervise: restart 1 of 2: .*-3.*; without .*-3, with 3 of 4 ranks; going on from step-'
says '^as 4 ranks: 64 images a step, 2 times 11 or less on a rank'
says '^supervise: SIGTERM: not started again'
check "the images a step are the same" lacks '^changed since that checkpoint: images a step'
exit $bad
