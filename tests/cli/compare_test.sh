#!/bin/sh
# A scenario from beginning to end, on two ranks of this machine: calibrate, predict, run live, compare.
# Usage: compare_test.sh BINARY
set -u
windtunnel=$1
work=${TEST_TMPDIR:?}
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
unset RANK WORLD_SIZE

fail() {
  echo "FAILED: $*"
  exit 1
}

cat > "$work/tiny.yaml" << 'SCENARIO'
name: tiny
model: {kind: mlp, widths: [10, 100, 10], activation: relu}
batch: {micro: 8}
parallel: {data: {kind: ddp, size: 2}}
cluster: {devices_per_node: 2}
run: {warmup: 2, steps: 5}
SCENARIO

# The error of a step of microseconds means nothing here, so the tolerance is first too wide to fail, and then
# so narrow that nothing passes.
"$windtunnel" compare "$work/tiny.yaml" --set tolerance.step_time=1000 --json "$work/compare.json" \
  --trace "$work/trace.json" --svg "$work/picture.svg" > "$work/table.txt" || fail "compare: exit status $?"
grep -q 'within tolerance' "$work/table.txt" || fail "no verdict in the table"
grep -q '"peak_memory_bytes": 0,' "$work/compare.json" || fail "peak memory is not exact"
grep -q '"rank 1 measured"' "$work/trace.json" || fail "the trace lacks a rank"
grep -q '</svg>' "$work/picture.svg" || fail "the picture is not complete"

"$windtunnel" compare "$work/tiny.yaml" -q --set tolerance.step_time=0.0000001 > /dev/null
[ $? = 3 ] || fail "an error outside the tolerance must give exit status 3"

# Costs that are no longer true are measured again, which is reported.
python3 - "$work"/cache/windtunnel/*.scenario-*.json << 'SLOWER'
import json, sys
for path in sys.argv[1:]:
    profile = json.load(open(path))
    for kernel in profile["kernels"]:
        times = [1000 * time for time in kernel["time_s"]["quantiles"]]
        kernel["time_s"] = {"p10": times[3], "p50": times[5], "p90": times[7], "quantiles": times}
    json.dump(profile, open(path, "w"))
SLOWER
"$windtunnel" compare "$work/tiny.yaml" --set tolerance.step_time=1000 --json "$work/drift.json" > /dev/null 2> "$work/notes.txt" || fail "compare: exit status $?"
grep -q 'operators take .* % less now: measuring them again' "$work/notes.txt" || fail "drift was not noticed: $(cat "$work/notes.txt")"
grep -q '"cost_drift": -0.9' "$work/drift.json" || fail "the result does not say how far costs had moved"
"$windtunnel" predict "$work/tiny.yaml" --json - > "$work/predict.json" || fail "predict"
python3 - "$work/compare.json" "$work/predict.json" << 'ALIKE' || fail "costs were not measured again"
import json, sys
first, second = (json.load(open(path))["predicted"]["step_time_s"]["p50"] for path in sys.argv[1:])
sys.exit(not 0.02 < first / second < 50)
ALIKE

# The cache now has all costs: predictions need no device, and are equal except for how long they took.
for i in 1 2; do
  "$windtunnel" predict "$work/tiny.yaml" --json - | grep -v '"wall_s"' > "$work/predict$i.json" || fail "predict"
done
cmp "$work/predict1.json" "$work/predict2.json" || fail "two predictions differ"
"$windtunnel" predict "$work/tiny.yaml" --seed 1 --json "$work/seed1.json" > /dev/null || fail "predict --seed 1"
grep -v '"wall_s"' "$work/seed1.json" | cmp -s - "$work/predict1.json" &&
  fail "another seed must give another prediction"

# Host times depend on what runs between them: measuring another scenario leaves this one's prediction alone.
"$windtunnel" calibrate "$work/tiny.yaml" --set batch.micro=64 --recalibrate -q > /dev/null || fail "calibrate: exit status $?"
sed 's/micro: 8/micro: 32/' "$work/tiny.yaml" > "$work/other.yaml"
"$windtunnel" compare "$work/other.yaml" -q --set tolerance.step_time=1000 > /dev/null || fail "compare: exit status $?"
"$windtunnel" predict "$work/tiny.yaml" --json - | grep -v '"wall_s"' | cmp - "$work/predict1.json" ||
  fail "another scenario's calibration changed this one's prediction"

"$windtunnel" predict "$work/tiny.yaml" --set optimizer.lr=0.5 --json - | grep -A1 '"step_time_s"' > "$work/rate.txt"
grep -A1 '"step_time_s"' "$work/predict1.json" | cmp - "$work/rate.txt" ||
  fail "a learning rate must not change the step's prediction"

"$windtunnel" explain "$work/tiny.yaml" | grep -q 'critical path' || fail "explain"
"$windtunnel" run "$work/tiny.yaml" --json - | grep -q '"losses"' || fail "run"
# The ranks of DataParallel are threads of one process, and their collectives' costs are kept apart from
# Gloo's.
"$windtunnel" compare "$work/tiny.yaml" --set parallel.data.kind=dp --set batch.accumulate=2 --set tolerance.step_time=1000 \
  --json "$work/dp.json" --trace "$work/dp_trace.json" > "$work/dp.txt" || fail "compare of dp: exit status $?"
grep -q '"peak_memory_bytes": 0,' "$work/dp.json" || fail "peak memory of dp is not exact"
grep -q '"initial_peak_bytes": 0,' "$work/dp.json" || fail "start-up memory of dp is not exact"
grep -q '"rank 1 measured"' "$work/dp_trace.json" || fail "the trace of dp lacks a rank"
grep -q '"backend": "threads"' "$work"/cache/windtunnel/*.json || fail "no costs of threads in the profile"
RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 \
  "$windtunnel" run "$work/tiny.yaml" --set parallel.data.kind=dp --json - | grep -q '"losses"' || fail "run of dp by another launcher"

"$windtunnel" profile check "$work"/cache/windtunnel/*.json | grep -q 'well formed' || fail "profile check"
echo "all claims hold"
