#!/bin/bash
# What `run` reports about steps while they run: lines on standard error, and event files that another program
# reads.
# Usage: tensorboard_test.sh BINARY READ_EVENTS
set -u
source "$(dirname "$0")/begin.sh"
read_events=$2

fail() {
  echo "FAILED: $*"
  exit 1
}
events() { python3 "$read_events" "$1"/events.out.tfevents.* || fail "$1 cannot be read"; }

cat > "$work/tiny.yaml" << 'SCENARIO'
name: tiny
model: {layers: 2, hidden: 32, heads: 2, vocab: 64, seq_len: 16}
batch: {micro: 2, accumulate: 2}
optimizer: {kind: adamw, clip_norm: 1}
parallel: {data: {kind: ddp, size: 2}}
cluster: {devices_per_node: 2}
run: {warmup: 2, steps: 3}
SCENARIO

"$windtunnel" run "$work/tiny.yaml" --tensorboard "$work/logs/new" --json "$work/run.json" \
  > /dev/null 2> "$work/err.txt" || fail "run: $(cat "$work/err.txt")"
[ "$(grep -cE '^step: +[0-9]+  loss: +[0-9.]+  grad_norm: +[0-9.]+  memory: +[0-9.]+ [KMG]iB  tps: [0-9,]+  tflops: [0-9.e-]+  mfu: n/a$' \
  "$work/err.txt")" = 5 ] || fail "expected a line for each of 5 steps: $(cat "$work/err.txt")"
events "$work/logs/new" > "$work/events.txt"
python3 - "$work" << 'CHECKS' || fail "events of a run"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1] + "/events.txt")]
run = json.load(open(sys.argv[1] + "/run.json"))["measured"]
assert events[0]["file_version"] == "brain.Event:2", events[0]
steps = events[1:]
assert [event["step"] for event in steps] == [1, 2, 3, 4, 5], steps
for event, loss in zip(steps, run["losses"], strict=True):
    scalars = event["scalars"]
    assert sorted(scalars) == sorted(
        ["loss_metrics/global_avg_loss", "loss_metrics/global_max_loss", "grad_norm", "lr", "time_metrics/end_to_end(s)",
         "throughput(tps)", "tflops", "memory/max_active(GiB)", "memory/max_reserved(GiB)"]), scalars  # no MFU: a CPU has no dense peak
    assert abs(scalars["loss_metrics/global_avg_loss"] - loss) < 1e-5 * loss, (event, loss)
    assert scalars["loss_metrics/global_max_loss"] >= scalars["loss_metrics/global_avg_loss"]
    # 2 sequences of 16 tokens, twice, a rank
    assert abs(scalars["throughput(tps)"] * scalars["time_metrics/end_to_end(s)"] - 64) < 0.01
# The times of measured steps are the very times that the run reports.
times = [event["scalars"]["time_metrics/end_to_end(s)"] for event in steps[2:]]
assert all(abs(a - b) < 1e-6 * b for a, b in zip(times, run["step_times_s"], strict=True)), (times, run["step_times_s"])
allocated = max(rank["peak_allocated_bytes"] for rank in run["memory"])
assert abs(steps[-1]["scalars"]["memory/max_active(GiB)"] * 2**30 - allocated) < 1, allocated
CHECKS

sleep 1.1  # files are named by the second
# Another run adds a file. Every third step, and the first; nothing on standard error when quiet.
"$windtunnel" run "$work/tiny.yaml" -q --log-every 3 --set run.steps=6 --set optimizer.clip_norm=0 --tensorboard "$work/logs/new" \
  > /dev/null 2> "$work/err.txt" || fail "a second run"
[ -s "$work/err.txt" ] && fail "not quiet: $(cat "$work/err.txt")"
events "$work/logs/new" | grep '"file": 1' > "$work/second.txt"
[ "$(sed -n 's/.*"step": \([0-9]*\).*/\1/p' "$work/second.txt" | tr '\n' ' ')" = "0 1 3 6 " ] || fail "steps of --log-every 3: $(cat "$work/second.txt")"
grep -q grad_norm "$work/second.txt" && fail "a gradient norm that nobody computed"

# In a pipeline the losses are another rank's; DataParallel's ranks are threads; an MLP counts samples.
for set in 'parallel.data.size=1 --set parallel.pipeline.size=2' parallel.data.kind=dp 'model={kind: mlp, widths: [8, 8], activation: relu}'; do
  if [ "${set%%=*}" = model ]; then set -- --set "$set"; else set -- --set $set; fi
  "$windtunnel" run "$work/tiny.yaml" "$@" --set optimizer.clip_norm=0 > /dev/null 2> "$work/err.txt" || fail "run $*: $(cat "$work/err.txt")"
  grep -qE '^step: +5  loss: +[0-9.]*[1-9][0-9]* .* [ts]ps: [0-9,]+ ' "$work/err.txt" || fail "lines of $*: $(cat "$work/err.txt")"
done
grep -q 'sps: ' "$work/err.txt" || fail "an MLP has no tokens"

# All that was reported before the run was killed is in the file.
"$windtunnel" run "$work/tiny.yaml" --set run.steps=10000000 --tensorboard "$work/logs/killed" > /dev/null 2> "$work/err.txt" &
launcher=$!
for _ in $(seq 200); do
  grep -q '^step: 20 ' "$work/err.txt" && break
  sleep 0.1
done
kill -9 $launcher
wait $launcher 2> /dev/null
events "$work/logs/killed" > "$work/events.txt"
grep -q '"step": 20,' "$work/events.txt" || fail "steps are missing after a kill"

# A resumed run continues in a file of its own, which voids what other files have of these steps.
"$windtunnel" run "$work/tiny.yaml" -q --checkpoint-dir "$work/saved" --tensorboard "$work/logs/resumed" > /dev/null || fail "a run with checkpoints"
sleep 1.1
"$windtunnel" run "$work/tiny.yaml" --set run.steps=5 --checkpoint-dir "$work/saved" --resume --tensorboard "$work/logs/resumed" \
  > /dev/null 2> "$work/err.txt" || fail "a run that goes on: $(cat "$work/err.txt")"
grep -q '^step:  6 ' "$work/err.txt" || fail "steps do not count on: $(cat "$work/err.txt")"
events "$work/logs/resumed" | grep '"file": 1' > "$work/second.txt"
[ "$(sed -n 's/.*"step": \([0-9]*\).*/\1/p' "$work/second.txt" | tr '\n' ' ')" = "0 6 6 7 " ] || fail "steps of the run that goes on: $(cat "$work/second.txt")"
grep -q '"step": 6, "session": 1' "$work/second.txt" || fail "no mark of the restart: $(cat "$work/second.txt")"

# An attempt that begins again at the first step voids what the attempt before it has written.
"$windtunnel" run "$work/tiny.yaml" --set run.steps=2000 --max-restarts 1 --log-every 50 --tensorboard "$work/logs/again" > /dev/null 2> "$work/err.txt" &
launcher=$!
for _ in $(seq 200); do
  grep -q '^step: *100 ' "$work/err.txt" && break
  sleep 0.05
done
kill -9 "$(pgrep -P $launcher -f 'rank .*job.json' | tail -1)"
wait $launcher || fail "a restart: $(cat "$work/err.txt")"
grep -q 'restart 1 of 1, from the beginning' "$work/err.txt" || fail "no restart: $(cat "$work/err.txt")"
events "$work/logs/again" | grep -q '"step": 1, "session": 1' || fail "no mark of the attempt that begins again"

# With ranks of another launcher, rank 0 writes.
next_port
for rank in 0 1; do
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    "$windtunnel" run "$work/tiny.yaml" --tensorboard "$work/logs/joined" > /dev/null 2> "$work/joined$rank.txt" &
done
wait
[ "$(events "$work/logs/joined" | wc -l)" = 6 ] || fail "events of joined ranks: $(events "$work/logs/joined")"
[ -s "$work/joined1.txt" ] && fail "rank 1 says: $(cat "$work/joined1.txt")"

"$windtunnel" run "$work/tiny.yaml" --tensorboard /dev/null/logs > /dev/null 2> "$work/err.txt"
[ $? = 2 ] || fail "a directory that cannot be must give exit status 2"
grep -q -e '--tensorboard: /dev/null/logs: cannot be written' "$work/err.txt" || fail "the message: $(cat "$work/err.txt")"
echo "all claims hold"
