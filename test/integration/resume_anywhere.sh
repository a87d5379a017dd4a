#!/usr/bin/env bash
# resume_anywhere.sh MPIRUN TRAIN TRIALS [SEED]: stops trainings of several kinds after random steps, once or twice each, by
# SIGTERM to a random rank or --max-time, and compares what the resumed training comes to with an undisturbed one.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") trials=$3 RANDOM=${4:-1}
enter_folder

# All that draws or keeps numbers: dropout, BatchNorm, crops, flips, colours.
cat >all.model <<'MODEL'
model all classes=10
recipe lr=0.05 epochs=1 warmup-epochs=1/8 lr-schedule=cosine
images crop=random brightness=40 contrast=0.5:1.5 saturation=0.5:1.5 hue=0.1
input size=24
conv1 = convolution channels=8 kernel=3 stride=2
bn1 = batch_norm
relu
conv2 = convolution channels=12 kernel=3
bn2 = batch_norm
relu
dropout keep=0.7
global_pool
dropout
fc = matrix_product outputs=$classes
loss
MODEL
# What mixes images and looks ahead; a schedule with kinks.
sed -e 's/^images.*/images flip=alternating pad=2 pad-mode=reflect mixup=0.4 cutmix=1 aug-repeats=2 cutout=6/' \
  -e 's/lr-schedule=cosine/lr-schedule=multistep:30%,60%:0.1 clip-grad=1 ema-every=3 ema-warmup=power:2 lookahead=yes/' all.model >mixed.model
shared="--data shapes --threads 1 --eval-every 0 --log-every 1"
kinds=( # ranks, options; half a second or so each
  "1 --model-file all.model --steps 200 --batch 16 --ema 0.9"
  "2 --model-file all.model --epochs 1 --global-batch 51 --optimizer adamw --ema 0.99 --label-smoothing 0.1"
  "3 --model-file all.model --steps 80 --global-batch 34 --accumulate 2 --optimizer rmsprop --sync-batchnorm"
  "3 --model-file mixed.model --steps 80 --global-batch 33 --accumulate 3 --ema 0.9"
  "2 --model cifar10_cnn --steps 40 --batch 4 --ema 0.9999"
  "2 --model resnet20 --steps 60 --global-batch 9 --optimizer lars --lr 1"
  "3 --model mlp --epochs 2 --global-batch 128 --eval-every 1 --optimizer adam"
  "2 --model mlp --steps 200 --batch 8 --lr 1e6 --optimizer sgd --warmup-epochs 0 --lr-schedule constant --on-nan skip")

# start FOLDER OPTION...: the kind's job, whose log is FOLDER.log
start() {
  log=$1.log
  # shellcheck disable=SC2086
  resume_begin "$ranks" "$train" $shared $options --checkpoint-dir "$@"
}
seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }

stop_by_signal() { # near step
  : >run.log
  start run
  wait_for 10 has_or_over "step $1, loss"
  mapfile -t processes < <(ranks)
  ((${#processes[@]})) && kill -TERM "${processes[RANDOM % ${#processes[@]}]}"
  wait $mpi
}
stop_by_time() {
  start run --max-time "$(seconds "$1")s"
  wait $mpi
}

stop() { # at random, in one of the two ways
  if ((RANDOM % 2)); then
    stop_by_signal $((1 + RANDOM * ${steps_of[$kind]} / 32768))
  else
    stop_by_time $((1 + RANDOM * (${ms_of[$kind]} + 1000) / 32768)) # of which a second may be kept for the end
  fi
}

declare -A expected steps_of ms_of
stopped=0 equal=0 resumes=""
for ((trial = 0; trial < trials; trial++)); do
  kind=${kinds[trial % ${#kinds[@]}]} ranks=${kind%% *} options=${kind#* }
  if [ -z "${expected[$kind]:-}" ]; then
    start calm && wait $mpi || give_up "the undisturbed run failed: $kind"
    read -r steps tenths <<<"$(sed -n 's/^trained \([0-9]*\) steps, .* in \([0-9]*\)\.\([0-9]\) s .*/\1 \2\3/p' calm.log)"
    steps_of[$kind]=$steps ms_of[$kind]=$((100 + 100 * 10#$tenths)) expected[$kind]=$(bits calm)
    rm -rf calm calm.log
  fi
  for ((early = 0; early < 10; early++)); do
    for ((stops = 1 + RANDOM % 2; stops > 0; stops--)); do stop; done 2>/dev/null
    [ "$(newest run)" = "$(file_of run ${steps_of[$kind]})" ] || break
    ms_of[$kind]=$((ms_of[$kind] * 3 / 4)) # it was over before
    rm -rf run run.log
  done
  start run && wait $mpi
  code=$?
  steps=$(sed -n 's/^resumed from .* at step //p' run.log | tr '\n' ' ')
  [ -n "$steps" ] && stopped=$((stopped + 1))
  resumes+=" $steps/"
  if [ $code -eq 0 ] && [ "$(bits run)" = "${expected[$kind]}" ]; then
    equal=$((equal + 1))
  else
    wrong "trial $trial, $kind, resumed at $steps: exit code $code, $(bits run), not ${expected[$kind]}"
  fi
  rm -rf run run.log
done
echo "$trials trials, $stopped resumed, $equal equal; resumed at steps$resumes of ${steps_of[*]}"
[ $stopped -gt 0 ] || { echo "wrong: nothing ever resumed: the test tests nothing"; bad=1; }
exit $bad
