#!/bin/sh
# Messages about wrong input: before any work is done, with the place or the option, and a line for each
# mistake.
# Usage: messages_test.sh BINARY
set -u
windtunnel=$(realpath "$1")
. "$(realpath "$(dirname "$0")")/expect.sh"
work=${TEST_TMPDIR:?}
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
cd "$work" || exit 1

cat > gpt.yaml << 'SCENARIO'
model: {layers: 2, hidden: 64, heads: 4, vocab: 256, seq_len: 32}
batch: {micro: 2}
precision: {param: bf16}
cluster: {device: a100-sxm-80g, network: {intra_node: nvlink3}}
run: {warmup: 1, steps: 1}
SCENARIO
printf 'model: {layers: 2, hidden: 64, heads: 4, vocab: 256, seq_len: 32}\nrun: {warmup: 1, steps: 1}\n' > cpu.yaml
mkdir folder.csv folder

# A prediction that is known to be a lower bound says so.
expect_line 0 'the optimizer on the host is predicted at .* the least' predict gpt.yaml \
  --set 'parallel.data={kind: fsdp, size: 2, offload: optimizer}'

# A directory, or nothing, where a file is expected.
expect_line 2 '^cpu.yaml:1:1: data: /tmp: is a directory, expected a text file\|^windtunnel: --set data=/tmp: data: /tmp: is a directory' \
  run cpu.yaml --set data=/tmp
expect_line 2 '^windtunnel: --state: folder: cannot be written (Is a directory)' \
  search gpt.yaml --set 'search={recompute: [none, full]}' --state folder
expect_line 2 'folder: is a directory, expected a hardware profile' predict gpt.yaml --profile "$work/folder"
expect_line 2 'folder.csv: is a directory, expected a pipeline schedule' predict gpt.yaml \
  --set parallel.pipeline.size=2 --set parallel.pipeline.schedule=folder.csv
: > empty.jsonl
expect_line 2 'empty.jsonl:1:1: has no rows' validate empty.jsonl
printf '{"schema": 1,\n  oops' > framework.json
expect_line 2 'framework.json:2:3: is not JSON, expected a framework profile$' predict gpt.yaml --framework-profile framework.json

# All mistakes, a line each.
printf 'model: {preset: gpt2-124m}\nbatch: {micro: few}\nparalel: {}\n' > mistakes.yaml
expect 2 "^mistakes.yaml:2:16: batch.micro is 'few'" predict mistakes.yaml
expect 2 "^mistakes.yaml:3:1: unknown key 'paralel'" predict mistakes.yaml
expect 2 '^windtunnel: --set run.steps=-1: run.steps is' predict gpt.yaml --set batch.micro=few --set run.steps=-1
expect 2 '^windtunnel: --set other: there is no' predict gpt.yaml --set nothing --set other
expect 2 '^windtunnel: --set batch.micro=few: batch.micro is' predict gpt.yaml --set batch.micro=few --set run.steps=-1

# The place of a key whose value only the plan or the device's costs refuse.
cat > late.yaml << 'SCENARIO'
model: {layers: 4, hidden: 64, heads: 4, vocab: 256, seq_len: 32}
parallel:
  data: {kind: fsdp, size: 2, wrap: ["blocks.9"]}
cluster:
  device: h100
SCENARIO
expect_line 2 '^late.yaml:3:.*: parallel.data.wrap' predict late.yaml
expect_line 2 "^late.yaml:5:11: cluster.device is 'h100'.*did you mean 'h100-sxm-80g'" predict late.yaml --set parallel.data.wrap=block
expect_line 2 '--set parallel.pipeline.schedule=1f1b: parallel.pipeline.schedule: .*at least as many micro-batches' \
  predict gpt.yaml --set parallel.pipeline.size=2 --set parallel.pipeline.schedule=1f1b
expect_line 2 '^gpt.yaml:4:.*: cluster.network.inter_node names no bandwidth' predict gpt.yaml \
  --set parallel.data.size=2 --set cluster.nodes=2
expect_line 2 "did you mean 'h100-sxm-80g'" predict gpt.yaml --profile h100
for meant in 'a100 a100-sxm-80g' '4090 rtx-4090-24g' 'RTX4090 rtx-4090-24g' 'v100-32gb v100-sxm2-32g' 'a10 a10g-24g' 'l40 l40s-48g'; do
  expect_line 2 "did you mean '${meant#* }'" predict gpt.yaml --profile "${meant% *}"
done

# Outputs are checked before the work, not after it.
for option in --json --html --trace --svg; do
  expect_line 2 "^windtunnel: $option: /nonexist/x: cannot be written (No such file or directory)" predict gpt.yaml $option /nonexist/x
  expect_line 2 "^windtunnel: $option: /nonexist/x: cannot be written" run cpu.yaml $option /nonexist/x
done
expect_line 2 '^windtunnel: --json: folder: cannot be written (Is a directory)' predict gpt.yaml --json folder
for option in --checkpoint-dir --export --tensorboard; do
  expect_line 2 "^windtunnel: $option: /proc/x: cannot be written" run cpu.yaml $option /proc/x
done
expect_line 2 '^windtunnel: --out: /proc/x/profile.json: cannot be written' calibrate cpu.yaml --out /proc/x/profile.json
expect_line 2 '^windtunnel: --out is -, expected a file' calibrate cpu.yaml --out -
expect_line 2 '^windtunnel: --framework-profile changes nothing that is measured' calibrate cpu.yaml --framework-profile x.json
expect_line 2 '^windtunnel: --steps is given, expected no scenario beside it (cpu.yaml)' calibrate cpu.yaml --steps row.jsonl --out x
expect_line 2 '^windtunnel: --json is gpt.yaml, which the command reads' predict gpt.yaml --json gpt.yaml
expect_line 2 'which the command reads' predict gpt.yaml --html ./gpt.yaml
expect_line 2 '^windtunnel: --json and --html are both x, expected different files' predict gpt.yaml --json x --html x
expect_line 2 '^windtunnel: --json is empty' predict gpt.yaml --json ''
expect_line 2 '^windtunnel: --svg: /dev/null/x: cannot be written' validate empty.jsonl --svg /dev/null/x
[ -e x ] && { echo 'FAILED: a file was left behind'; failures=$((failures + 1)); }
expect_line 2 '^windtunnel: --out: /nonexist/x: cannot be written' profile merge a100-sxm-80g --out /nonexist/x
printf '{"id": "a", "scenario": {"model": {"preset": "gpt2-124m"}, "cluster": {"device": "a100-sxm-80g"}}, "measured": {"mfu": 0.3}}\n' > row.jsonl
expect_line 2 "^windtunnel: --set nosuch=3: unknown key 'nosuch'" validate row.jsonl --set nosuch=3 -q
expect_line 2 '^windtunnel: a.nb.yaml: cannot be read' predict "$(printf 'a\nb.yaml')"
mkdir beside
printf '{"model": {"preset": "gpt2-124m"}, "cluster": {"device": "mine.json"}}' > beside/s.yaml
expect_line 2 "^beside/s.yaml:1:58: cluster.device: .*beside/mine.json: cannot be read" predict beside/s.yaml
expect_line 2 '^windtunnel: empty.jsonl is given twice, expected each file of rows once' validate empty.jsonl empty.jsonl
expect_line 2 '^windtunnel: ./row.jsonl is given twice, expected each file of rows once' validate row.jsonl ./row.jsonl
printf '{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128,
"vocab_size": 256, "max_position_embeddings": 32}' > config.json
printf '{"id": "a", "scenario": {"model": {"config": "config.json"}}, "measured": {"mfu": 0.3}}\n' > configured.jsonl
expect_line 2 '^windtunnel: --svg is config.json, which model.config reads' validate configured.jsonl --svg config.json
printf 'model: {layers: 2, hidden: 64, heads: 4, vocab: 256, seq_len: 32}\ndata: nothing\n' > data.yaml
for command in run compare calibrate; do
  expect_line 2 '^data.yaml:2:7: data: .*/nothing: cannot be read' $command data.yaml
done
expect_line 2 'search.schedule: .*nothing.csv: cannot be read' search gpt.yaml --set 'search={schedule: [nothing.csv]}'
expect_line 2 '^windtunnel: --set parallel.pipeline.schedule=no.csv: parallel.pipeline.schedule: .*no.csv: cannot be read' \
  predict gpt.yaml --set parallel.pipeline.size=2 --set parallel.pipeline.schedule=no.csv
expect_line 2 'parallel.pipeline.schedule: .*no.csv: cannot be read' \
  search gpt.yaml --set parallel.pipeline.size=2 --set parallel.pipeline.schedule=no.csv --set 'search={micro: [1]}'
printf '0F0,0B0\n' > short.csv
expect_line 2 'in 1 .*short.csv:2:1: 1 rows, but a row for each' \
  search gpt.yaml --set parallel.pipeline.size=2 --set parallel.pipeline.virtual_stages=1 --set 'search={schedule: [short.csv]}'
expect_line 2 "unknown key 'parallelism', whose keys are elsewhere here: tensor_parallel_degree is 'parallel.tensor.size'" \
  predict gpt.yaml --set parallelism.tensor_parallel_degree=2
expect_line 2 "no profile named 'nonsense'" explain gpt.yaml --memory --profile nonsense
expect_line 2 "cluster.device is 'h100' .did you mean 'h100-sxm-80g'?., expected" explain gpt.yaml --memory --set cluster.device=h100
expect_line 2 '^windtunnel: ./row.jsonl is given twice' calibrate --steps row.jsonl ./row.jsonl --out fitted.json
# A link to a file that is not there yet is written through.
ln -s target.json link.json
"$windtunnel" predict gpt.yaml -q --json link.json > out 2> err && [ -s target.json ] && [ -L link.json ] ||
  { echo "FAILED: a dangling link: $(cat err)"; failures=$((failures + 1)); }
expect_line 2 '--memory excludes --json' explain gpt.yaml --json x --memory
expect_line 2 '--resolved excludes --trace' explain gpt.yaml --trace x --resolved
expect_line 2 '--memory excludes --schedule\|--schedule excludes --memory' explain gpt.yaml --memory --schedule
expect_line 2 'parallel.pipeline.size is 1, expected at least 2: without a pipeline' explain gpt.yaml --schedule

# A schedule is printed as a scenario takes it.
"$windtunnel" explain gpt.yaml --schedule --set parallel.pipeline.size=2 --set parallel.pipeline.schedule=zb_h1 \
  --set batch.accumulate=3 > zb.csv || fail 'explain --schedule'
[ "$(cat zb.csv)" = '0F0,0F1,0I0,0W0,0F2,0I1,0W1,0I2,0W2
1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2' ] || fail "explain --schedule: $(cat zb.csv)"
"$windtunnel" explain gpt.yaml --schedule --set parallel.pipeline.size=2 --set parallel.pipeline.schedule=zb.csv \
  --set batch.accumulate=3 | cmp - zb.csv || fail 'explain --schedule of a file'
for command in compare calibrate; do
  RANK=0 WORLD_SIZE=2 expect_line 2 "^windtunnel: torchrun has started 2 processes of .windtunnel $command., all of which" $command cpu.yaml
done
RANK=0 WORLD_SIZE=1 expect_line 2 '^windtunnel: --out: /proc/x/profile.json: cannot be written' calibrate cpu.yaml --out /proc/x/profile.json
RANK=0 WORLD_SIZE=1 expect_line 2 '^windtunnel: --max-restarts is 2, but torchrun has started .*(torchrun --max-restarts 2 …)' \
  run cpu.yaml --max-restarts 2
SLURM_PROCID=0 SLURM_NTASKS=2 expect_line 2 '^windtunnel: --max-restarts is 2, but srun has started .*: start .* once, without srun' \
  run cpu.yaml --max-restarts 2
printf 'kept' > kept.json
expect_line 2 'cannot be written' predict gpt.yaml --json kept.json --svg /nonexist/x
[ "$(cat kept.json)" = kept ] || { echo 'FAILED: a file was emptied'; failures=$((failures + 1)); }

printf '{"model_type": "gpt2",' > broken.json
expect_line 2 'broken.json:[0-9:]* not valid JSON (.*), expected one object' predict gpt.yaml --set model='{config: broken.json}'
printf '{"id": "a", "scenario": {"model": {"preset": "gpt2-124m"}, "cluster": {"device": "a100-sxm-80g"}}, "measured": {"mfu": 44.1}}\n' > percent.jsonl
expect_line 2 'percent.jsonl:1.*measured.mfu is 44.1, expected a fraction, at most 1' validate percent.jsonl

# A disk that is full leaves what was there, and nothing beside it.
mkdir results
printf '{"kept": true}' > results/r.json
output=$(bash -c "trap '' XFSZ; ulimit -f 1; exec '$windtunnel' predict gpt.yaml -q --json results/r.json" 2>&1)
found=$?
[ $found = 1 ] && [ "$(cat results/r.json)" = '{"kept": true}' ] && [ "$(ls -A results)" = r.json ] || {
  echo "FAILED: a full disk: exit status $found: $output: $(ls -A results)"; failures=$((failures + 1)); }

# Links and pipes are written through.
ln -s r.json results/link.json
"$windtunnel" predict gpt.yaml -q --json results/link.json 2> /dev/null
[ -L results/link.json ] && grep -q '"predicted"' results/r.json || { echo 'FAILED: a link was replaced'; failures=$((failures + 1)); }
"$windtunnel" predict gpt.yaml -q --json /dev/stdout 2> /dev/null | grep -q '"predicted"' || { echo 'FAILED: /dev/stdout'; failures=$((failures + 1)); }
"$windtunnel" predict gpt.yaml -q --json /dev/stdout > stdout.json 2> /dev/null
grep -q '"predicted"' stdout.json || { echo 'FAILED: /dev/stdout of a file'; failures=$((failures + 1)); }

# A file that may not grow is an error, and not the end by a signal.
mkdir small
output=$(TMPDIR=$work/small bash -c "ulimit -f 0; exec '$windtunnel' run cpu.yaml -q" 2>&1)
found=$?
[ $found = 1 ] && echo "$output" | grep -q 'cannot be written' || { echo "FAILED: ulimit -f 0: exit status $found: $output"; failures=$((failures + 1)); }
[ -z "$(ls small)" ] || { echo "FAILED: ulimit -f 0 leaves $(ls small)"; failures=$((failures + 1)); }

# Exhausted memory is no end by a signal, either. (Sanitizers take more memory than that to begin with.)
output=$(bash -c "ulimit -v 1500000; exec '$windtunnel' predict cpu.yaml -q --set model.layers=20000" 2>&1)
found=$?
[ $found = 1 ] && echo "$output" | grep -q "^windtunnel: this machine's memory is exhausted" || echo "$output" | grep -q Sanitizer || { echo "FAILED: ulimit -v: exit status $found: $output"; failures=$((failures + 1)); }

# What a search has found is reported all the same.
cat > stages.yaml << 'YAML'
model: {preset: llama3-8b}
batch: {micro: 1, accumulate: 2048}
parallel: {pipeline: {size: 8, schedule: 1f1b}}
cluster: {device: h200-sxm-141g, devices_per_node: 8}
search: {micro: [1]}
YAML
output=$(bash -c "ulimit -v 700000; exec '$windtunnel' search stages.yaml" 2>&1)
found=$?
[ $found = 0 ] && echo "$output" | grep -q 'has no memory to predict it in full' && echo "$output" | grep -q 'the fastest again' ||
  echo "$output" | grep -q Sanitizer || { echo "FAILED: search, ulimit -v: exit status $found: $output"; failures=$((failures + 1)); }

# What fits only by giving back cached memory in every step is left out, unless nothing else is left. Of more micro-batches than can be
# simulated operator by operator, what is composed is reported.
cat > tight.yaml << 'SCENARIO'
model: {preset: qwen2.5-7b, seq_len: 8192}
batch: {micro: 1, accumulate: 4}
precision: {param: bf16}
parallel: {data: {kind: fsdp, size: 16}}
cluster: {device: h100-sxm-80g, nodes: 2, devices_per_node: 8, network: dgx-h100}
framework: pytorch
search: {context: [1, 2], micro: [1, 2], recompute: [none, selective_op]}
SCENARIO
found() {
  python3 -c 'import json, sys; r = json.load(open("tight.json")); print(r["tight"], r["best"]["batch"]["micro"], r["best"]["parallel"]["context"]["size"])'
}
expect 0 '1 fit only by giving back cached memory in every step' search tight.yaml --json tight.json
[ "$(found)" = "1 1 1" ] || { echo "FAILED: search, one is too tight: $(found)"; failures=$((failures + 1)); }
expect 0 'x context 2, micro 2 x 4' search tight.yaml --json tight.json --set 'search={context: [2], micro: [2]}'
[ "$(found)" = "1 2 2" ] || { echo "FAILED: search, all are too tight: $(found)"; failures=$((failures + 1)); }
cat > large.yaml << 'YAML'
model: {layers: 64, hidden: 1024, heads: 16, vocab: 32000, seq_len: 512}
batch: {micro: 1, accumulate: 4096}
parallel: {pipeline: {size: 64, schedule: 1f1b}}
cluster: {device: h100-sxm-80g, nodes: 8, devices_per_node: 8, network: dgx-h100}
search: {micro: [1]}
YAML
expect 0 'the stages would go through 262144 blocks .*; what is said of it is composed' search large.yaml
expect 0 'too large for predict: batch.accumulate is 4096: the stages would go through 262144 blocks' search large.yaml

# Where nothing fits, the search names what needs the least memory, whatever the order of the ranges:
# recomputation.
for order in '[none, full]' '[full, none]'; do
  output=$("$windtunnel" search stages.yaml --set cluster.device=a100-sxm-40g --set batch.micro=64 --set 'search.micro=[64]' --set batch.accumulate=8 \
    --set "search.recompute=$order" --json least.json 2>&1)
  [ $? = 1 ] && echo "$output" | grep -q 'the least memory is .*, with .*recompute full' && grep -q '"least"' least.json ||
    { echo "FAILED: search, nothing fits, $order: $output"; failures=$((failures + 1)); }
done

# Wrong inputs of a run: no rank dies of them. Nor do several nodes meet for what none of them can run.
expect_line 2 "cluster.device: 'a100-sxm-80g' is not at hand" run gpt.yaml --set parallel.data.kind=ddp --set parallel.data.size=2 \
  --set cluster.nodes=2
for command in run compare calibrate; do
  expect_line 1 '^windtunnel: cpu: needs [0-9.]* [KMGTPE]iB of memory (. rank.*, at most .* each), and this machine has .*GiB; `windtunnel explain --memory` says what for' \
    $command cpu.yaml --set model.hidden=1000000
done
expect_line 2 '100000 ranks would share this machine.s cores ([0-9]*), expected at most 64 on each' run cpu.yaml --set parallel.data.size=100000
expect_line 2 '^windtunnel: --set data=/nofile: data: /nofile: cannot be read (No such file or directory)' run cpu.yaml --set data=/nofile
expect_line 2 '^windtunnel: --set data=/dev/zero: data: /dev/zero: is a character device, expected a text file' run cpu.yaml --set data=/dev/zero
mkfifo pipe
expect_line 2 'data: .*pipe: is a pipe, expected a text file' run cpu.yaml --set data=pipe
expect_line 2 '^windtunnel: nosuch.json: cannot be read .*, expected a hardware profile' run cpu.yaml --profile nosuch.json
expect_line 2 '^windtunnel: nosuch.json: cannot be read .*, expected a framework profile' run cpu.yaml --profile h100-sxm-80g \
  --framework-profile nosuch.json
expect_line 2 '^windtunnel: --import: /nofile' run cpu.yaml --import /nofile
expect_line 2 '^windtunnel: --resume-from: ' run cpu.yaml --resume-from /nofile
# Errors that only a rank can find: no operator is blamed for them.
"$windtunnel" run cpu.yaml -q --checkpoint-dir saved > /dev/null || { echo 'FAILED: a run with checkpoints'; failures=$((failures + 1)); }
# Nothing is measured if the result could not be kept.
XDG_CACHE_HOME=$work/gpt.yaml expect_line 2 'measured costs: .*/gpt.yaml/windtunnel: cannot be written (Not a directory)' compare cpu.yaml
expect_line 2 '^windtunnel: rank 0 exited with status 2: model.hidden is 32, but .* was saved with' run cpu.yaml --set model.hidden=32 --resume-from saved

# What the shell gives: a TMPDIR that is no directory, and standard streams that are closed or full.
had_tmpdir=${TMPDIR-}
export TMPDIR
for TMPDIR in /nofile "$work/cpu.yaml"; do
  expect_line 2 "^windtunnel: TMPDIR is '$TMPDIR', expected a directory" run cpu.yaml
done
TMPDIR=
expect 0 '' run cpu.yaml -q
TMPDIR=$had_tmpdir
[ -n "$TMPDIR" ] || unset TMPDIR
status_is() {
  [ "$2" = "$1" ] || { echo "FAILED: $3: exit status $2, expected $1"; failures=$((failures + 1)); }
}
"$windtunnel" run cpu.yaml -q 0<&-
status_is 0 $? 'standard input closed'
"$windtunnel" run cpu.yaml 2>&- > run.out
status_is 0 $? 'standard error closed'
grep -q 'a step' run.out || { echo 'FAILED: no table'; failures=$((failures + 1)); }
"$windtunnel" run nosuch.yaml 0<&- 1>&- 2>&-
status_is 2 $? 'all closed'
"$windtunnel" run nosuch.yaml 2> /dev/full
status_is 2 $? 'standard error full'

# Rows.
row() {
  printf '{"id": "a", "scenario": {"model": {"preset": "gpt2-124m"}, "cluster": {"device": "%s"}}, "measured": {"%s": 1}}\n' "$1" "$2"
}
row a100-sxm-80g stp_time_s > misspelt.jsonl
expect_line 2 "^misspelt.jsonl:1:1: unknown key 'measured.stp_time_s', did you mean 'measured.step_time_s'" validate misspelt.jsonl
row nonsense step_time_s > refused.jsonl
expect 3 "refused: cluster.device is 'nonsense'" validate refused.jsonl
printf '\n{"id": "a", "scenario": {}, "measured": {"mfu": 1}}\n' > place.jsonl
expect 3 'place.jsonl:2:1: model is missing' validate place.jsonl

# A search that cannot find anything says so at once.
expect_line 2 'search: none of 1 combinations is legal: in 1 .*$' search gpt.yaml --set 'search={tensor: [3]}' \
  --set cluster.devices_per_node=3 --set parallel.data.size=3
expect_line 2 "cluster.device is 'cpu', whose profile .* can predict neither" search cpu.yaml --set 'search={recompute: [none, full]}'

# A standard output that takes nothing.
for command in "completion bash" "--help" "list" "predict gpt.yaml" "predict gpt.yaml --json -" "explain gpt.yaml --resolved" \
  "profile show a100-sxm-80g"; do
  "$windtunnel" $command >&- 2> err.txt
  [ $? = 2 ] && grep -q 'standard output is closed, expected a file, a pipe or a terminal' err.txt ||
    { echo "FAILED: $command >&-: $(cat err.txt)"; failures=$((failures + 1)); }
  "$windtunnel" $command > /dev/full 2> err.txt
  [ $? = 1 ] && [ "$(cat err.txt)" = 'windtunnel: cannot write to standard output: No space left on device' ] || { echo "FAILED: $command > /dev/full: $(cat err.txt)"; failures=$((failures + 1)); }
done
expect_line 2 'nan is not a finite number' run gpt.yaml --collective-timeout nan

# A file that never ends; more devices than a rack links; keys of the scenario that the costs do not follow.
expect_line 2 '^windtunnel: /dev/zero: is longer than 1 GiB, expected a scenario file$' predict /dev/zero
expect_line 2 'cluster.devices_per_node is 144, expected at most 72: so many gb200-nvl72-186g are linked in a node$' predict gpt.yaml \
  --set cluster.device=gb200-nvl72-186g --set cluster.network.intra_node=nvlink5 --set cluster.devices_per_node=144 --set parallel.data.kind=ddp --set parallel.data.size=144
expect 0 "^windtunnel: costs are h100-sxm-80g's, which --profile names, and the cluster's device is a100-sxm-80g$" \
  predict gpt.yaml --profile h100-sxm-80g
expect 0 "^windtunnel: run.backend changes nothing here: collectives of a100-sxm-80g are predicted as NCCL's$" \
  predict gpt.yaml --set run.backend=gloo --set parallel.data.kind=ddp --set parallel.data.size=2 --set cluster.devices_per_node=2
expect 0 '^windtunnel: 16 devices of a node are taken to be joined by nvlink3; systems of a100-sxm-80g have 8 (cluster.nodes, cluster.devices_per_node)$' \
  predict gpt.yaml --set parallel.data.kind=ddp --set parallel.data.size=16 --set cluster.devices_per_node=16
expect 0 '^windtunnel: devices of a node are joined by pcie4, as cluster.network says; a100-sxm-80g has nvlink3$' \
  predict gpt.yaml --set cluster.network.intra_node=pcie4 --set parallel.data.kind=ddp --set parallel.data.size=2 --set cluster.devices_per_node=2
expect 0 '^windtunnel: nodes of 4 are taken to be joined by the network; nvlink5 joins up to 72 gb200-nvl72-186g of a rack' \
  predict gpt.yaml --set cluster.device=gb200-nvl72-186g --set cluster.network=gb200-nvl72 --set parallel.data.kind=ddp --set parallel.data.size=8 --set cluster.devices_per_node=4 --set cluster.nodes=2
silent_dgx2=$("$windtunnel" predict gpt.yaml --set cluster.device=v100-sxm2-32g --set cluster.network=dgx-2 --set precision.param=fp32 \
  --set precision.compute=fp16 --set parallel.data.kind=ddp --set parallel.data.size=16 --set cluster.devices_per_node=16 2>&1 > /dev/null | grep 'devices of a node')
[ -z "$silent_dgx2" ] || { echo "FAILED: a DGX-2 is in doubt: $silent_dgx2"; failures=$((failures + 1)); }
for topology in '' '--set cluster.topology=infiniband-8x200g'; do
  expect 2 'cluster.devices_per_node is 16, expected at most 8 for nvlink2_mesh: larger nodes have switches' \
    predict gpt.yaml --set cluster.device=v100-sxm2-32g --set cluster.network.intra_node=nvlink2_mesh --set precision.param=fp32 --set precision.compute=fp16 \
    --set parallel.data.kind=ddp --set parallel.data.size=16 --set cluster.devices_per_node=16 $topology
done
four_cards='--set parallel.data.kind=ddp --set parallel.data.size=4 --set cluster.devices_per_node=4'
expect 0 '^windtunnel: 4 devices of a node are taken to be joined by 300 GB/s, all of them; NVLink bridges of a100-pcie-80g join pairs' \
  predict gpt.yaml --set cluster.device=a100-pcie-80g --set cluster.network.intra_node.gbytes_per_s=300 $four_cards
expect 0 "^windtunnel: large GEMMs are taken to reach 65 % of b200-sxm-180g's peak; on some machines they reach 50 %, and a step of GEMMs alone takes 31 % longer" \
  predict gpt.yaml --set cluster.device=b200-sxm-180g
expect 0 '^windtunnel: how fast t4-16g computes attention is a guess' \
  predict gpt.yaml --set cluster.device=t4-16g --set precision.param=fp32 --set precision.compute=fp16
"$windtunnel" predict gpt.yaml 2>&1 > /dev/null | grep . && { echo "FAILED: a note for nothing"; failures=$((failures + 1)); }

# Whoever reads the table may stop: the result is there.
"$windtunnel" predict gpt.yaml --json early.json 2> /dev/null | true
"$windtunnel" predict gpt.yaml --json late.json > /dev/null 2>&1
[ "$(grep -c step_time_s early.json)" = "$(grep -c step_time_s late.json)" ] ||
  { echo "FAILED: a closed pipe lost the result"; failures=$((failures + 1)); }
"$windtunnel" validate refused.jsonl --json rows.json --svg rows.svg 2> /dev/null | true
[ -s rows.json ] && [ -s rows.svg ] || { echo "FAILED: a closed pipe lost the comparison"; failures=$((failures + 1)); }
# A search that is interrupted before it evaluates says so. (5,000 combinations of 60 ranges' values take seconds.)
"$windtunnel" search gpt.yaml --set 'search={tensor: [1, 2, 4, 8], pipeline: [1, 2, 4, 8], micro: [1, 2, 4, 8, 16, 32], context: [1, 2, 4, 8], kind: [ddp, zero1, zero2, zero3, fsdp], recompute: [none, full], uneven: [false, true], sequence: [false, true], overlap: [false, true]}' \
  -q > out.txt 2> err.txt & searching=$!
for i in $(seq 100); do  # until it has its own answer to SIGINT
  grep -q 'SigCgt:.*[2367abef]$' /proc/$searching/status 2> /dev/null && break
  sleep 0.02
done
kill -INT $searching
wait $searching
status=$?
{ [ $status = 1 ] && grep -q '^windtunnel: interrupted' err.txt; } || [ $status = 0 ] ||
  { echo "FAILED: an interrupted search: $status, $(cat err.txt)"; failures=$((failures + 1)); }

# What a search does not compose is named.
slow='^windtunnel: predicted operator by operator, .* of a large model:'
expect 0 "$slow cluster.jitter$" search gpt.yaml --set cluster.jitter=0.1 --set 'search={micro: [1, 2]}'
expect 0 "$slow recompute_every$" search gpt.yaml --set recompute_every=2 --set 'search={recompute: [none, full]}'
expect 0 "$slow zero2$" search gpt.yaml --set 'search={kind: [zero1, zero2], data: [2]}' --set cluster.devices_per_node=2 \
  --set parallel.data.kind=ddp --set parallel.data.size=2
"$windtunnel" search gpt.yaml --set 'search={micro: [1, 2]}' 2>&1 | grep "$slow" && { echo 'FAILED: a search is said to be slow'; failures=$((failures + 1)); }

# Numbers and help.
expect_line 2 "'-1' is not a whole number from 0 to 9223372036854775807" predict gpt.yaml --seed -1
expect_line 2 "'abc' is not a whole number" predict gpt.yaml --seed abc
expect_line 2 'top: Value abc not in range 1 to 1000000' search gpt.yaml --top abc
for command in predict run explain search; do
  "$windtunnel" $command --help | grep -q -e 'SCENARIO\.\.\.' -e 'SCENARIO \.\.\.' -e 'KEY=VALUE \.\.\.' &&
    { echo "FAILED: the help of $command offers several"; failures=$((failures + 1)); }
done
expect 0 'exit status 3' profile check --help
expect_line 2 "^windtunnel: unknown option '--foo' (see .windtunnel run --help.)$" run --foo
expect_line 2 "^windtunnel: unknown option '--jsn', did you mean '--json'? (see" predict gpt.yaml --jsn x
expect_line 2 "^windtunnel: unknown subcommand 'nope', expected show, merge or check (see" profile nope gpt.yaml
expect 0 '^Usage: windtunnel run ' --help run
expect 0 'cluster.jitter is for predictions only: no live run has it' \
  run cpu.yaml --set cluster.jitter=0.1
expect_line 2 "unknown key 'surprise', expected name" predict gpt.yaml --set surprise=1
expect_line 2 "unknown key 'cluster.straggler.rank:5': a value begins with a space behind the colon, as in 'rank: 5'" \
  predict gpt.yaml --set 'cluster.straggler={rank:5, slowdown: 1.5}'

[ "$failures" = 0 ] && echo "all claims hold"
