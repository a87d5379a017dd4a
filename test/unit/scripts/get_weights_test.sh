#!/usr/bin/env bash
# get_weights_test.sh GET_WEIGHTS: what the script says and keeps, with a curl that brings what is given to it.
set -u
get=$(realpath "$1") bad=0
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bin"
cat >"$dir/bin/curl" <<'CURL'
#!/bin/sh
[ -e "$BRINGS" ] || { echo "curl: (6) Could not resolve host" >&2; exit 6; }
while [ "$1" != --output ]; do shift; done
cp "$BRINGS" "$2"
CURL
# a hash that begins as the published one does
printf '#!/bin/sh\n[ "$(cat "$1")" = right ] && echo "f37072fd00  $1" || echo "abcdef0100  $1"\n' >"$dir/bin/sha256sum"
chmod 755 "$dir"/bin/*
expect() { # CODE TEXT ARGUMENTS...
  local said got
  said=$(PATH=$dir/bin:$PATH BRINGS=$dir/brought "$get" "${@:3}" 2>&1)
  got=$?
  [ $got -eq "$1" ] && grep -qE -- "$2" <<<"$said" || { echo "wrong: ${*:3}: code $got, not $1 with '$2':"; echo "$said"; bad=1; }
}
file=$dir/w/resnet18-f37072fd.pth
expect 64 "no weights called 'resnet19'" resnet19 "$dir/w"
expect 64 "get_weights.sh NAME"
expect 0 "^resnet50.v2$" --list
expect 69 "publisher: https://download.pytorch.org/models/resnet18-f37072fd.pth" resnet18 "$dir/w"
expect 69 "hash: SHA-256 f37072fd\.\.\." resnet18 "$dir/w"
echo wrong >"$dir/brought"
expect 65 "its SHA-256 is abcdef01.*not taken" resnet18 "$dir/w"
[ -e "$file" ] && { echo "wrong: what is not what was published is kept"; bad=1; }
echo right >"$dir/brought"
expect 0 "resnet18-f37072fd.pth: as published" resnet18 "$dir/w"
rm "$dir/brought"
expect 0 "--model resnet18 --init-from" resnet18 "$dir/w"
echo wrong >"$file"
expect 65 "not what was published" resnet18 "$dir/w"
printf '#!/bin/sh\necho "11ad3fa600  $1"\n' >"$dir/bin/sha256sum"
echo any >"$dir/brought"
expect 0 '--model resnet50 --recipe "resize=232" --init-from' resnet50.v2 "$dir/w"
expect 0 "nothing here vouches for" tf_efficientnet_lite0.hub "$dir/w"
[ -z "$(find "$dir/w" -name '.weights.*')" ] || { echo "wrong: something is left over"; bad=1; }
exit $bad
