#!/bin/bash
# The scenarios and the overrides of docs/tutorial.md run without an error.
set -u
fail() { echo "FAILED: $1" >&2; exit 1; }
source "$(dirname "$0")/begin.sh"
tutorial=$(realpath "$2")
cd "$work" || exit 1

# Each block of YAML begins with its file's name.
awk '/^```yaml/ { inside = 1; file = ""; next } /^```/ { inside = 0 } inside { if (file == "") file = $2; print > file }' "$tutorial"
files=$(ls ./*.yaml)
[ "$(echo "$files" | wc -l)" = 6 ] || fail "scenarios: $files"

try() { "$windtunnel" "$@" > out 2>&1 || { cat out >&2; fail "windtunnel $*"; }; }
short="--set run.warmup=1 --set run.steps=2 -q"
for scenario in my_ddp my_fsdp my_pipeline; do
  # shellcheck disable=SC2086
  try run "$scenario.yaml" $short
done
# shellcheck disable=SC2086
try run my_fsdp.yaml $short --export base
# shellcheck disable=SC2086
try run my_lora.yaml $short --import base --export tuned
cmp -s base/model.safetensors tuned/model.safetensors && fail 'the adapters were not merged'
# The table of questions: the overrides that follow --set there.
questions=$(sed -n '/^| question/,/^$/p' "$tutorial" | grep -o 'set [a-z_.]*=[a-z0-9_.]*' | sed 's/^set //' | grep -v '^data=\|^model.vocab=')
[ "$(echo "$questions" | wc -l)" -ge 7 ] || fail "questions: $questions"
for override in $questions; do
  [ "$override" = run.backend=mpi ] && ! command -v mpirun > /dev/null && continue
  # shellcheck disable=SC2086
  try run my_ddp.yaml --set "$override" $short
done
try explain my_cluster.yaml
grep -q 'largest micro-batch' out || fail 'explain answers what fits'
try predict my_cluster.yaml --html step.html
try search my_search.yaml
grep -q 'the fastest' out || fail 'search'
