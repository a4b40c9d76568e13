#!/bin/bash
# Checkpoints, weights of other programs, and evaluation, as a user meets them.
# Usage: checkpoint_test.sh BINARY READ_SAFETENSORS
set -u
source "$(dirname "$0")/begin.sh"
reader=$(realpath "$2")
cd "$work" || exit 1

fail() {
  echo "FAILED: $*"
  cat out.txt err.txt
  exit 1
}

cat > gpt.yaml << 'SCENARIO'
name: gpt
model: {layers: 2, hidden: 32, heads: 2, vocab: 256, seq_len: 32}
batch: {micro: 2}
parallel: {data: {kind: ddp, size: 2}}
cluster: {devices_per_node: 2}
optimizer: {kind: adamw, lr: 1e-2}
run: {warmup: 4, steps: 16}
SCENARIO

run() { "$windtunnel" run gpt.yaml --no-progress "$@" > out.txt 2> err.txt; }

# Training that diverges says so, even quietly, and takes no good checkpoint's place.
run -q --set optimizer.lr=1e30 || fail "a run that diverges ends"
grep -q 'windtunnel: the loss is not a number from step [0-9]* on: training has diverged' err.txt || fail "not said"
run --set run.steps=2 --checkpoint-dir diverged --checkpoint-every 3 || fail "before"
run -q --set optimizer.lr=1e30 --checkpoint-dir diverged --checkpoint-every 4 --resume && fail "it was saved"
grep -q "training has diverged: after step [0-9]* '.*' has values that are infinite or not numbers" err.txt || fail "why"
[ "$(ls diverged | grep step)" = "$(printf 'step_00000003\nstep_00000006')" ] || fail "$(ls diverged)"

# A run that is stopped and resumed ends like one that is not stopped.
run --checkpoint-dir whole --checkpoint-every 5 --checkpoint-keep 0 --json whole.json || fail "run"
mkdir stopped && cp -r whole/step_00000010 stopped/
run --checkpoint-dir stopped --resume || fail "resume"
cmp whole/step_00000020/rank_00000.safetensors stopped/step_00000020/rank_00000.safetensors || fail "not the same"
grep -q 'went on from step 10' out.txt || fail "the report does not say where it went on"
python3 - << 'PYTHON' || fail "the result"
import json
measured = json.load(open("whole.json"))["measured"]
assert [save["step"] for save in measured["checkpoints"]] == [5, 10, 15, 20]
assert all(save["time_s"] > 0 and save["bytes"] > 100_000 for save in measured["checkpoints"])
# Steps 5, 10 and 15 follow a save.
assert measured["steps_after_saves"] == 3 and measured["steps"] == len(measured["step_times_s"]) == 13
assert "first_step" not in measured
PYTHON

# Nothing is overwritten by accident; a run that has all its steps has nothing to do; a first run finds
# nothing to resume from.
run --checkpoint-dir whole && fail "another run's checkpoints were overwritten"
grep -q 'expected --resume' err.txt || fail "the message"
run --checkpoint-dir stopped --resume --eval --json done.json --trace none.json || fail "nothing left to do"
grep -q 'has all 20 steps' err.txt || fail "the message"
grep -q -e '--trace none.json is not written: there is no step to show' err.txt || fail "the word on the trace"
grep -q '"first_step": 20' done.json && grep -q perplexity done.json || fail "the result of an evaluation alone"
run --checkpoint-dir new --resume || fail "a first run with --resume"
grep -q 'beginning from step 0' err.txt || fail "the message"

# A checkpoint is not a directory of checkpoints: a run that saved into it would remove its contents.
for options in "--checkpoint-dir whole/step_00000020" "--resume --checkpoint-dir whole/step_00000020" "--export whole/step_00000020/"; do
  run $options
  [ $? = 2 ] && grep -q -e 'step_00000020.* is a checkpoint, expected another directory' err.txt || fail "$options"
done
# The checkpoint that was saved last exists, but its metadata do not.
cp -r whole torn && rm torn/step_00000020/metadata.json
run --checkpoint-dir torn --resume
[ $? = 2 ] && grep -q 'torn/step_00000020/metadata.json: is missing, though .*torn/latest names it' err.txt || fail "metadata that are gone"
for command in check show "export --out exported"; do
  "$windtunnel" checkpoint $command torn > out.txt 2> err.txt
  [ $? = 2 ] && grep -q 'torn/step_00000020/metadata.json: is missing' err.txt || fail "checkpoint $command without its metadata: $(cat out.txt)"
done
rm -r torn/step_00000020
run --checkpoint-dir torn --resume --set run.steps=12 || fail "a checkpoint that was taken away whole"
grep -q 'went on from step 15' out.txt || fail "the step before it"
rm -r torn/step_* && echo step_00000020 > torn/latest
run --checkpoint-dir torn --resume
[ $? = 2 ] && grep -q 'torn/step_00000020: is missing, though .*torn/latest names it, and there is no other' err.txt ||
  fail "no checkpoint left: $(cat err.txt)"
# Hugging Face's GPT-2 has biases, so no config.json describes one without.
run --export without_biases --set model.bias=false
[ $? = 2 ] && grep -q -e '--export: model.bias is false, expected true' err.txt || fail "an export without biases: $(cat err.txt)"
# Settings that differ in the resumed run are reported.
yes 'a text to train on ' | head -c 20000 > text.txt
run --resume-from whole/step_00000010 --set data=text.txt --set optimizer.lr=1e-3 --set run.steps=8 || fail "other data"
grep -q 'data is .*text.txt; until .*step_00000010 the run had synthetic' err.txt || fail "not a word on the data: $(cat err.txt)"
grep -q 'optimizer.lr is 0.001; until .*step_00000010 the run had 0.01' err.txt || fail "not a word on the rate: $(cat err.txt)"
# So is another text in the same file.
run --set data=text.txt --checkpoint-dir other_text || fail "a text"
yes 'a text to think of ' | head -c 20000 > text.txt
run --set data=text.txt --checkpoint-dir other_text --resume --set run.steps=40 || fail "another text"
grep -q 'data: .*text.txt has another text than the run had until .*other_text/step_' err.txt || fail "not a word on the text: $(cat err.txt)"
run --set data=text.txt --checkpoint-dir other_text --resume --set run.steps=41 || fail "the same text"
grep -q 'another text' err.txt && fail "the text is the same: $(cat err.txt)"
cp text.txt renamed.txt
run --set data=renamed.txt --checkpoint-dir other_text --resume --set run.steps=42 || fail "the same text by another name"
grep -q 'data is .*renamed.txt' err.txt && ! grep -q 'another text' err.txt || fail "it was only renamed: $(cat err.txt)"
# The first step of a resumed process is not measured.
run --resume-from whole/step_00000010 --checkpoint-dir every --checkpoint-every 1 --json every.json || fail "a checkpoint a step"
python3 - << 'PYTHON' || fail "steps that were measured"
import json
measured = json.load(open("every.json"))["measured"]
assert measured["steps"] == 10 and measured["steps_after_saves"] == 0, measured
PYTHON

# Ranks that save must see one directory, which is checked before they train.
mkdir n0 n1
next_port
(cd n1 && RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$windtunnel" run ../gpt.yaml -q --checkpoint-dir own > out.txt 2> err.txt) &
(cd n0 && RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$windtunnel" run ../gpt.yaml -q --checkpoint-dir own > ../out.txt 2> ../err.txt)
[ $? = 1 ] || fail "ranks that save in different directories"
wait $!
[ $? = 1 ] || fail "the other rank: $(cat n1/err.txt)"
grep -q 'rank 1 (.*n1/own on .*) does not see what rank 0 writes in .*n0/own on ' err.txt || fail "the message"
[ -z "$(ls -A n0/own | grep -v lock)" ] || fail "left in n0/own: $(ls -A n0/own)"

# Nor do two runs export into one directory.
"$windtunnel" run gpt.yaml --no-progress -q --export exported_twice --set run.steps=1000000 > /dev/null 2>&1 &
exporting=$!
for i in $(seq 200); do [ -d exported_twice/.checkpoint ] && break; sleep 0.05; done
run --export exported_twice
[ $? = 1 ] && grep -q -e '--export: .*exported_twice: another run writes there' err.txt || fail "two exports into one directory: $(cat err.txt)"
kill $exporting
wait $exporting

# Two runs do not save into one directory. A run that died no longer holds it.
"$windtunnel" run gpt.yaml --no-progress -q --checkpoint-dir busy --set run.steps=1000000 > /dev/null 2>&1 &
first=$!
for i in $(seq 200); do [ -s busy/.lock ] && break; sleep 0.05; done
run --checkpoint-dir busy
[ $? = 1 ] && grep -q -e "--checkpoint-dir: .*busy: another run saves its checkpoints there: process $first on " err.txt || fail "two runs in one directory"
kill -9 $first
wait $first 2> /dev/null
run --checkpoint-dir busy || fail "a directory whose run has died"
"$windtunnel" checkpoint export whole --out /dev/null/x > out.txt 2> err.txt
[ $? = 2 ] && grep -q -e '--out: /dev/null/x: cannot be written' err.txt || fail "an export that cannot be written"

# Resuming with another number of ranks, and with another strategy.
run --resume-from whole/step_00000010 --set parallel.data.size=1 --set parallel.data.kind=none --set batch.micro=4 \
  --set cluster.devices_per_node=1 || fail "two ranks to one"
run --resume-from whole/step_00000010 --set parallel.data.kind=fsdp || fail "ddp to fsdp"

# Damage is an error that names file and tensor, and counts as wrong input, which restarts cannot heal.
"$windtunnel" checkpoint check whole > out.txt 2> err.txt || fail "check"
cp -r whole/step_00000010 damaged
printf x | dd of=damaged/rank_00000.safetensors bs=1 seek=100000 conv=notrunc 2> /dev/null
"$windtunnel" checkpoint check damaged > out.txt 2> err.txt && fail "damage was not found"
grep -q "damaged/rank_00000.safetensors: tensor '.*' is damaged" err.txt || fail "the message"
run --resume-from damaged --max-restarts 2
[ $? = 2 ] || fail "a damaged checkpoint must give exit status 2"
grep -q "is damaged" err.txt || fail "the message"
grep -q "restart" err.txt && fail "restarted for nothing"

# Weights are exported and imported, also by way of a model made from the configuration that was exported with
# them.
run --export out || fail "export"
[ -e out/.checkpoint ] && fail "the checkpoint behind the export is left"
python3 "$reader" out/model.safetensors > tensors.txt || fail "another reader"
grep -q "transformer.h.1.attn.c_attn.weight \[32, 96\]" tensors.txt || fail "$(cat tensors.txt)"
cat > imported.yaml << 'SCENARIO'
name: imported
model: {config: out/config.json}
batch: {micro: 2}
optimizer: {kind: adamw, lr: 0}
run: {warmup: 4, steps: 2}
SCENARIO
"$windtunnel" run imported.yaml --no-progress --import out --export again > out.txt 2> err.txt || fail "import"
cmp out/model.safetensors again/model.safetensors || fail "weights changed, although nothing was learned"
"$windtunnel" checkpoint export whole --out exported > out.txt 2> err.txt || fail "checkpoint export"
python3 "$reader" exported/model.safetensors | cut -d' ' -f1 | cmp - <(cut -d' ' -f1 tensors.txt) || fail "other tensors"

# A mixture of experts is exported and imported under Mixtral's names.
mixtral=(--set model.norm=rmsnorm --set model.position=rope --set model.activation=swiglu --set model.bias=false --set model.ffn=128 --set model.tie_embeddings=false
         --set "model.experts={count: 4, top_k: 2, capacity_factor: 2}")
run "${mixtral[@]}" --export mixtral || fail "export of experts"
python3 "$reader" mixtral/model.safetensors > tensors.txt || fail "another reader of experts"
for tensor in "gate.weight \[4, 32\]" "experts.3.w1.weight \[128, 32\]" "experts.3.w2.weight \[32, 128\]" "experts.3.w3.weight \[128, 32\]"; do
  grep -q "model.layers.1.block_sparse_moe.$tensor" tensors.txt || fail "no $tensor in $(cat tensors.txt)"
done
sed -e 's|out/config.json|mixtral/config.json, experts: {count: 4, top_k: 2, capacity_factor: 2}|' imported.yaml > experts.yaml
"$windtunnel" run experts.yaml --no-progress --import mixtral --export again > out.txt 2> err.txt || fail "import of experts"
cmp mixtral/model.safetensors again/model.safetensors || fail "experts changed, although nothing was learned"
cmp mixtral/config.json again/config.json || fail "another configuration"
run "${mixtral[@]}" --set "model.experts={count: 4, top_k: 1}" --export refused && fail "Mixtral with one expert a token"
grep -q 'model.experts.top_k is 1, expected at least 2' err.txt || fail "the message"

# A model whose tensors have no names there is refused before the run. A run without a step left exports what
# it resumed from.
cat > mlp.yaml << 'SCENARIO'
model: {kind: mlp, widths: [8, 16, 8]}
batch: {micro: 4}
optimizer: {kind: sgd, lr: 1e-2}
run: {warmup: 0, steps: 3}
SCENARIO
"$windtunnel" run mlp.yaml --no-progress --export refused2 > out.txt 2> err.txt
[ $? = 2 ] && grep -q -e '--export: .*not of an MLP' err.txt || fail "export of an MLP"
grep -q 'step' err.txt && fail "an MLP was trained before its export was refused"
run --resume-from whole --export late || fail "export without a step left"
cmp late/model.safetensors exported/model.safetensors || fail "another export"
[ -e late/.checkpoint ] && fail "the checkpoint behind the export is left"
run --import out --export out && fail "weights were exported over those that were read"
grep -q -e '--export and --import are both out' err.txt || fail "the message"
# What an export that failed has left is not removed by the run that goes on from it.
mkdir failed
cp -r whole failed/.checkpoint
for from in failed/.checkpoint failed/.checkpoint/step_00000020/; do
  run --resume-from $from --export failed/
  [ $? = 2 ] && grep -q -e "--export: failed/ would lose $from, which --resume-from reads" err.txt || fail "an export over what is resumed: $(cat err.txt)"
  [ -e failed/.checkpoint/step_00000020/metadata.json ] || fail "the only checkpoint was removed"
done
run --resume-from failed/.checkpoint --export elsewhere || fail "what a failed export has left cannot be exported"

# A resumed run may add momentum. The newest checkpoint may be named by its directory, also together with that
# directory.
"$windtunnel" run mlp.yaml --no-progress --checkpoint-dir plain > out.txt 2> err.txt || fail "sgd"
"$windtunnel" run mlp.yaml --no-progress --resume-from plain --set run.steps=5 --set optimizer.momentum=0.9 > out.txt 2> err.txt || fail "momentum"
"$windtunnel" run mlp.yaml --no-progress --resume-from plain --checkpoint-dir plain --set run.steps=5 > out.txt 2> err.txt || fail "its own directory"

# A failed write ends the run, also where the other ranks are threads, or nobody kills them.
sed 's/hidden: 32/hidden: 256/; s/vocab: 256/vocab: 16384/; s/warmup: 4, steps: 16/warmup: 0, steps: 2/' gpt.yaml > large.yaml  # 69 MB
unwritable() { (trap '' XFSZ; ulimit -f 20000; timeout 60 "$windtunnel" run large.yaml --no-progress -q "$@" > out.txt 2>> err.txt); }
: > err.txt
unwritable --checkpoint-dir full --set parallel.data.kind=dp
[ $? = 1 ] && grep -q 'full/' err.txt || fail "threads whose first one cannot save"
next_port
export WORLD_SIZE=2 MASTER_PORT=$port
RANK=1 unwritable --checkpoint-dir full2 --set parallel.data.kind=fsdp &
RANK=0 timeout 60 "$windtunnel" run large.yaml --no-progress -q --checkpoint-dir full2 --set parallel.data.kind=fsdp > out.txt 2> first.txt
[ $? = 1 ] && grep -q 'step [0-9]* is not saved: rank 1: .*full2/.*File too large' first.txt || fail "a rank whose other one cannot save: $(cat first.txt)"
wait
unset WORLD_SIZE MASTER_PORT

# No output may be a file that is read.
echo 'a text to learn from, long enough for a few sequences of thirty-two bytes, and read by every run below' > book.txt
cp book.txt kept.txt
run --set data=book.txt --json book.txt && fail "the data were overwritten"
grep -q -e '--json is .*book.txt, which data reads' err.txt && cmp book.txt kept.txt || fail "the data"
cp out/config.json config.json
"$windtunnel" predict imported.yaml --set model.config=config.json --json config.json > out.txt 2> err.txt
[ $? = 2 ] && grep -q 'which model.config reads' err.txt && cmp out/config.json config.json || fail "the configuration"
for variables in "RANK=1 WORLD_SIZE=2" "RANK=0"; do
  env $variables "$windtunnel" predict gpt.yaml --json gpt.yaml > out.txt 2> err.txt
  [ $? = 2 ] && grep -q 'which the command reads' err.txt || fail "predict as $variables"
done
run --checkpoint-dir "$(printf 'ck\xe9')" && fail "a path that is no text"
grep -q -e '--checkpoint-dir: the path .* is not UTF-8' err.txt || fail "the message"

# Evaluation on the last tenth of a text: what is learned helps there.
for i in $(seq 300); do echo "line $i of a text that repeats itself"; done > text.txt
run --set data=text.txt --eval --json early.json || fail "eval"
run --set data=text.txt --set run.steps=150 --eval --json late.json || fail "eval"
grep -q 'evaluation: loss .* perplexity' out.txt || fail "no evaluation in the table"
python3 - << 'PYTHON' || fail "the evaluation"
import json, math, os
early, late = (json.load(open(name))["measured"]["evaluation"] for name in ("early.json", "late.json"))
sequences = (os.path.getsize("text.txt") - 1) // 32
assert late["sequences"] == sequences // 10 // 4 * 4, late
assert late["loss"] < 0.7 * early["loss"], (early, late)
assert math.isclose(late["perplexity"], math.exp(late["loss"]), rel_tol=1e-9)
PYTHON
# DataParallel's threads evaluate the same weights to the same loss.
run --set data=text.txt --checkpoint-dir evaluated --eval --json processes.json || fail "eval"
run --set data=text.txt --set parallel.data.kind=dp --resume-from evaluated --eval --json threads.json || fail "eval of dp"
python3 - << 'PYTHON' || fail "DataParallel's evaluation is not DDP's"
import json, math
processes, threads = (json.load(open(name))["measured"]["evaluation"] for name in ("processes.json", "threads.json"))
assert processes["sequences"] == threads["sequences"], (processes, threads)
assert math.isclose(processes["loss"], threads["loss"], rel_tol=1e-5), (processes, threads)
PYTHON
head -c 400 text.txt > short.txt
run --set data=short.txt --eval && fail "nothing is held out of so short a text"
grep -q 'holds out 1 sequences, expected 4 at least' err.txt || fail "the message"
echo "all claims hold"
