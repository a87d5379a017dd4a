#!/usr/bin/env bash
# evaluation_signals.sh MPIRUN TRAIN: a signal to one rank amid a long evaluation is every rank's within two seconds or two batches. SIGTERM
# ends the job: no result is told of an evaluation that was cut short, and the resumed run has the results and bits of one that was
# not disturbed. SIGUSR1 saves, and the evaluation goes on.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
enter_folder
export TMPDIR=$dir  # where reports go

# Four steps an epoch on any number of ranks, and an evaluation of some ten seconds and more than a thousand batches behind each.
mkdir cifar10
head -c $((64 * 3073)) /dev/zero >cifar10/data_batch_1.bin
head -c $((${IMAGES:-24000} * 3073)) /dev/urandom >random
python3 - <<'PYTHON'
data = bytearray(open("random", "rb").read())
data[::3073] = bytes(label % 10 for label in data[::3073])
open("cifar10/test_batch.bin", "wb").write(data)
PYTHON
rm random

start() { # NAME RANKS [OPTION]...
  begin_named "$1" "$2" "$train" --model resnet20 --data cifar10:cifar10 --global-batch 16 --steps 8 --eval-every 1 --threads 1 --log-every 1 \
    --checkpoint-dir "$1/saves" --checkpoint-every 1000 "${@:3}"
}
evaluates() { # NAME: the first epoch's
  log=$1/log await 90 grep -qs '"kind":"step","step":4' "$1/metrics"
  sleep 1.5
}
strike() { # NAME SIGNAL RANK
  grep -q '"kind":"eval"' "$1/metrics" && wrong_in "$1" "was too fast for this test"
  date +%s.%N >"$1/fault"
  kill "-$2" "$(cat "$1/$3")"
}
evaluations() { sed -n '/"kind":"eval"/s/,"time":.*//p' "$1/metrics"; }
cut_short() { # NAME RANKS RANK: SIGTERM to that rank
  local seconds
  start "$1" "$2"
  evaluates "$1"
  strike "$1" TERM "$3"
  finishes "$1"
  seconds=$(bc <<<"$(cat "$1/end") - $(cat "$1/fault")")
  echo "$1: ended $seconds s after the signal with $code"
  ((code == 143)) || wrong_in "$1" "ended with $code, not 143"
  (($(bc <<<"$seconds < 5"))) || wrong_in "$1" "took $seconds s"  # two, the last save, and MPI's end
  [[ $(evaluations "$1") ]] && wrong_in "$1" "tells a result of an evaluation that was cut short"
  grep -q '"what":"evaluation_cut_short".*of step 4 ended after [0-9]* of' "$1/metrics" || wrong_in "$1" "does not say that it was cut short"
  grep -q '"kind":"end".*"top1":null' "$1/metrics" || wrong_in "$1" "its end has a top-1"
}

start undisturbed 2
finishes undisturbed
((code == 0)) || wrong_in undisturbed "ended with $code"
(($(evaluations undisturbed | wc -l) == 2)) || wrong_in undisturbed "has not two evaluations"

cut_short rank_1_of_2 2 1
# Again, amid the evaluation that the resumed run begins with.
start rank_1_of_2 2
started() { (($(grep -c '"kind":"start"' "$1/metrics") == $2)); }
await 60 started rank_1_of_2 2
sleep 2
strike rank_1_of_2 TERM 0
finishes rank_1_of_2
((code == 143)) || wrong_in rank_1_of_2 "its resumed run ended with $code, not 143"
(($(grep -c '"what":"evaluation_cut_short"' rank_1_of_2/metrics) == 2)) || wrong_in rank_1_of_2 "does not say twice that it was cut short"
start rank_1_of_2 2
finishes rank_1_of_2
((code == 0)) || wrong_in rank_1_of_2 "its resumed run ended with $code"
[ "$(evaluations rank_1_of_2)" = "$(evaluations undisturbed)" ] || wrong_in rank_1_of_2 "other evaluations: $(evaluations rank_1_of_2; evaluations undisturbed)"
[ "$(bits rank_1_of_2/saves 8)" = "$(bits undisturbed/saves 8)" ] || wrong_in rank_1_of_2 "other bits"
cut_short rank_2_of_4 4 2

start saved 2
evaluates saved
strike saved USR1 1
log=saved/log wait_for 5 has 'SIGUSR1: '
grep -q 'SIGUSR1: .*step 4' saved/log || wrong_in saved "saves nothing within 5 s of SIGUSR1"
[[ $(evaluations saved) ]] && wrong_in saved "had evaluated everything before it saved"
echo "saved: $(bc <<<"scale=1; ($(date +%s.%N) - $(cat saved/fault)) / 1") s after SIGUSR1"
kill -TERM "$(cat saved/0)"
finishes saved
exit $bad
