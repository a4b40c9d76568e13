#!/bin/bash
# Opens HTML reports in a headless browser: every plot is drawn, and the console stays empty.
set -u
windtunnel=$PWD/$1
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/html.XXXXXX")
export XDG_CACHE_HOME=$work/cache HOME=$work
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

scenario() {  # NAME MORE...
  local name=$1; shift
  { echo "name: $name"; printf '%s\n' "$@"; } > "$work/$name.yaml"
}
scenario mlp 'model: {kind: mlp, widths: [10, 100, 10]}' 'batch: {micro: 20}'
scenario pipeline 'model: {layers: 8, hidden: 512, heads: 8, ffn: 2048, vocab: 1000, seq_len: 256}' 'batch: {micro: 1, accumulate: 8}' 'precision: {param: bf16}' \
  'parallel: {pipeline: {size: 4, schedule: 1f1b}, data: {kind: ddp, size: 2}}' \
  'cluster: {device: a100-sxm-80g, nodes: 1, devices_per_node: 8, network: {intra_node: nvlink3}}'

# expect_drawn FILE PLOTS: FILE has PLOTS plots, all drawn, and nothing on the console.
expect_drawn() {
  local dom="$work/dom.html" log="$work/log"
  timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
    --user-data-dir="$work/browser" --virtual-time-budget=60000 --enable-logging=stderr --dump-dom "file://$1" > "$dom" 2> "$log" ||
    { tail -5 "$log"; fail "$1: the browser failed"; return; }
  grep -q ":CONSOLE" "$log" && { grep ":CONSOLE" "$log"; fail "$1: something on the console"; }
  grep -q "data-plots=\"$2/$2\"" "$dom" || fail "$1: expected $2 plots, got $(grep -o 'data-plots="[^"]*"' "$dom")"
  # A plot that is drawn has marks.
  [ "$(grep -o 'class="plot vega-embed' "$dom" | wc -l)" -ge "$2" ] || fail "$1: plots are missing"
}

"$windtunnel" predict "$work/pipeline.yaml" --html "$work/pipeline.html" -q || fail "predict --html"
expect_drawn "$work/pipeline.html" 8
"$windtunnel" compare "$work/mlp.yaml" --set cluster.device=cpu --html "$work/mlp.html" -q > "$work/out" 2>&1
case $? in 0 | 3) true ;; *) false ;; esac && [ -s "$work/mlp.html" ] || { cat "$work/out"; fail "compare --html"; }
expect_drawn "$work/mlp.html" 9
# Measured costs know no other numbers of devices: no section that consists of errors.
grep -q '"scaling":{"points":\[\],"note":""}' "$work/mlp.html" || fail "scaling from measured costs"
grep -q '"scaling":{"points":\[{' "$work/pipeline.html" || fail "no scaling from a datasheet"
"$windtunnel" run "$work/mlp.yaml" --html "$work/run.html" -q || fail "run --html"
expect_drawn "$work/run.html" 6
scenario search 'model: {layers: 4, hidden: 64, heads: 4, vocab: 128, seq_len: 32}' 'batch: {accumulate: 4}' 'precision: {param: bf16}' \
  'parallel: {data: {size: 4, kind: ddp}}' 'cluster: {device: a100-sxm-80g, devices_per_node: 4, network: {intra_node: nvlink3}}' \
  'search: {tensor: [1, 2], pipeline: [1, 2, 4], recompute: [none, full], kind: [ddp, zero1]}'
"$windtunnel" search "$work/search.yaml" --html "$work/search.html" -q > "$work/out" 2>&1 || { cat "$work/out"; fail "search --html"; }
expect_drawn "$work/search.html" 7
"$windtunnel" search "$work/search.yaml" --html "$work/quick.html" -q --quick > "$work/out" 2>&1 || { cat "$work/out"; fail "search --quick --html"; }
expect_drawn "$work/quick.html" 1

[ $failures = 0 ] && echo PASSED
exit $failures
