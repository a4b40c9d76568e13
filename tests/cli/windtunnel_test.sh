#!/bin/sh
# What scripts rely on: exit statuses, and one line on standard error for each error.
# Usage: windtunnel_test.sh BINARY
set -u
windtunnel=$1
work=${TEST_TMPDIR:?}
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME

. "$(dirname "$0")/expect.sh"

cat > "$work/mlp.yaml" << 'SCENARIO'
name: tiny
model: {kind: mlp, widths: [10, 100, 10], activation: relu}
batch: {micro: 8}
SCENARIO
printf 'name: tiny\nmodel: {kind: mlp, widths: [10, 10]}\nbach: {micro: 8}\n' > "$work/unknown_key.yaml"
printf '{"schema": "windtunnel/profile/99"}\n' > "$work/other_schema.json"

# OpenBLAS's workers spin on another core as soon as it is loaded.
if ldd "$windtunnel" | grep -q openblas; then
  echo "FAILED: OpenBLAS is loaded with the program, not when something is first computed"
  failures=$((failures + 1))
fi
expect 0 '^windtunnel [0-9]' --version
expect 0 'compare' --help
expect 0 '--recalibrate' compare --help
expect 0 '^  h100-sxm-80g  *NVIDIA H100 SXM5 80 GB: 989 TFLOP/s in bf16' list
expect 0 '^  llama3-8b  *transformer, 32 layers .* 8.03B parameters' list models
expect 0 '^  dgx-h100  *nvlink4 within a node, 8 x 400 Gb/s infiniband between nodes' list devices networks
expect 0 '^  nvlink4  *450 GB/s from a device and to it, of which rings reach 360$' list links
# listed LIST KEY: the list has exactly the words that the key takes.
listed() {
  words=$("$windtunnel" predict "$work/mlp.yaml" --set "$2=zz" 2>&1 | sed -n 's/.*expected \(.*\) or a .*/\1/p' | sed 's/, /\n/g' | sort)
  rows=$("$windtunnel" list "$1" | sed -n 's/^  \([^ ]*\) .*/\1/p' | sort)
  [ -n "$words" ] && [ "$words" = "$rows" ] && return
  echo "FAILED: list $1 has" $rows "but $2 takes" $words
  failures=$((failures + 1))
}
listed frameworks framework
listed schedules parallel.pipeline.schedule
expect_line 2 "^windtunnel: no list of 'device', did you mean 'devices'?" list device
expect_line 2 '^windtunnel: expected a command'
expect_line 2 "^windtunnel: unknown command 'predct'" predct x.yaml
expect_line 2 'SCENARIO is required' predict
expect_line 2 '--nonsense' predict x.yaml --nonsense
expect_line 2 'search is missing, expected a block of ranges' search "$work/mlp.yaml"
expect_line 2 'search.tensor is .0., expected at least 1' search "$work/mlp.yaml" --set 'search.tensor=[0]'
expect_line 2 'top' search "$work/mlp.yaml" --top 0
printf '{"id": "slip", "source": "x", "scenario": {"modell": {}}, "measured": {"step_time_s": 1}}\n' > "$work/slip.jsonl"
expect_line 3 "^windtunnel: 1 of 1 rows is refused, first 'slip' of slip: .*modell.*, did you mean .model." validate "$work/slip.jsonl" -q
expect_line 2 'missing.jsonl: cannot be read' validate "$work/missing.jsonl"
expect_line 2 "^$work/mlp.yaml:1:1: is not a JSON object" validate "$work/mlp.yaml"
expect_line 2 'only one of --json, --html' predict "$work/mlp.yaml" --html - --json -
expect_line 2 '--trace and --svg take one scenario' compare "$work/mlp.yaml" "$work/mlp.yaml" --trace t.json
expect_line 2 'missing.yaml' predict "$work/missing.yaml"
expect_line 2 "^$work/unknown_key.yaml:3:1: .*bach.*batch" predict "$work/unknown_key.yaml"
expect_line 2 'no profile named' predict "$work/mlp.yaml" --profile nonsense-gpu
expect_line 2 'missing.json' predict "$work/mlp.yaml" --profile "$work/missing.json"
expect_line 2 'other_schema.json' predict "$work/mlp.yaml" --profile "$work/other_schema.json"
expect_line 2 'other_schema.json' profile check "$work/other_schema.json"
expect_line 2 'windtunnel calibrate' predict "$work/mlp.yaml"
# The advice how to measure what is missing is a command that does: into the profile that is named, and of the
# configuration that a search cannot predict.
four="--set batch.micro=4 --set batch.accumulate=2"
expect_line 2 "can predict neither .*measure them with .* or .windtunnel calibrate $work/mlp.yaml $four., or have" \
  search "$work/mlp.yaml" --set 'search={micro: [4]}'
expect 0 "^$work/node.json: " calibrate "$work/mlp.yaml" --out "$work/node.json"
expect_line 2 "lacks the costs of .*: measure them with .windtunnel calibrate $work/mlp.yaml --out $work/node.json. (and the same --set)$" \
  predict "$work/mlp.yaml" --profile "$work/node.json" --set batch.micro=16
advice="windtunnel calibrate $work/mlp.yaml $four --out $work/node.json"
expect 1 "1 cannot be predicted: .* has no cost for .*: measure them with .$advice.$" \
  search "$work/mlp.yaml" -q --profile "$work/node.json" --set 'search={micro: [4]}'
expect 0 "^$work/node.json: " ${advice#windtunnel }
expect 0 'the fastest again' search "$work/mlp.yaml" --profile "$work/node.json" --set 'search={micro: [4]}'
sed 's/"memory_bytes":"[0-9]*"/"memory_bytes":"much"/' "$work/node.json" > "$work/odd.json"
expect 2 "odd.json: machine.memory_bytes is 'much', expected a number of bytes" explain "$work/mlp.yaml" --profile "$work/odd.json"
# Input that comes through a pipe can be read only once.
expect 0 'device h100-sxm-80g' predict /dev/stdin --profile h100-sxm-80g << 'SCENARIO'
model: {kind: mlp, widths: [10, 100, 10]}
SCENARIO
expect_line 2 'batch.micro' predict "$work/mlp.yaml" --set batch.micro=-1
expect_line 2 'KEY=VALUE' predict "$work/mlp.yaml" --set nonsense
expect 0 '^name: tiny' explain "$work/mlp.yaml" --resolved
for only in --resolved --memory "--profile h100-sxm-80g"; do
  expect 0 '^windtunnel: parallel.data.wrap has no effect with' explain "$work/mlp.yaml" $only --set parallel.data.wrap=root
done
expect 0 'peak memory of the steady step' explain "$work/mlp.yaml" --memory
expect 0 'critical path' explain "$work/mlp.yaml" --profile a100-sxm-80g --html "$work/explained.html" --trace "$work/explained.json" --svg "$work/explained.svg"
for file in html json svg; do [ -s "$work/explained.$file" ] || { echo "FAILED: no explained.$file"; failures=$((failures + 1)); }; done

# A device that is not at hand, from its datasheet: predicted on any machine. The MLP takes milliseconds, not a second.
expect 0 'modelled 100 %' predict "$work/mlp.yaml" --profile a100-sxm-80g
# The collectives go over the device's links, not over this machine's.
expect 0 'device a100-sxm-80g' predict "$work/mlp.yaml" --profile a100-sxm-80g --set parallel.data.size=2 \
  --set parallel.data.kind=ddp --set cluster.network.intra_node=loopback
expect 0 "fits in the device's 79.2 GiB" predict "$work/mlp.yaml" --set cluster.device=a100-sxm-80g
expect 0 'modelled 100 %' predict "$work/mlp.yaml" --profile a100-sxm-80g --no-fold
expect 0 '^training, 1.50M samples ' predict "$work/mlp.yaml" --profile a100-sxm-80g --tokens 1.5M
for count in 15x T 0 -1 nan 1e19; do
  expect_line 2 "--tokens: '$count' is not a number of tokens, such as 15T, 300B or 2e9" \
    predict "$work/mlp.yaml" --profile a100-sxm-80g --tokens="$count"
done
# A GPU that is asked for and is not there: one line, and what would be measured is predicted.
cuda="--set cluster.device=cuda"
if "$windtunnel" run "$work/mlp.yaml" $cuda 2>&1 | grep -q 'no CUDA device was found'; then
  expect_line 1 '^windtunnel: cluster.device: no CUDA device was found$' run "$work/mlp.yaml" $cuda
  expect_line 1 'cluster.device: no CUDA device was found$' calibrate "$work/mlp.yaml" $cuda
  expect 0 'no CUDA device was found (h200-sxm-141g instead): predicting only' compare "$work/mlp.yaml" $cuda
  expect 0 'modelled 100 %' predict "$work/mlp.yaml" $cuda
else
  echo 'skipped: there is a CUDA device'
fi
expect_line 2 'run.backend: nccl is for GPUs' run "$work/mlp.yaml" --set parallel.data.size=2 --set run.backend=nccl
topology='{nodes: [{name: a, kind: device}, {name: b, kind: device}], links: [{from: a, to: b, gbytes_per_s: 10}]}'
unconnected="${topology%%\], links*}, {name: c, kind: switch}], links${topology#*\], links}"
two="--set parallel.data.size=2 --set cluster.device=a100-sxm-80g"
expect 0 'modelled 100 %' predict "$work/mlp.yaml" $two --set "cluster.topology=$topology"
expect 0 'modelled 100 %' predict "$work/mlp.yaml" $two --set cluster.topology=dgx-a100
expect 2 "not connected: no links lead from 'a' to 'c'" predict "$work/mlp.yaml" $two --set "cluster.topology=$unconnected"
expect 2 'has 2 devices, expected 4' predict "$work/mlp.yaml" $two --set parallel.data.size=4 --set "cluster.topology=$topology"
expect 2 'dgx-h100, dgx-b200' predict "$work/mlp.yaml" $two --set cluster.topology=dgx
expect 2 'cluster.slow_link is given without cluster.topology' predict "$work/mlp.yaml" $two --set 'cluster.slow_link={from: a, to: b, factor: 0.5}'
expect 0 'NVIDIA H100 SXM5' profile show h100-sxm-80g
expect 0 'h100-sxm-80g (built in): well formed, a datasheet of NVIDIA H100' profile check h100-sxm-80g
expect_line 2 'is a datasheet: it has no measurements to merge' profile merge h100-sxm-80g a100-sxm-80g
# Profiles: two measurements of one machine, of which the newer one counts; the second has a kernel that no core can be so fast at.
profile() { # CREATED KEY SECONDS
  times="\"p10\": $3, \"p50\": $3, \"p90\": $3, \"quantiles\": [$3,$3,$3,$3,$3,$3,$3,$3,$3,$3,$3,$3]"
  echo "{\"schema\": \"windtunnel/profile/1\", \"name\": \"cpu-x\", \"device\": \"cpu\", \"fingerprint\": \"1a\", \"created\": \"$1\", \"machine\": {},
    \"libraries\": {}, \"cores\": 2, \"common_mode\": [1,1,1,1,1,1,1,1,1,1,1,1], \"dispatch\": [], \"collectives\": [], \"outside_allocator\": [],
    \"kernels\": [{\"key\": \"$2\", \"ranks\": 2, \"count\": 50, \"time_s\": {$times}}]}"
}
profile 2024-02-01T00:00:00Z 'gemm fp32 nn m=100 n=100 k=100' 2e-05 > "$work/new.json"
profile 2024-01-01T00:00:00Z 'gemm fp32 nn m=100 n=100 k=100' 3e-05 > "$work/old.json"
profile 2024-01-01T00:00:00Z 'gemm fp32 nn m=1000 n=1000 k=1000' 1e-06 > "$work/impossible.json"
expect 0 'gemm fp32 nn m=100 n=100 k=100 .*20.0 us .*100 GFLOP/s$' profile show "$work/new.json" "$work/old.json"
expect 0 'new.json: well formed, 1 kernels, 0 collectives; not of this machine' profile check "$work/new.json"
expect 3 'impossible gemm .*: 2.00 PFLOP/s in the median, a core does at most 416 GFLOP/s' profile check "$work/new.json" "$work/impossible.json"
expect 0 '1 entries are of .*new.json' profile merge "$work/new.json" "$work/old.json" "$work/impossible.json" --out "$work/merged.json"
expect 3 'merged.json: well formed, 2 kernels' profile check "$work/merged.json"
expect 0 '20.0 us' profile show "$work/merged.json"
expect_line 2 "did you mean 'a100-sxm-80g'" predict "$work/mlp.yaml" --profile a100-sxm-8g
expect_line 2 'a device of your own is a file that changes one of those' predict "$work/mlp.yaml" --profile l40s
# An A100's measured all-reduces hold for its own links only.
step_on() {
  "$windtunnel" predict "$work/links.yaml" --json - "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin)["predicted"]["step_time_s"]["p50"])'
}
cat > "$work/links.yaml" << 'SCENARIO'
model: {layers: 2, hidden: 1024, heads: 8, vocab: 512, seq_len: 512}
precision: {param: bf16}
parallel: {data: {kind: ddp, size: 8, overlap: false}}
cluster: {device: a100-sxm-80g, devices_per_node: 8}
SCENARIO
own=$(step_on)
[ "$own" = "$(step_on --set cluster.network.intra_node=nvlink3)" ] || { echo "FAILED: nvlink3 is an A100's own link"; failures=$((failures + 1)); }
python3 -c "import sys; own, slow, slower = map(float, sys.argv[1:]); assert own < slow < slower, (own, slow, slower)" "$own" \
  "$(step_on --set cluster.network.intra_node=pcie4)" "$(step_on --set 'cluster.network.intra_node={gbytes_per_s: 1}')" ||
  { echo "FAILED: slower links do not slow an A100's all-reduces"; failures=$((failures + 1)); }
link='cluster.topology={nodes: [{name: a, kind: device}, {name: b, kind: device}], links: [{from: a, to: b, gbytes_per_s: 100, latency_us: %s}]}'
two='--set parallel.data.size=2 --set cluster.devices_per_node=2'
python3 -c "import sys; short, long = map(float, sys.argv[1:]); assert short < long, (short, long)" \
  "$(step_on $two --set "$(printf "$link" 0)")" "$(step_on $two --set "$(printf "$link" 1000)")" ||
  { echo "FAILED: a topology's latency within a node has no effect"; failures=$((failures + 1)); }
# What -q leaves of a prediction: that it does not fit.
expect 0 "^links: DOES NOT FIT in the device's 79.2 GiB" predict "$work/links.yaml" -q --set batch.micro=4096
[ -z "$("$windtunnel" predict "$work/links.yaml" -q 2>&1)" ] || { echo "FAILED: predict -q of a step that fits"; failures=$((failures + 1)); }
expect_line 2 'the stages would go through 400000 blocks' predict "$work/links.yaml" --set parallel.data.size=1 --set parallel.pipeline.size=8 \
  --set batch.accumulate=50000 --set model.layers=8

# A search finds what can be trained, the same after an interruption as without one, and nothing where nothing
# can be.
cat > "$work/search.yaml" << 'SCENARIO'
model: {layers: 4, hidden: 64, heads: 4, vocab: 128, seq_len: 32}
batch: {accumulate: 4}
precision: {param: bf16}
parallel: {data: {size: 4, kind: ddp}}
cluster: {device: a100-sxm-80g, devices_per_node: 4, network: {intra_node: nvlink3}}
search: {tensor: [1, 2], pipeline: [1, 2, 4], recompute: [none, full], kind: [ddp, zero1]}
SCENARIO
expect 0 'the fastest' search "$work/search.yaml" --top 3 --quick
set_of_best='--set model.layers=8 --set batch.accumulate=4 --set parallel.data.size=4 --set parallel.tensor.size=1'
expect 0 "the fastest again: windtunnel predict $work/search.yaml $set_of_best$" search "$work/search.yaml" --quick \
  --set model.layers=8 --set parallel.tensor.size=2 --set parallel.data.size=2 --set batch.accumulate=8
# The best configuration is predicted again, by the overrides that the search gives for it.
missed=0
"$windtunnel" search "$work/search.yaml" -q --json "$work/found.json" > /dev/null
python3 - "$windtunnel" "$work" << 'PYTHON' || missed=1
import json, subprocess, sys
windtunnel, work = sys.argv[1:]
best = json.load(open(work + "/found.json"))["best"]
words = [word for override in best["set"] for word in ("--set", override)]
subprocess.run([windtunnel, "predict", work + "/search.yaml", "-q", "--json", work + "/again.json"] + words, check=True)
again = json.load(open(work + "/again.json"))["predicted"]
found = json.load(open(work + "/found.json"))  # a small search: all that it names is predicted in full
assert all("memory" in one["predicted"] for one in found["pareto"] + found["top"])
assert again["step_time_s"]["p50"] == best["step_time_s"], (again["step_time_s"], best["step_time_s"])
quick = subprocess.run([windtunnel, "search", work + "/search.yaml", "-q", "--quick", "--json", "-"], check=True, capture_output=True)
assert all(one["predicted"]["tokens_per_s"] > 0 for one in json.loads(quick.stdout)["top"])
PYTHON
[ "$missed" = 0 ] || { echo 'FAILED: the best of a search is not its own prediction'; failures=$((failures + 1)); }
# Where groups share cards, results that are not predicted in full say so.
cat > "$work/experts.yaml" << 'SCENARIO'
model: {layers: 8, hidden: 1024, heads: 8, vocab: 128, seq_len: 512, experts: {count: 8, top_k: 2}}
batch: {accumulate: 64}
precision: {param: bf16}
parallel: {data: {size: 16, kind: zero1}, expert: {size: 8}}
cluster: {device: a100-sxm-80g, nodes: 4, devices_per_node: 4, network: {intra_node: nvlink3, inter_node: {kind: infiniband, gbits_per_nic: 50}, nics_per_node: 4}}
framework: megatron_core
search: {tensor: [1, 2], expert: [2, 4, 8], recompute: [none, full]}
SCENARIO
expect 0 '> : without what collectives of different groups take from each other on network cards' search "$work/experts.yaml"
# What fits by so little that a small error of the prediction would change it is marked.
cat > "$work/limit.yaml" << 'SCENARIO'
model: {preset: llama3-8b, seq_len: 5632}
precision: {param: bf16}
batch: {micro: 2}
framework: megatron_core
cluster: {device: h100-sxm-80g, network: dgx-h100}
parallel: {data: {kind: zero1, size: 4}, tensor: {size: 2}}
search: {recompute: [none, full]}
SCENARIO
expect 0 '  ! 78.* GiB .* zero1$' search "$work/limit.yaml"
expect 0 '! : at the limit of the device' search "$work/limit.yaml"
missed=0
python3 - "$windtunnel" "$work/experts.yaml" << 'PYTHON' || missed=1
import json, subprocess, sys
windtunnel, scenario = sys.argv[1:]
def run(*words):
    return json.loads(subprocess.run([windtunnel, *words, scenario, "-q", "--json", "-"], check=True, capture_output=True).stdout)
def is_bound(one):
    return one.get("step_time_is_lower_bound", False)
some, all_of_them = run("search"), run("search", "--full")
assert not is_bound(some["best"]) and any(map(is_bound, some["top"]))
assert not any(map(is_bound, all_of_them["pareto"] + all_of_them["top"]))
assert all("memory" in one["predicted"] for one in all_of_them["pareto"])
assert all_of_them["best"]["set"] == some["best"]["set"]
in_full = {one["configuration"]: one["step_time_s"] for one in all_of_them["top"]}
pairs = [(one["step_time_s"], in_full[one["configuration"]]) for one in some["top"] if one["configuration"] in in_full]
assert len(pairs) > 3 and all(bound <= full < 1.5 * bound for bound, full in pairs) and any(bound < full for bound, full in pairs), pairs
words = [word for override in all_of_them["top"][-1]["set"] for word in ("--set", override)]
assert run("predict", *words)["predicted"]["step_time_s"]["p50"] == all_of_them["top"][-1]["step_time_s"]
PYTHON
[ "$missed" = 0 ] || { echo 'FAILED: a search of what shares cards'; failures=$((failures + 1)); }
expect 1 'none of 20 legal configurations can be trained: 20 need more memory' search "$work/search.yaml" -q \
  --set model.seq_len=65536 --set batch.micro=1024 --set model.layers=4
without_times() { grep -v -e '"wall_s"' -e '"configurations_per.*s"' -e '"resumed"' -e '"full_s"' "$1"; }
"$windtunnel" search "$work/search.yaml" -q --json "$work/whole.json" --state "$work/state" > /dev/null
head -c "$(($(wc -c < "$work/state") / 2))" "$work/state" > "$work/half"
"$windtunnel" search "$work/search.yaml" -q --json "$work/resumed.json" --state "$work/half" > /dev/null
without_times "$work/whole.json" > "$work/whole.txt"
without_times "$work/resumed.json" > "$work/resumed.txt"
cmp "$work/whole.txt" "$work/resumed.txt" || failures=$((failures + 1))
grep -q '"resumed": 0,' "$work/resumed.json" && { echo "FAILED: nothing was resumed"; failures=$((failures + 1)); }
# Two processes of a job, each with its share of the search. The second one prints nothing.
as_rank() { OMPI_COMM_WORLD_RANK=$1 OMPI_COMM_WORLD_SIZE=2 "$windtunnel" search "$work/search.yaml" -q --state "$work/shared" --json "$2"; }
as_rank 1 - > "$work/second.txt" &
as_rank 0 "$work/gathered.json" > /dev/null
wait
without_times "$work/gathered.json" > "$work/gathered.txt"
cmp "$work/whole.txt" "$work/gathered.txt" || failures=$((failures + 1))
if [ -s "$work/second.txt" ]; then echo "FAILED: the second process reported"; failures=$((failures + 1)); fi
# Neighbours, which share what they are made of, are one process's.
more="--set search.micro=[1,2,4,8] --set search.recompute=[none,selective,full] --set search.overlap=[true,false]"
neighbours() { OMPI_COMM_WORLD_RANK=$1 OMPI_COMM_WORLD_SIZE=2 "$windtunnel" search "$work/search.yaml" -q --state "$work/neighbours" $more > "$work/neighbours.txt"; }
neighbours 1 &
neighbours 0
wait
missed=0
python3 - "$work/neighbours" << 'PYTHON' || missed=1
import sys
ids = [sorted(int(line.split()[0]) for line in open(sys.argv[1] + end).readlines()[1:]) for end in ("", ".1")]
runs = [sum(b != a + 1 for a, b in zip(one, one[1:])) + 1 for one in ids]
count = sum(map(len, ids))
assert count >= 64 and sorted(ids[0] + ids[1]) == list(range(count)), ids
assert max(runs) <= 10 and abs(len(ids[0]) - len(ids[1])) <= count // 16 + 1, (runs, ids)
PYTHON
[ "$missed" = 0 ] || { echo 'FAILED: the shares of two processes'; failures=$((failures + 1)); }
printf 'not a state' > "$work/other"
expect_line 2 "$work/other:1:1: is the state of another search" search "$work/search.yaml" -q --state "$work/other"
expect_line 2 "$work/state:1:1: is the state of another search" search "$work/search.yaml" -q \
  --state "$work/state" --set model.layers=8
# Nor does a search resume from a state file under other costs of the framework.
framework() { printf '{"schema": "windtunnel/framework/1", "name": "mine", "base": "windtunnel", "residuals": {"gemm": %s}, "sources": {}}' "$1"; }
framework 1.1 > "$work/framework.json"
expect 0 . search "$work/search.yaml" -q --state "$work/costed" --framework-profile "$work/framework.json"
framework 1.2 > "$work/framework.json"
expect_line 2 "$work/costed:1:1: is the state of another search" search "$work/search.yaml" -q --state "$work/costed" \
  --framework-profile "$work/framework.json"

row() {
  printf '{"id": "%s", "source": "x", "scenario": {"name": "%s", "model": {"kind": "mlp", "widths": [10, 100, 10]}, "batch": {"micro": 8}, ' "$1" "$1"
  printf '"cluster": {"device": "%s"}, "tolerance": {"step_time": %s}}, "measured": {"step_time_s": 1.0}}\n' "$2" "$3"
}
{ row tolerant a100-sxm-80g 1 && row unknown nonsense-gpu 1; } > "$work/tolerant.jsonl"
row strict a100-sxm-80g 0.1 > "$work/strict.jsonl"
expect 0 "refused: cluster.device is 'nonsense-gpu'" validate "$work/tolerant.jsonl"
expect 0 '^tolerant  *1  *1 ' validate "$work/tolerant.jsonl"
expect 3 '^strict .*step time .*-100.0 %' validate "$work/strict.jsonl"
expect 3 '"schema": "windtunnel/validation/1"' validate "$work/strict.jsonl" --json -

[ "$failures" = 0 ] && echo "all claims hold"
exit "$failures"
