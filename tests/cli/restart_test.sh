#!/bin/bash
# Ranks that are killed come back from the last checkpoint, ranks that are silent are named in time, and the flight record tells.
# Usage: restart_test.sh BINARY KILL_CAMPAIGN
set -u
source "$(dirname "$0")/begin.sh"
campaign=$(realpath "$2")
cd "$work" || exit 1

fail() {
  echo "FAILED: $*"
  cat err.txt
  exit 1
}

cat > gpt.yaml << 'SCENARIO'
name: gpt
model: {layers: 2, hidden: 32, heads: 2, vocab: 256, seq_len: 32}
batch: {micro: 2}
parallel: {data: {kind: ddp, size: 2}}
cluster: {devices_per_node: 2}
run: {warmup: 5, steps: 10000000}
SCENARIO

# Three runs with one to three kills each end bit by bit as if nothing had happened, sharded states too.
: > err.txt
python3 "$campaign" "$windtunnel" gpt.yaml --runs 3 --every 20 -- --set run.steps=150 --set parallel.data.kind=zero1 \
  > err.txt 2>&1 || fail "the campaign"
cat err.txt

# Starts a run in the background, sets $launcher and $victim (rank 1), and waits until it takes steps.
start_run() {
  : > err.txt  # of the run before, which has taken steps
  victim=
  "$windtunnel" run gpt.yaml --no-progress "$@" > out.txt 2> err.txt &
  launcher=$!
  await_steps err.txt
  for pid in $(pgrep -P $launcher -f 'rank .*job.json'); do
    tr '\0' '\n' < "/proc/$pid/environ" | grep -qx 'RANK=1' && victim=$pid
  done
  [ -n "$victim" ] || fail "rank 1 is not there"
}

# Without a checkpoint a job begins anew, and not more often than it may.
start_run --max-restarts 1 --flight-record first.json
kill -9 "$victim"
await_steps err.txt 'restart 1 of 1, from the beginning'
kill -9 $(pgrep -P $launcher -f 'rank .*job.json')
wait $launcher
[ $? = 1 ] || fail "after the last restart a killed rank must give exit status 1"
[ -s first.json ] && [ -s first-restart-1.json ] || fail "each attempt must leave a flight record: $(ls)"

# A run that was restarted and went on says so quietly, too.
"$windtunnel" run gpt.yaml -q --set run.steps=2000 --checkpoint-dir quiet --checkpoint-every 50 --max-restarts 1 > out.txt 2> err.txt &
launcher=$!
for _ in $(seq 600); do [ -e quiet/latest ] && break; sleep 0.05; done
kill -9 $(pgrep -P $launcher -f 'rank .*job.json' | head -1)
wait $launcher || fail "a run that is restarted once"
grep -q 'windtunnel: restarted after an error: rank . was killed by signal 9' err.txt || fail "a quiet restart is not said"

# Nor is it silent about a restart after which the run fails for good.
"$windtunnel" run gpt.yaml -q --set optimizer.kind=sgd --set optimizer.lr=1e30 --set run.steps=8 --checkpoint-dir diverged \
  --checkpoint-every 1 --max-restarts 1 > out.txt 2> err.txt
[ $? = 1 ] && grep -q 'windtunnel: restarted after an error: ' err.txt || fail "a quiet restart before the last error is not said"

# The same steps diverge again, so that is tried once, however often it may be.
rm -r diverged
"$windtunnel" run gpt.yaml -q --set optimizer.kind=sgd --set optimizer.lr=1e30 --set run.steps=8 --checkpoint-dir diverged \
  --checkpoint-every 1 --max-restarts 5 --flight-record /dev/null > out.txt 2> err.txt
[ $? = 1 ] && grep -q 'not restarted once more: it failed like this before, from the same step' err.txt || fail "$(cat err.txt)"
[ "$(grep -c 'restarted after an error' err.txt)" = 1 ] || fail "it was restarted more than once: $(cat err.txt)"
ls /dev/null-* > /dev/null 2>&1 && fail "a flight record beside /dev/null"

# A rank that is silent: its peer meets the deadline, both views are named, and the record has both ranks' last operators.
ln -s behind_the_link.json silent.json
start_run --collective-timeout 2 --flight-record silent.json
began=$(date +%s)
kill -STOP "$victim"
wait $launcher
[ $? = 1 ] || fail "a silent rank must give exit status 1"
[ $(($(date +%s) - began)) -le 15 ] || fail "it took too long"
grep -qE "rank 0 of group 'world': (all_reduce|barrier) .* failed: .*within 2" err.txt || fail "the deadline"
grep -q 'rank 1 did not get that far' err.txt || fail "the other rank's view"
grep -q 'flight record: silent.json' err.txt || fail "the flight record is not named"
[ -L silent.json ] || fail "the flight record took a link's place"
python3 - << 'PYTHON' || fail "the flight record"
import json
record = json.load(open("silent.json"))
assert record["schema"] == "windtunnel/flight_record/1" and record["world_size"] == 2
assert [rank["rank"] for rank in record["ranks"]] == [0, 1]
for rank in record["ranks"]:
    operators = rank["operators"]
    assert len(operators) == 1000, len(operators)
    assert all(a["began_s"] <= b["began_s"] for a, b in zip(operators, operators[1:]))
    collectives = [op for op in operators if "group" in op]
    assert {"number", "kind", "dtype", "elements", "bytes", "group"} <= collectives[-1].keys()
# No rank is beyond the step in which rank 0 waits.
waited = [op for op in record["ranks"][0]["operators"] if "awaited_s" in op][-1]
mine = [op for op in record["ranks"][1]["operators"] if op.get("group") == "world"][-1]
assert waited["step"] >= mine["step"], (waited, mine)
PYTHON
echo "all claims hold"
