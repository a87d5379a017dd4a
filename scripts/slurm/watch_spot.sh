#!/usr/bin/env bash
# Waits until AWS takes this spot instance back, two minutes beforehand, and has the job's script save, end and be requeued.
# train.sbatch starts one on each node where RINGTRAIN_SPOT=yes. RINGTRAIN_METADATA: where the instance's metadata is.
set -u
metadata=${RINGTRAIN_METADATA:-http://169.254.169.254}
pause_s=5  # what AWS recommends
token=
say() { echo "watch_spot: $(hostname): $*" >&2; }

new_token() { # version 2 of the service wants one, for six hours at most
  token=$(curl -sf --max-time 2 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 21600' "$metadata/latest/api/token")
}
ask() { # PATH: status, and below it what was answered
  curl -s --max-time 2 -o - -w '\n%{http_code}' -H "X-aws-ec2-metadata-token: $token" "$metadata/latest/meta-data/$1"
}

for _ in 1 2 3; do
  new_token && break
  sleep "$pause_s"
done
[ -n "$token" ] || { say "no instance metadata at $metadata: nothing is watched"; exit 0; }
until answer=$(ask instance-life-cycle) && [[ ${answer##*$'\n'} == [24]?? ]]; do  # not 503
  [ "${answer##*$'\n'}" != 401 ] || new_token
  sleep "$pause_s"
done
[ "${answer%%$'\n'*}" = spot ] || { say "no spot instance: nothing is watched"; exit 0; }
# 404 while it stays; whatever is no notice is asked for again.
until answer=$(ask spot/instance-action) && [ "${answer##*$'\n'}" = 200 ]; do
  [ "${answer##*$'\n'}" != 401 ] || new_token
  sleep "$pause_s"
done
say "AWS takes this instance back: ${answer%$'\n'*}; job $SLURM_JOB_ID saves and is requeued"
until scancel --batch --signal=USR2 "$SLURM_JOB_ID"; do sleep 1; done
