#!/usr/bin/env bash
# wire_between_hosts.sh TRAIN PRECISION: gradients that travel between hosts in 16 bits: they are rounded, the run repeats and
# goes on to the bit, and learns as in fp32. PRECISION is that of the activations.
set -u
train=$(realpath "$1") precision=$2
if [ "$precision" = bf16 ] && ! grep -qE '\<(avx512_bf16|amx_bf16)\>' /proc/cpuinfo; then
  echo "skipped: this CPU has neither AVX512_BF16 nor AMX"
  exit 77
fi
. "$(dirname "$0")/checks.sh"
. "$(dirname "$(readlink -f "$0")")/../support/hosts/borrow.sh"
"$hosts" up 2 || exit 1
cd "$HOSTS_RUN" || exit 1

run() { # NAME STEPS OPTION...
  local name=$1 steps=$2
  shift 2
  timeout 100 "$hosts" mpirun 1 "$train" --model resnet20 --precision "$precision" --data shapes --global-batch 15 --threads 1 --bucket-mb 0.2 --eval-every 0 \
    --log-every 1 --steps "$steps" --checkpoint-dir "$HOSTS_RUN/$name" "$@" >log 2>&1 || { echo "$name failed:"; cat log; exit 1; }
}
state() { "$train" --inspect "$HOSTS_RUN/$1/step-0000000012.h5" | tail -n 1; }
last_loss() { sed -n 's/.*step 12, loss = \([0-9.]*\) .*/\1/p' log; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && d < 0.1 && -d < 0.1) }'; }

run fp32 12
exact=$(last_loss)
for dtype in bf16 fp16; do
  run $dtype 12 --gradient-dtype $dtype
  check "$dtype: the loss is fp32's" near "$exact" "$(last_loss)"
  check "$dtype: gradients are rounded" test "$(state $dtype)" != "$(state fp32)"
done
run parts 7 --gradient-dtype bf16
run parts 12 --gradient-dtype bf16
check "in two parts: the same bits" is "$(state parts)" "$(state bf16)"
timeout 60 "$train" --model mlp --data shapes --steps 1 --eval-every 0 --gradient-dtype bf16 >log 2>&1
check "on one host: what it is for is told" has "gradient-dtype bf16 changes nothing"
exit $bad
