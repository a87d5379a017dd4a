#!/usr/bin/env bash
# faults_on_simulated_gpus.sh PART MPIRUN TRAIN_ON_SIMULATED_GPU: ranks on simulated GPUs of which one is lost, fails or hangs in
# a sum end within minutes of their start, say who is to blame, and can be resumed. PART: ends, hangs, start, blocking.
. "$(dirname "$0")/../support/lib.sh"
part=$1 mpirun=$2 gpu=$(realpath "$3") limit=300
unset CUDA_VISIBLE_DEVICES  # tests hide real GPUs; these are simulated
enter_folder
export OMP_NUM_THREADS=1 XDG_CACHE_HOME=$dir/cache SIMULATED_GPUS=4 SIMULATED_GPU_OPEN=1 TMPDIR=$dir

job() { # FAULT RANKS OPTION...: sets `code` and `seconds`
  local fault=$1 ranks=$2 began=$SECONDS
  shift 2
  SIMULATED_NCCL_FAULT=$fault launch "$ranks" "$gpu" --device cuda --data synthetic --batch 1 --eval-every 0 \
    --log-every 10 --model mlp --steps 1000000 --checkpoint-dir saved --checkpoint-every 5 "$@"
  code=$? seconds=$((SECONDS - began))
}
ended_as() { # WHAT LIMIT KIND CODE...
  local what=$1 limit=$2 kind=$3
  shift 3
  check "$what: exit code $code" grep -qw "$code" <(echo "$@")
  check "$what: one line for programs" is "$(log_text | grep -c "^fault: kind=$kind ")" 1
  check "$what: it took $seconds s" test "$seconds" -le "$limit"
}

one_ends() {
  job error:1:40 2
  ended_as "an asynchronous error" 120 internal 70
  check "an asynchronous error: who, where and why" has "^train: rank 1/2 on .*: unhandled system error, as the test wants; on rank 1/2, host .*, GPU 1"
  check "an asynchronous error: there is a checkpoint" has_checkpoint saved
  job dead:1:80 2
  ended_as "a lost rank" 120 rank_lost 71 137
  check "a lost rank: it is named" has "rank 1 on .* has ended without a word"
  check "a lost rank: the job went on from a checkpoint" has "^resumed from step-"
  SIMULATED_NCCL_SILENT=1 job dead:3:80 4
  ended_as "a lost rank of four, whom no link tells of" 120 rank_lost 71 137
  check "a lost rank of four: it is named" has "rank 3 on .* has ended without a word"
}

# The limit is 26 s or ten steps, which are short here.
hangs() {
  job hang:1:40 2
  ended_as "a hanging peer" 150 stuck 72
  check "a hanging peer: nobody can know who it is" has "all ranks have waited for one another in GPU's step for [0-9]+ s and none is to blame"
  job stuck:1:40 2
  ended_as "an abort that does not return" 150 stuck 72
}

# A rank that never joins: NCCL has the deadline of a call, which is 120 s.
start() {
  job late:1:1 2
  ended_as "a rank that never joins" 240 stuck 72
  check "a rank that never joins: what waits" has "ncclCommInitRankConfig: not done after 120 s"
}

# Calls that block: the rank that is in one for too long is named, with what its main thread is in.
blocking() {
  job block:1:200 2 --nccl-blocking --no-graph
  ended_as "a call that does not return" 150 stuck 72
  check "a call that does not return: where it is" has "ncclAllReduce"
  job dead:1:80 2 --nccl-blocking
  ended_as "a lost rank" 120 rank_lost 71 137
  check "a lost rank: it is named" has "rank 1 on .* has ended without a word"
  job late:1:1 2 --nccl-blocking
  ended_as "a rank that never joins" 240 stuck 72
  check "a rank that never joins: what waits" has "ncclCommInitRankConfig: not done after 120 s"
  check "a rank that never joins: where its main thread is" has "^train: rank [01] on .* is in"
}

[ "$part" = ends ] && part=one_ends
$part
exit $bad
