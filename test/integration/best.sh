#!/usr/bin/env bash
# best.sh MPIRUN TRAIN: the best evaluation is kept, also through kills and resumes, and may end training.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
need "$python"
enter_folder

job() { # RANKS OPTION...: an evaluation every 8 steps
  launch "$1" "$train" --model mlp --data shapes --seed 3 --batch $((1250 / $1)) --threads 1 --log-every 1000 "${@:2}"
}
best_of() { # METRICS: its evaluations' best top-1, and the first step that had it
  "$python" - "$1" <<'PYTHON'
import json, sys
evaluations = [r for r in map(json.loads, open(sys.argv[1])) if r["kind"] == "eval"]
best = max(evaluations, key=lambda r: r["top1"])
assert evaluations[-1]["best"] == {"metric": "top1", "value": best["top1"], "step": best["step"]}, evaluations[-1]
print(best["top1"], best["step"])
PYTHON
}
saved_best() { "$train" --inspect "$1/best.h5" 2>why | sed -n 's/^step  *//p'; }

# a rate that is too high: accuracy goes up and down
job 1 --epochs 6 --lr 0.4 --lr-schedule constant --checkpoint-dir calm --checkpoint-every 1000 --keep 1 --keep-best top1 --metrics calm.jsonl
exits "kept" 0
read -r value step <<<"$(best_of calm.jsonl)"
check "kept: the best step ($step: $value)" is "$(saved_best calm)" "$step"
check "kept: it is not the last one" differ "$(newest calm)" "$(file_of calm "$step")"
check "kept: the closing table" has "^  best evaluation  *top-1 .* % at step $step$"
job 1 --eval-only --resume calm/best.h5 --metrics again.jsonl
exits "evaluated" 0
check "evaluated: its accuracy" grep -q "\"top1\":$value," again.jsonl

for ranks in 1 2; do
  shard=()
  ((ranks == 2)) && shard=(--shard-optimizer)
  for stop in 1 3; do
    begin $ranks "$train" --model mlp --data shapes --seed 3 --batch $((1250 / ranks)) --threads 1 --log-every 1000 --epochs 6 --lr 0.4 --lr-schedule constant \
      --checkpoint-dir killed$ranks --checkpoint-every 3 --keep 1 --keep-best top1 "${shard[@]}"
    await 60 has_or_over 'evaluation: ' $((stop == 1 ? 2 : 1))  # those of the resumed run
    kill -KILL $(ranks) 2>/dev/null
    ends
  done
  job $ranks --epochs 6 --lr 0.4 --lr-schedule constant --checkpoint-dir killed$ranks --checkpoint-every 3 --keep 1 --keep-best top1 "${shard[@]}" --metrics killed$ranks.jsonl
  exits "killed, $ranks ranks" 0
  "$train" --inspect killed$ranks/best.h5 >shown 2>&1 || wrong "killed, $ranks ranks: the best is damaged"
  said=$(sed -n 's/.*"kind":"end".*"best":{"metric":"top1","value":[0-9.]*,"step":\([0-9]*\)}.*/\1/p' killed$ranks.jsonl)
  check "killed, $ranks ranks: the best is what is told" is "$(saved_best killed$ranks)" "$said"
done
check "killed: as undisturbed" is "$(saved_best killed1)" "$step"

job 2 --epochs 50 --checkpoint-dir until --until top1=0.5 --metrics until.jsonl
exits "until" 0
check "until: said" has '^--until top1=0.5 is reached: top1 0\.[5-9].*, .* s after this run began$'
check "until: the last evaluation is the first that reaches it" "$python" -c "
import json
tops = [r['top1'] for r in map(json.loads, open('until.jsonl')) if r['kind'] == 'eval']
assert tops[-1] >= 0.5 and all(t < 0.5 for t in tops[:-1]), tops"
check "until: saved" has_checkpoint until
job 2 --epochs 50 --checkpoint-dir until --until top1=0.5
exits "until, again" 0
check "until, again: nothing to do" has "that is the end of training already"
job 1 --epochs 50 --lr 1e-9 --patience 2
exits "patience" 0
check "patience: said" has "^--patience 2: 2 evaluations since that of step .* were no better$"
job 1 --epochs 1 --keep-best top1
exits "without a folder" 64
job 1 --epochs 1 --until top1=94
exits "a percentage" 64
exit $bad
