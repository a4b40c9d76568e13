#!/bin/sh
# `import`: from a launch script to a prediction, from a command behind --, and what it asks for.
# Usage: import_test.sh BINARY
set -u
windtunnel=$(realpath "$1")
. "$(realpath "$(dirname "$0")")/expect.sh"
work=${TEST_TMPDIR:?}
cd "$work" || exit 1

cat > train.sh << 'SCRIPT'
#!/bin/bash
GPUS=8
ARGS="--num-layers 4 --hidden-size 1024 --num-attention-heads 16 --seq-length 512 --micro-batch-size 2
      --vocab-size 50257 --bf16 --use-distributed-optimizer --overlap-grad-reduce"
torchrun --nproc_per_node $GPUS --nnodes 1 pretrain_gpt.py $ARGS --tensor-model-parallel-size $TP
SCRIPT
cat > ds_config.json << 'CONFIG'
{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1}
CONFIG

# A script becomes a file that predict takes.
expect 0 '' import train.sh --set cluster.device=h100-sxm-80g --define TP=2 --out s.yaml
expect 0 'data 4 (zero1)' predict s.yaml
expect 0 '^    size: 2  *# --tensor-model-parallel-size$' import train.sh --set cluster.device=h100-sxm-80g --define TP=2
# A command behind --, with options that this program has, too.
expect 0 '^  devices_per_node: 4  *# --nproc_per_node$' import --set cluster.device=h100-sxm-80g -- \
  torchrun --nproc_per_node 4 --nnodes 1 pretrain_gpt.py --num-layers 2 --hidden-size 256 --num-attention-heads 4 \
  --seq-length 128 --micro-batch-size 1 --vocab-size 512 --seed 3
# Paths given to --set count from here, wherever the file is written.
mkdir -p written && touch device.json words.txt
echo '{"schema": "windtunnel/framework/1", "base": "megatron_core"}' > framework.json
expect 0 '' import train.sh --define TP=2 --set cluster.device=device.json --set framework=framework.json \
  --set data=words.txt --out written/s.yaml
for name in device.json framework.json words.txt; do
  grep -q ": $(pwd -P)/$name " written/s.yaml || { echo "FAILED: $name: $(cat written/s.yaml)"; failures=$((failures + 1)); }
done
# What predict refuses is not written: two micro-batches for each of eight ranks are more than eight.
cat > v.toml << 'CONFIG'
[model]
name = "llama3"
flavor = "8B"
[parallelism]
pipeline_parallel_degree = 8
pipeline_parallel_schedule = "DualPipeV"
CONFIG
expect_line 2 '^windtunnel: the scenario of v.toml: parallel.pipeline.schedule: pipeline schedule dualpipe_v needs' \
  import v.toml --set cluster.device=h100-sxm-80g --set cluster.nodes=1 --set cluster.devices_per_node=8 --out v.yaml
[ ! -e v.yaml ] || { echo "FAILED: v.yaml was written"; failures=$((failures + 1)); }
# The program is known by the file's ending, or said.
expect 0 '^framework: pytorch  ' import ds_config.json --set model.preset=llama3-8b --set cluster.nodes=1 \
  --set cluster.devices_per_node=8 --set cluster.device=h100-sxm-80g
cp ds_config.json config.txt
expect 0 '^framework: pytorch  ' import config.txt --from deepspeed --set model.preset=llama3-8b --set cluster.nodes=1 \
  --set cluster.devices_per_node=8 --set cluster.device=h100-sxm-80g

expect_line 2 '^windtunnel: train.sh: --tensor-model-parallel-size is .\$TP., which is not known here, expected --define TP=VALUE$' \
  import train.sh --set cluster.device=h100-sxm-80g
expect_line 2 'the device is not said, expected --set cluster.device=NAME' import train.sh --define TP=2
expect_line 2 'expected either a file or a command behind --' import
expect_line 2 'expected either a file or a command behind --' import train.sh -- torchrun
# Files that a command names are read from the current directory, or beside the script.
mkdir -p job && cat > job/accelerate.yaml << 'CONFIG'
distributed_type: FSDP
fsdp_config: {fsdp_version: 2, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP}
mixed_precision: bf16
num_processes: 4
CONFIG
printf 'model_name_or_path: gpt2\nblock_size: 512\n' > recipe.yaml
echo 'accelerate launch --config_file accelerate.yaml run_clm.py --config recipe.yaml' > job/run.sh
expect 0 '^    size: 4  *# the ranks that are left$' import job/run.sh --set cluster.device=h100-sxm-80g
expect 0 '^  preset: gpt2-124m ' import recipe.yaml --set cluster.device=h100-sxm-80g --set cluster.nodes=1 --set cluster.devices_per_node=2
expect_line 2 "^windtunnel: the command: --config_file is 'none.yaml': none.yaml: cannot be read" import \
  --set cluster.device=h100-sxm-80g --set cluster.nodes=1 --set cluster.devices_per_node=2 -- accelerate launch \
  --config_file none.yaml run_clm.py --model_name_or_path gpt2 --block_size 512
expect_line 2 '^windtunnel: --from deepspeed: a command can only be' import --from deepspeed -- torchrun --a
expect_line 2 '^windtunnel: --define TP: expected NAME=VALUE' import train.sh --define TP
expect_line 2 'missing.sh: cannot be read' import missing.sh
expect_line 2 'which the command reads, expected another file' import train.sh --out train.sh

[ "$failures" = 0 ] && echo "all claims hold"
