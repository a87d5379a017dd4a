#!/usr/bin/env bash
# throughput.sh BUILD [STEPS]: the first complaint: cifar10_cnn on two workers and a server at 1 Gbit/s, against a ring of two.
# Images a second over all steps (synchronously: a third as many), and whether they fall.
. "$(dirname "$(readlink -f "$0")")/runs.sh"
options=(--model cifar10_cnn --data shapes --batch 16 --log-every 10)
steps=${2:-3000}

on_hosts 2 1gbit
ring ring "${options[@]}" --steps "$steps"
on_hosts 3 1gbit
parameter_server asynchronous "updates=async" "${options[@]}" --steps "$steps"
parameter_server synchronous "updates=sync" "${options[@]}" --steps $((steps / 3))
show
