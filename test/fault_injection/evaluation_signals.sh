#!/usr/bin/env bash
# evaluation_signals.sh MPIRUN TRAIN: a signal to one rank amid a long evaluation is every rank's within two seconds or two batches. SIGTERM
# ends the job: no result is told of an evaluation that was cut short, and the resumed run has the results and bits of one that was
# not disturbed. SIGUSR1 saves, and the evaluation goes on.
set -u
mpirun=$1 train=$2 bad=0
here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d)
export TMPDIR=$work
trap 'end_jobs; rm -rf "$work"' EXIT

end_jobs() {
  local pid
  for pid in $(jobs -pr); do kill $(pgrep -P "$pid") "$pid" 2>/dev/null; done
  wait
}
wrong() { # NAME WHAT
  echo "$1: $2"
  tail -n 30 "$work/$1/log"
  bad=1
}
# Four steps an epoch on any number of ranks, and an evaluation of some ten seconds and more than a thousand batches behind each.
mkdir "$work/cifar10"
head -c $((64 * 3073)) /dev/zero >"$work/cifar10/data_batch_1.bin"
head -c $((${IMAGES:-24000} * 3073)) /dev/urandom >"$work/cifar10/random"
python3 - "$work/cifar10" <<'PYTHON'
import sys
folder = sys.argv[1]
data = bytearray(open(f"{folder}/random", "rb").read())
data[::3073] = bytes(label % 10 for label in data[::3073])
open(f"{folder}/test_batch.bin", "wb").write(data)
PYTHON
rm "$work/cifar10/random"

start() { # NAME RANKS [OPTION]...
  local name=$1 ranks=$2
  shift 2
  mkdir -p "$work/$name"
  {
    FOLDER=$work/$name "$mpirun" -np "$ranks" --oversubscribe "$here/rank.sh" "$train" --model resnet20 --data "cifar10:$work/cifar10" \
      --global-batch 16 --steps 8 --eval-every 1 --threads 1 --log-every 1 --checkpoint-dir "$work/$name/saves" --checkpoint-every 1000 \
      --metrics "$work/$name/metrics" "$@" >>"$work/$name/log" 2>&1
    code=$?
    date +%s.%N >"$work/$name/end"
    exit $code
  } &
  echo $! >"$work/$name/mpirun"
}
finishes() { # NAME: its exit code is `code`
  wait "$(cat "$work/$1/mpirun")"
  code=$?
}
evaluates() { # NAME: the first epoch's
  for _ in {1..900}; do
    grep -q '"kind":"step","step":4' "$work/$1/metrics" 2>/dev/null && { sleep 1.5; return; }
    sleep 0.1
  done
  wrong "$1" "does not get to its evaluation"
  exit 1
}
strike() { # NAME SIGNAL RANK
  grep -q '"kind":"eval"' "$work/$1/metrics" && wrong "$1" "was too fast for this test"
  date +%s.%N >"$work/$1/fault"
  kill "-$2" "$(cat "$work/$1/$3")"
}
evaluations() { grep '"kind":"eval"' "$work/$1/metrics"; }
bits() { "$train" --inspect "$work/$1/saves/step-0000000008.h5" | tail -n 1; }
cut_short() { # NAME RANKS RANK: SIGTERM to that rank
  local seconds
  start "$1" "$2"
  evaluates "$1"
  strike "$1" TERM "$3"
  finishes "$1"
  seconds=$(bc <<<"$(cat "$work/$1/end") - $(cat "$work/$1/fault")")
  echo "$1: ended $seconds s after the signal with $code"
  ((code == 143)) || wrong "$1" "ended with $code, not 143"
  (($(bc <<<"$seconds < 5"))) || wrong "$1" "took $seconds s"  # two, the last save, and MPI's end
  [[ $(evaluations "$1") ]] && wrong "$1" "tells a result of an evaluation that was cut short"
  grep -q '"what":"evaluation_cut_short".*of step 4 ended after [0-9]* of' "$work/$1/metrics" || wrong "$1" "does not say that it was cut short"
  grep -q '"kind":"end".*"top1":null' "$work/$1/metrics" || wrong "$1" "its end has a top-1"
}

start undisturbed 2
finishes undisturbed
((code == 0)) || wrong undisturbed "ended with $code"
(($(evaluations undisturbed | wc -l) == 2)) || wrong undisturbed "has not two evaluations"

cut_short rank_1_of_2 2 1
# Again, amid the evaluation that the resumed run begins with.
start rank_1_of_2 2
for _ in {1..600}; do (($(grep -c '"kind":"start"' "$work/rank_1_of_2/metrics") == 2)) && break; sleep 0.1; done
sleep 2
strike rank_1_of_2 TERM 0
finishes rank_1_of_2
((code == 143)) || wrong rank_1_of_2 "its resumed run ended with $code, not 143"
(($(grep -c '"what":"evaluation_cut_short"' "$work/rank_1_of_2/metrics") == 2)) || wrong rank_1_of_2 "does not say twice that it was cut short"
start rank_1_of_2 2
finishes rank_1_of_2
((code == 0)) || wrong rank_1_of_2 "its resumed run ended with $code"
[ "$(evaluations rank_1_of_2)" = "$(evaluations undisturbed)" ] || wrong rank_1_of_2 "other evaluations: $(evaluations rank_1_of_2; evaluations undisturbed)"
[ "$(bits rank_1_of_2)" = "$(bits undisturbed)" ] || wrong rank_1_of_2 "other bits"
cut_short rank_2_of_4 4 2

start saved 2
evaluates saved
strike saved USR1 1
for _ in {1..50}; do
  grep -q 'SIGUSR1: ' "$work/saved/log" && break
  sleep 0.1
done
grep -q 'SIGUSR1: .*step 4' "$work/saved/log" || wrong saved "saves nothing within 5 s of SIGUSR1"
[[ $(evaluations saved) ]] && wrong saved "had evaluated everything before it saved"
echo "saved: $(bc <<<"scale=1; ($(date +%s.%N) - $(cat "$work/saved/fault")) / 1") s after SIGUSR1"
kill -TERM "$(cat "$work/saved/0")"
finishes saved
exit $bad
