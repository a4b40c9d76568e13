#!/bin/bash
# Predictions checked against steps that others measured: the picture, fits to a part of the rows, and
# framework profiles.
# Usage: validate_test.sh BINARY
set -u
windtunnel=$(realpath "$1")
work=${TEST_TMPDIR:?}
export XDG_CACHE_HOME=$work/cache
cd "$work" || exit 1

fail() {
  echo "FAILED: $*"
  exit 1
}

# row MICRO SECONDS: a step of a small GPT on an A100.
row() {
  printf '{"id": "micro %s", "source": "x", "scenario": {"name": "m%s", "model": {"preset": "gpt2-124m"}, "batch": {"micro": %s}, ' "$1" "$1" "$1"
  printf '"precision": {"param": "bf16"}, "framework": "pytorch", "cluster": {"device": "a100-sxm-80g"}, "tolerance": {"step_time": 1}}, '
  printf '"measured": {"step_time_s": %s}}\n' "$2"
}
{ row 1 0.020 && row 2 0.034 && row 4 0.060 && row 8 0.115; } > rows.jsonl

# Two dots for each row, its time and its error, within the picture; and what is dotted is said.
"$windtunnel" validate rows.jsonl --svg picture.svg > table.txt || fail "validate: exit status $?"
[ "$(grep -c '^micro' table.txt)" = 4 ] || fail "expected four rows: $(cat table.txt)"
python3 - << 'CHECKS' || fail "the picture"
import xml.dom.minidom
svg = xml.dom.minidom.parse("picture.svg").documentElement
_, _, width, height = map(float, svg.getAttribute("viewBox").split())
dots = svg.getElementsByTagName("circle")
rows = [dot for dot in dots if 0 < float(dot.getAttribute("cx")) < width and 0 < float(dot.getAttribute("cy")) < height]
assert len(rows) >= 2 * 4, f"{len(rows)} dots in the picture"
texts = [text.firstChild.data for text in svg.getElementsByTagName("text")]
assert any("predicted over measured" in text for text in texts) and any("4 rows" in text for text in texts), texts
assert "error of the prediction" in texts, texts
CHECKS
"$windtunnel" validate rows.jsonl --svg /dev/null/x.svg > /dev/null 2> err.txt && fail "a picture that cannot be written must be an error"
grep -q -e '--svg: /dev/null/x.svg: cannot be written' err.txt || fail "the message: $(cat err.txt)"

# Fitted to three of the four rows, twice, the fit predicts the fourth row better than without.
"$windtunnel" validate rows.jsonl --cross-fit 0.5 --seeds 2 > fits.txt || fail "cross-fit: exit status $?"
[ "$(grep -c '^rows  *[01]  *3  *1 ' fits.txt)" = 2 ] || fail "expected two draws of three rows: $(cat fits.txt)"
grep -q '^rows  *mean  *[0-9.]* %' fits.txt || fail "no mean over the draws: $(cat fits.txt)"
"$windtunnel" validate rows.jsonl > unfitted.txt || fail "validate: exit status $?"
without=$(sed -n 's/^rows  *4  *0  *\([0-9.]*\) %.*/\1/p' unfitted.txt)
with=$(sed -n 's/^rows  *mean  *\([0-9.]*\) %.*/\1/p' fits.txt)
awk "BEGIN { exit !($with < $without) }" || fail "fitted $with %, not fitted $without %: $(cat fits.txt unfitted.txt)"
head -2 rows.jsonl > two.jsonl
for wrong in 'rows.jsonl --cross-fit 1' 'rows.jsonl --cross-fit 0.5 --json fits.json' 'rows.jsonl --json - --svg -' 'rows.jsonl --cross-fit 2' 'rows.jsonl --seeds 0' 'two.jsonl --cross-fit 0.5'; do
  "$windtunnel" validate $wrong > out.txt 2> err.txt
  [ $? = 2 ] || fail "validate $wrong: exit status $?, expected 2"
  [ "$(wc -l < err.txt)" = 1 ] && [ ! -s out.txt ] || fail "validate $wrong: $(cat err.txt out.txt)"
done

# A framework profile that is fitted to steps predicts them, as an option or as the scenario's framework.
"$windtunnel" calibrate --steps rows.jsonl --out mine.json > fit.txt || fail "calibrate --steps: exit status $?"
grep -q '^4 rows of pytorch: mean error [0-9.]* % before, [0-9.]* % after' fit.txt || fail "$(cat fit.txt)"
grep -q '^  layers  .*[0-9.]* ([0-9]* x [0-9]* tokens, hidden [0-9]*, [0-9]* tensor ranks*)' fit.txt || fail "what layers take: $(cat fit.txt)"
"$windtunnel" validate rows.jsonl --framework-profile mine.json --json - | python3 -c '
import json, sys
after = json.load(sys.stdin)["overall"]["mape"]
assert after < 0.15, after' || fail "the rows that it was fitted to"
# Times that no factors explain are refused, naming the rows, and nothing is written. A single such row is
# named. Rows without a time are left out.
sed 's/"step_time_s": *[0-9.e-]*/"step_time_s": 0.0001/' rows.jsonl > fast.jsonl
"$windtunnel" calibrate --steps fast.jsonl --out never.json > /dev/null 2> err.txt
[ $? = 1 ] && [ ! -e never.json ] && grep -q 'half of the rows stay more than 50 % off whatever is fitted: .* (+[0-9.e+]* %)' err.txt ||
  fail "times that no factors explain: $(cat err.txt)"
{ cat rows.jsonl; head -1 rows.jsonl | sed 's/"step_time_s": *[0-9.e-]*/"step_time_s": 900/; s/"id": *"/"id": "slow-/'; } > one.jsonl
"$windtunnel" calibrate --steps one.jsonl > one.txt 2> err.txt || fail "one row of five is wrong: $(cat err.txt)"
grep -q '^no factors explain slow-' one.txt || fail "a row that no factors explain: $(cat one.txt)"
# The input of a fit is not overwritten. A user's own profile is fitted again, with all that it says.
cp rows.jsonl kept.jsonl
"$windtunnel" calibrate --steps rows.jsonl --out rows.jsonl > /dev/null 2> err.txt
[ $? = 2 ] && cmp rows.jsonl kept.jsonl || fail "measurements were overwritten: $(cat err.txt)"
sed 's/"base": "pytorch",/"base": "pytorch", "forward_us": 60,/; s/"sources": {/"sources": {"forward_us": "a guess",/' mine.json > own.json
"$windtunnel" calibrate --steps rows.jsonl --framework-profile own.json --out again.json > again.txt || fail "fitted again: $(cat again.txt)"
"$windtunnel" calibrate --steps rows.jsonl --framework-profile <(cat own.json) --out piped.json > /dev/null && cmp again.json piped.json ||
  fail "fitted again from a pipe"
grep -q '"forward_us": 60' again.json && grep -q '"base": "pytorch"' again.json || fail "$(cat again.json)"
"$windtunnel" validate rows.jsonl --framework-profile own.json -q > own.txt
before=$(sed -n 's/.*mean error \([0-9.]*\) % before.*/\1/p' again.txt)
grep -q "^rows .* $before %" own.txt || fail "the error before, $before %, is not that of $(cat own.txt)"
"$windtunnel" validate rows.jsonl --framework-profile again.json --json - | python3 -c '
import json, sys
after = json.load(sys.stdin)["overall"]["mape"]
assert after < 0.15, after' || fail "a profile that was fitted twice"
printf 'name: g\nmodel: {preset: gpt2-124m}\nbatch: {micro: 4}\nprecision: {param: bf16}\ncluster: {device: a100-sxm-80g}\n' > known.yaml
# PyTorch with FSDP 1 is a framework of its own.
sed 's/"base": "pytorch"/"base": "pytorch_fsdp1"/' mine.json > fsdp1.json
"$windtunnel" predict known.yaml --set framework=pytorch --framework-profile fsdp1.json > /dev/null 2> err.txt
[ $? = 2 ] && grep -q 'has base pytorch_fsdp1, expected pytorch: ' err.txt || fail "FSDP 1's kernels for what is not FSDP 1: $(cat err.txt)"
{ cat known.yaml && echo 'framework: mine.json'; } > mine.yaml
median() { "$windtunnel" predict "$@" | grep 'time (median)'; }
[ "$(median mine.yaml)" = "$(median known.yaml --set framework=pytorch --framework-profile mine.json)" ] ||
  fail "framework: mine.json must predict as --framework-profile mine.json"
[ "$(median mine.yaml)" != "$(median known.yaml --set framework=pytorch)" ] || fail "the framework's file has no effect"
"$windtunnel" predict mine.yaml --set cluster.device=cpu > /dev/null 2> err.txt
[ $? = 2 ] || fail "a framework's file on a device with measured costs must be refused"
grep -q 'framework: .*/mine.json is for devices that are not at hand' err.txt || fail "the message: $(cat err.txt)"

# A profile that cannot be read is an error of the command, not of each row.
echo '{"schema": "windtunnel/framework/1", "name": "x", "base": "pytorch", "residuals": {"gem": 2}, "sources": {}}' > faulty.json
for option in '--framework-profile faulty.json' '--framework-profile none.json' '--profile faulty.json' '--profile none.json'; do
  "$windtunnel" validate rows.jsonl $option > out.txt 2> err.txt
  [ $? = 2 ] || fail "validate $option: exit status $?, expected 2"
  [ "$(wc -l < err.txt)" = 1 ] && grep -q "${option##* }" err.txt && [ ! -s out.txt ] || fail "validate $option: $(cat err.txt out.txt)"
done
# A pipe is read once.
"$windtunnel" validate rows.jsonl --framework-profile mine.json > file.txt || fail "validate --framework-profile FILE"
"$windtunnel" validate rows.jsonl --framework-profile <(cat mine.json) > pipe.txt || fail "validate --framework-profile PIPE"
diff file.txt pipe.txt || fail "a framework profile from a pipe is another one"
sed 's/micro 1/row/; s/"framework": "pytorch"/"framework": "mine.json"/' rows.jsonl > named.jsonl
"$windtunnel" validate named.jsonl --json - | python3 -c '
import json, sys
after = json.load(sys.stdin)["overall"]["mape"]
assert after < 0.15, after' || fail "rows that name the file themselves"

# Steps composed of their repeating parts equal those that predict simulates operator by operator.
cat > composed.yaml << 'YAML'
name: composed
model: {layers: 8, hidden: 1024, heads: 16, vocab: 51200, seq_len: 1024}
batch: {micro: 2, accumulate: 8}
precision: {param: fp16}
parallel: {data: {kind: zero1, size: 2}, tensor: {size: 2}, pipeline: {size: 2}}
cluster: {device: a100-sxm-80g, devices_per_node: 8, network: {intra_node: nvlink3}}
framework: megatron
YAML
python3 - << 'ROWS' > composed.jsonl
import json, yaml
scenario = yaml.safe_load(open("composed.yaml"))
for measured in ({"step_time_s": 0.1}, {"step_time_s": 0.1, "reserved_memory_bytes": 1e10, "device_memory_used_bytes": 1e10}):
    print(json.dumps({"id": f"{len(measured)} quantities", "scenario": scenario, "measured": measured}))
print(json.dumps({"id": "last rank", "scenario": scenario, "measured": {"peak_memory_bytes": 1e10, "memory_rank": 7}}))
ROWS
"$windtunnel" predict composed.yaml --json predicted.json -q > /dev/null || fail "predict composed.yaml"
"$windtunnel" validate composed.jsonl --json validated.json -q > /dev/null
python3 - << 'CHECKS' || fail "validate and predict differ"
import json
predicted = json.load(open("predicted.json"))["predicted"]
rows = json.load(open("validated.json"))["rows"]
times = [row["predicted"] for row in rows if row["quantity"] == "step_time_s"]
assert times == 2 * [predicted["step_time_s"]["p50"]], (times, predicted)
used = [row["predicted"] for row in rows if row["quantity"] == "device_memory_used_bytes"]
last = [row["predicted"] for row in rows if row["quantity"] == "peak_memory_bytes"]
assert last == [predicted["memory"][-1]["peak_allocated_bytes"]] != [predicted["memory"][0]["peak_allocated_bytes"]], last
reserved = [row["predicted"] for row in rows if row["quantity"] == "reserved_memory_bytes"]
assert reserved == [max(m["peak_reserved_bytes"] for m in predicted["memory"])], reserved
assert used == [reserved[0] + predicted["outside_allocator_bytes"]], used
CHECKS

sed 's/"memory_rank": 7/"memory_rank": 8/' composed.jsonl | tail -1 > stranger.jsonl
"$windtunnel" validate stranger.jsonl > stranger.txt 2>&1
grep -q "refused: measured.memory_rank is 8, expected a rank of the job, 0 to 7" stranger.txt || fail "a rank beyond the job: $(cat stranger.txt)"

# Files that a row names lie beside the rows' file.
mkdir -p sub && printf '0F0,0B0\n1F0,1B0\n' > sub/one.csv
cat > named.py << 'ROWS'
import json, yaml
scenario = yaml.safe_load(open("composed.yaml"))
scenario.update(model={"preset": "gpt2-124m"}, batch={"micro": 1}, parallel={"pipeline": {"size": 2, "schedule": "one.csv"}},
                cluster={"device": "a100-sxm-80g", "devices_per_node": 2, "network": {"intra_node": "nvlink3"}})
print(json.dumps({"id": "a", "scenario": scenario, "measured": {"step_time_s": 0.03}}))
ROWS
python3 named.py > sub/rows.jsonl
"$windtunnel" validate sub/rows.jsonl > named.txt 2>&1
grep -q refused named.txt && grep -q one.csv named.txt && fail "a file beside the rows: $(cat named.txt)"

# A mixture's FLOPs are those of the experts that a token goes to. Models of other experts are no pair.
cat > experts.py << 'ROWS'
import json
for name, experts in (("dense", None), ("mixture", {"count": 8, "top_k": 2, "capacity_factor": 0})):
    model = {"layers": 2, "hidden": 1024, "heads": 8, "vocab": 512, "seq_len": 512, "experts": experts}
    scenario = {"model": model, "batch": {"micro": 8}, "precision": {"param": "bf16"}, "cluster": {"device": "h100-sxm-80g"}}
    print(json.dumps({"id": name, "scenario": scenario, "measured": {"tflops_per_device": 100, "flops_convention": "megatron"}}))
ROWS
python3 experts.py > experts.jsonl
"$windtunnel" validate experts.jsonl --json experts.json > experts.txt
python3 - << 'CHECKS' || fail "rows of experts: $(cat experts.txt)"
import json
result = json.load(open("experts.json"))
dense, mixture = (row["measured"] for row in result["rows"])
assert 1.3 < mixture / dense < 2, (dense, mixture)
assert result["overall"]["pair_order"] is None, result["overall"]
CHECKS

# A row that predict refuses is refused, in the same words, beside others that are not.
cat > refused.py << 'ROWS'
import json, yaml
scenario = yaml.safe_load(open("composed.yaml"))
def row(name, **changes):
    print(json.dumps({"id": name, "scenario": {**scenario, **changes}, "measured": {"step_time_s": 0.1}}))
row("vocabulary", model={**scenario["model"], "vocab": 51201})
row("blocks", batch={"micro": 1, "accumulate": 1000000000})
row("good")
ROWS
python3 refused.py > refused.jsonl
"$windtunnel" validate refused.jsonl > refused.txt 2>&1
grep -q 'expected a divisor of model.vocab (51201)' refused.txt || fail "the vocabulary's message: $(cat refused.txt)"
grep -q 'blocks.*refused' refused.txt || fail "the blocks' message: $(cat refused.txt)"
grep -q '^good .* step time .*ms .*ms .* %' refused.txt || fail "the good row: $(cat refused.txt)"
echo "all claims hold"
