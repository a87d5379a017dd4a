#!/usr/bin/env bash
# third_job.sh BUILD [MINUTES]: two ranks on two cores for 20 minutes, while a third job comes and goes, as on a usual virtual machine: it
# wants both cores for one to three minutes, and then nothing for as long. Prints the log that a user reads.
build=$(realpath "$1") minutes=${2:-20}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
folder=$(mktemp -d)
third() {
  RANDOM=51
  while :; do
    sleep $((60 + RANDOM % 120))
    timeout $((60 + RANDOM % 120)) python3 -c 'import os
os.fork()
while True: pass'
  done
}
third &
third=$!
trap 'kill $third; pkill -P $third; rm -rf "$folder"' EXIT
XDG_CACHE_HOME=$folder mpirun -np 2 --oversubscribe "$build/train" --model cifar10_cnn --data synthetic --batch 32 --lr 0.001 --threads 1 --log-every 500 \
  --eval-every 0 --steps 100000000 --progress off --max-time "${minutes}m" 2>&1
