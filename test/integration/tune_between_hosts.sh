#!/usr/bin/env bash
# tune_between_hosts.sh TRAIN: how sums travel between hosts, chosen from the links or given, changes no bit and is told.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1")
enter_folder
make_hosts 3

run() { # NAME OPTION...
  local name=$1
  shift
  limit=200 launch_on_hosts 1 "$train" --model mlp --data shapes --batch 2 --threads 1 --bucket-mb 0.1 --eval-every 0 --steps 150 \
    --check-every 40 --checkpoint-dir "$dir/$name" --metrics "$name.jsonl" "$@" || give_up "$name failed"
}
ring() { sed -n '/"kind":"links"/s/.*"ring":{//p' "$1.jsonl"; }  # from the first value of "ring" on

run auto
check "auto: what was measured and chosen is told" has "^links: [0-9]+ MB/s from host to host, .*: blocks of [0-9 to]+ KiB, [0-9]+ sums? at once$"
check "auto: then comes the verdict" has "^links: .* exposed: .* ms a step expected"
check "auto: the record has it" is "$(ring auto | grep -cE '"block_bytes":[0-9]+.*"sums_at_once":[0-9]+,"sums_start":"early","trial_bytes"')" 1

run off --tuning off
check "off: nothing is measured" has "^links: nothing is measured, as --tuning off says: blocks of 8 to 31 KiB, 1 sum at once$"
check "off: the same bits" is "$(bits off 150)" "$(bits auto 150)"

run late --tuning blocks=8,sums=4,start=late
check "late: the record has it" is "$(ring late | grep -cE '"block_bytes":8192.*"sums_at_once":4,"sums_start":"late"')" 1
check "late: the same bits" is "$(bits late 150)" "$(bits auto 150)"
run large --tuning blocks=62,sums=2
check "large: the record has it" is "$(ring large | grep -cE '"block_bytes":63488.*"sums_at_once":2,"sums_start":"early"')" 1
check "large: the same bits" is "$(bits large 150)" "$(bits auto 150)"

run shards --shard-optimizer --tuning off
run shards-auto --shard-optimizer
check "shards: one sum at once" has "^links: .*: blocks of [0-9 to]+ KiB, 1 sum at once$"
check "shards: the same bits" is "$(bits shards-auto 150)" "$(bits shards 150)"
run bf16 --gradient-dtype bf16 --tuning start=late,blocks=4
run bf16-auto --gradient-dtype bf16
check "bf16: the same bits" is "$(bits bf16-auto 150)" "$(bits bf16 150)"

# Which format is fastest here is not the point.
run all --tuning all
check "all: formats were tried" has "^links: gradients travel as (--gradient-dtype|--compress) .*, as --tuning all tried; ms a step: --gradient-dtype fp32 [0-9.]+, --gradient-dtype bf16 [0-9.]+, --compress powersgd:4 [0-9.]+$"
format=$(sed -nE 's/^links: gradients travel as (.*), as --tuning all tried.*/\1/p' log)
# shellcheck disable=SC2086
run all-by-hand $format
check "all: the bits of that format" is "$(bits all 150)" "$(bits all-by-hand 150)"

limit=200 launch_on_hosts 1 "$train" --model mlp --data shapes --batch 2 --threads 1 --bucket-mb 0.1 --eval-every 0 --steps 150 \
  --check-every 40 --checkpoint-dir "$dir/bf16" --resume "$dir/bf16/step-0000000150.h5" --tuning all
check "all: a resume takes the checkpoint's" has "^links: gradients travel as --gradient-dtype bf16, as in the checkpoint$"
exit $bad
