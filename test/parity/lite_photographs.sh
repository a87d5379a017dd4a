#!/usr/bin/env bash
# lite_photographs.sh BUILD: lite_photographs.py for all three, with what it needs of PyPI in BUILD/onnx-venv. The photographs lie in
# $RINGTRAIN_TEST_DATA, or in ../shared/data beside the checkout; without them it says so, and ends with 0.
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "$0")/../.."
photographs=${RINGTRAIN_TEST_DATA:-../shared/data}/imagenet-sample/train
[ -d "$photographs" ] || { echo "lite_photographs.sh: left out: there is no $photographs"; exit 0; }
cmake --build "$build" --target train parity_dump
/usr/bin/python3 -m venv --system-site-packages "$build/onnx-venv"  # the system's Python has PyTorch
"$build/onnx-venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: onnx onnxruntime pillow "numpy<2"  # that PyTorch's
for n in 0 1 2; do
  scripts/get_weights.sh tf_efficientnet_lite$n "$build/weights"
  "$build/onnx-venv/bin/python" test/parity/lite_photographs.py "$build" "$build/weights/tf_efficientnet_lite$n.pth" "$photographs" --network $n
done
