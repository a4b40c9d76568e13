#!/bin/bash
# Takes every measurement that a GPU machine can give, from binaries built beforehand: needs neither Bazel nor a network.
#
#   bench/gpu_campaign.sh OUT_DIR [--stage single|multi|bench|peer|rates] [--cases REGEX] [--device cuda|cpu] [--profile FILE] [--seconds N]
#
# Without --stage all of them run, one after the other; each takes less than nine minutes or --seconds (it skips what it has no time for,
# and says so), all of them less than twenty-two. Of the cases of single, multi and peer, --cases takes those whose names match. OUT_DIR is
# left with
#
#   h200-sxm-141g.json        the profile (single; named after the device), unless --profile names another
#   single/NAME.json          compare's result of every scenario on one rank, and the trace of some (.trace.json.gz)
#   multi/NAME.json           the same of ranks that share the GPU, by profiles of their own (multi/profile*.json); losses.txt, hang.txt
#   bench/*.json              Google Benchmark: products, attention, launches, all-reduce, all-gather, reduce-scatter; operators.log: kernels checked
#   peer/NAME.json            PyTorch on the same models: step time and peak memory; and as trainers write models (trainer_*), with kernels
#   rates.json                what PyTorch's products and attention sustain in shapes of large models
#   log.txt, skipped.txt      what was run, and what was not
#
# in all at most 60 MB (traces go first). Each scenario is calibrated, predicted and then run, so that what is cut short has all three of what
# came first. --device cpu is a rehearsal: small scenarios on the CPU in the places of the GPU's, a minute or so.
set -u

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname "$here")
out=
stages=
device=cuda
profile=
seconds=
chosen=.
while [ $# -gt 0 ]; do
  case $1 in
    --stage) stages=${2:?--stage needs a name}; shift 2 ;;
    --device) device=${2:?--device needs cuda or cpu}; shift 2 ;;
    --profile) profile=${2:?--profile needs a file}; shift 2 ;;
    --cases) chosen=${2:?--cases needs a regular expression}; shift 2 ;;
    --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
    -h | --help) sed -n '2,23s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "gpu_campaign: unknown option $1" >&2; exit 2 ;;
    *) out=$1; shift ;;
  esac
done
[ -n "$out" ] || { echo "gpu_campaign: where to? gpu_campaign.sh OUT_DIR [--stage NAME] [--device cpu]" >&2; exit 2; }
case $device in cuda | cpu) ;; *) echo "gpu_campaign: --device is cuda or cpu, not $device" >&2; exit 2 ;; esac
stages=${stages:-single multi bench peer rates}
for stage in $stages; do
  case $stage in single | multi | bench | peer | rates) ;; *) echo "gpu_campaign: no stage $stage" >&2; exit 2 ;; esac
done
mkdir -p "$out" || exit 1
out=$(CDPATH= cd -- "$out" && pwd)

# Binaries lie beside the scripts when packed (bench/pack_gpu_binaries.sh), else in Bazel's output.
find_binary() {
  for candidate in "$root/bin/$(basename "$1")" "$root/bazel-bin/$1"; do
    [ -x "$candidate" ] && { echo "$candidate"; return; }
  done
}
windtunnel=$(find_binary windtunnel)
gpu_bench=$(find_binary bench/gpu_bench)
operator_test=$(find_binary tests/runtime/cuda/device_operator_test)
[ -n "$windtunnel" ] || { echo "gpu_campaign: no windtunnel in $root/bin or $root/bazel-bin" >&2; exit 1; }
# The libraries that were packed are for our binaries only: PyTorch has its own.
ours=()
[ -d "$root/lib" ] && ours=(env "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$root/lib")
export XDG_CACHE_HOME="$out/.cache"

say() { echo "$(date -u +%H:%M:%S) $*" | tee -a "$out/log.txt"; }
skip() { say "skipped: $*"; echo "$*" >>"$out/skipped.txt"; }

stage_end=0
time_left() { [ "$(date +%s)" -lt "$stage_end" ]; }
left() { local seconds=$((stage_end - $(date +%s))); echo $((seconds > 10 ? seconds : 10)); }

# run NAME COMMAND…: runs within the time left of the stage. Exit status 3 is a prediction outside its
# tolerance, which is a result.
run() {
  local name=$1; shift
  if ! time_left; then skip "$name: no time left in this stage"; return 1; fi
  local begin=$SECONDS
  timeout "$(left)" "$@" >>"$out/log.txt" 2>&1
  local status=$?
  case $status in
    0) say "$name: $((SECONDS - begin)) s" ;;
    3) say "$name: $((SECONDS - begin)) s, outside its tolerance" ;;
    *) skip "$name: exit status $status after $((SECONDS - begin)) s: $(tail -n 1 "$out/log.txt")" ; return 1 ;;
  esac
}

# Lines NAME SCENARIO WORDS…: the cases that one rank trains. About 16,384 tokens a step, so that no kernel is
# too small to time, except in two cases.
single_cases() {
  if [ "$device" = cpu ]; then
    echo "gpt_seq64 gpt_1rank --set model.seq_len=64 --set run.steps=5"
    echo "gpt_seq128 gpt_1rank --set run.steps=5"
    return
  fi
  local length model
  # The length that all models share comes first, so that a campaign that is cut short has it.
  for length in 1024 2048 4096 512; do
    for model in gpt2_124m gpt2_355m gpt2_774m gpt2_1p5b llama_1b; do
      echo "${model}_seq$length ${model}_1xcuda --set model.seq_len=$length --set batch.micro=$((16384 / length))"
    done
    [ $length = 1024 ] || continue
    # Steps of single sequences, in which launching shows, and the same steps as graphs.
    local graphs
    for graphs in false true; do
      echo "gpt2_124m_single_graphs_$graphs gpt2_124m_1xcuda --set model.seq_len=512 --set batch.micro=1 --set run.cuda_graphs=$graphs"
    done
    # The MFU at the largest micro-batch that fits is taken for the 1.5B model.
    echo "gpt2_1p5b_largest gpt2_1p5b_1xcuda --set batch.micro=$(largest_micro gpt2_1p5b_1xcuda) --set run.steps=10"
    # Attention by Windtunnel's own kernels instead of cuDNN's.
    echo "gpt2_1p5b_deterministic gpt2_1p5b_1xcuda --set batch.micro=16 --set run.deterministic=true"
    # Dropout, which is in the same kernels.
    for model in gpt2_124m gpt2_1p5b; do
      echo "${model}_dropout ${model}_1xcuda --set batch.micro=16 --set model.dropout=0.1"
    done
  done
}
# The largest even micro-batch of a scenario that is predicted to fit the device's kind, by its datasheet; 16
# for kinds without a datasheet.
largest_micro() {
  local kind micro
  case $(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1) in
    *H100*) kind=h100-sxm-80g ;;
    *H200*) kind=h200-sxm-141g ;;
    *) echo 16; return ;;
  esac
  for micro in $(seq 64 -2 2); do
    "${ours[@]}" "$windtunnel" predict "$(file_of "$1")" --profile $kind --set batch.micro=$micro -q --json - 2>/dev/null |
      grep -q '"fits": *true' && break
  done
  echo $micro
}
multi_cases() {
  if [ "$device" = cpu ]; then
    echo "ddp_2ranks ddp_gpt_2rank --set run.steps=5"
    echo "offload_2ranks fsdp_gpt_2rank_offload --set run.steps=5"
  else
    echo "ddp_2ranks ddp_gpt2_124m_2xcuda --set run.steps=10"
    echo "fsdp_4ranks fsdp_gpt2_124m_4xcuda --set run.steps=10"
    echo "offload_2ranks fsdp_gpt2_124m_4xcuda --set parallel.data.size=2 --set parallel.data.offload=param \
--set cluster.devices_per_node=2 --set batch.micro=8 --set run.steps=5"
  fi
}
# Ranks that are threads of one process. Their kernels run side by side where those of processes take turns, so they have a profile of their own.
thread_cases() {
  if [ "$device" = cpu ]; then
    echo "dp_2ranks dp_gpt_2threads --set run.steps=5"
  else
    echo "dp_2ranks ddp_gpt2_124m_2xcuda --set parallel.data.kind=dp --set run.steps=5"
  fi
}
file_of() { echo "$root/scenarios/$1.yaml"; }

# Measures whatever the profile lacks, predicts the step from the profile, and then runs the step.
compare_cases() {  # compare_cases FOLDER PROFILE <cases
  local folder=$1 costs=$2 name scenario words
  mkdir -p "$out/$folder"
  while read -r name scenario words; do
    [[ $name =~ $chosen ]] || continue
    local trace=()
    case $name in *seq1024 | *seq128 | *ranks) trace=(--trace "$out/$folder/$name.trace.json") ;; esac
    # shellcheck disable=SC2086
    run "calibrate $name" "${ours[@]}" "$windtunnel" calibrate "$(file_of "$scenario")" $words --out "$costs" --no-progress || continue
    # shellcheck disable=SC2086
    run "$folder $name" "${ours[@]}" "$windtunnel" compare "$(file_of "$scenario")" $words --profile "$costs" --no-progress \
      --json "$out/$folder/$name.json" "${trace[@]}"
    [ -e "$out/$folder/$name.trace.json" ] && gzip -f "$out/$folder/$name.trace.json"
  done
}

single() {
  local costs=${profile:-$out/new-profile.json}
  [ -n "$profile" ] || rm -f "$costs"
  compare_cases single "$costs" < <(single_cases)
  [ -z "$profile" ] && [ -e "$costs" ] || return
  # The profile is named after its device.
  local own
  own=$(sed -n 's/^ *"name": *"\([^"]*\)".*/\1/p' "$costs" | tail -n 1)
  mv "$costs" "$out/${own:-profile}.json"
}

# Stops a rank in the middle of a run, and records what the other rank reports.
hang() {
  local scenario=ddp_gpt2_124m_2xcuda job rank
  [ "$device" = cpu ] && scenario=ddp_gpt_2rank
  time_left || { skip "hang: no time left in this stage"; return; }
  "${ours[@]}" "$windtunnel" run "$(file_of $scenario)" --set run.steps=100000 --collective-timeout 5 --no-progress -q \
    >"$out/multi/hang.txt" 2>&1 &
  job=$!
  sleep 8
  rank=$(pgrep -P $job | tail -n 1)
  [ -n "$rank" ] && kill -STOP "$rank"
  for _ in $(seq 30); do kill -0 $job 2>/dev/null && sleep 1; done
  kill $job 2>/dev/null
  [ -n "$rank" ] && kill -CONT "$rank" 2>/dev/null
  wait $job 2>/dev/null
  say "hang: $(tail -n 1 "$out/multi/hang.txt")"
}

multi() {
  local cases costs
  mkdir -p "$out/multi"
  for cases in multi_cases thread_cases; do
    costs="$out/multi/profile.json"
    [ $cases = thread_cases ] && costs="$out/multi/profile_threads.json"
    rm -f "$costs"
    compare_cases multi "$costs" < <($cases)
  done
  # The same data on one rank.
  local alone=gpt2_124m_1xcuda same=()
  [ "$device" = cpu ] && { alone=gpt_1rank; same=(--set batch.micro=8); }
  run "one rank" "${ours[@]}" "$windtunnel" run "$(file_of "$alone")" "${same[@]}" --set run.steps=5 --no-progress \
    --json "$out/multi/one_rank.json"
  command -v python3 >/dev/null && python3 "$here/compare_losses.py" "$out/multi/one_rank.json" \
    $(ls "$out"/multi/*ranks.json 2>/dev/null) | tee "$out/multi/losses.txt"
  hang
}

bench() {
  mkdir -p "$out/bench"
  if [ "$device" = cpu ]; then skip "bench: its benchmarks are the GPU's"; return; fi
  [ -n "$operator_test" ] && run "operators" "${ours[@]}" sh -c "'$operator_test' >'$out/bench/operators.log' 2>&1"
  [ -n "$gpu_bench" ] || { skip "bench: no gpu_bench"; return; }
  run "products" "${ours[@]}" "$gpu_bench" --benchmark_out="$out/bench/products.json" --benchmark_out_format=json
  local ranks
  for ranks in 2 4; do
    run "collectives of $ranks ranks" "${ours[@]}" "$gpu_bench" --ranks=$ranks --benchmark_out="$out/bench/collectives_$ranks.json" \
      --benchmark_out_format=json
  done
  if command -v nvidia-cuda-mps-control >/dev/null; then
    export CUDA_MPS_PIPE_DIRECTORY="$out/.mps" CUDA_MPS_LOG_DIRECTORY="$out/.mps"
    mkdir -p "$out/.mps"
    if nvidia-cuda-mps-control -d >>"$out/log.txt" 2>&1; then
      run "collectives of 2 ranks under MPS" "${ours[@]}" "$gpu_bench" --ranks=2 --benchmark_out="$out/bench/collectives_2_mps.json" \
        --benchmark_out_format=json
      echo quit | nvidia-cuda-mps-control >>"$out/log.txt" 2>&1
    else
      skip "collectives under MPS: its server does not start"
    fi
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  fi
  # cuDNN orders its accesses to shared memory in ways that racecheck does not know.
  command -v compute-sanitizer >/dev/null && [ -n "$operator_test" ] &&
    for tool in memcheck racecheck initcheck; do
      run "operators under $tool" "${ours[@]}" sh -c "compute-sanitizer --tool $tool --kernel-name-exclude kns=cudnn \
        --error-exitcode 9 '$operator_test' --gtest_filter='*IsTheCpuDevices/Small*' >'$out/bench/sanitizer_$tool.log' 2>&1"
    done
}

peer() {
  mkdir -p "$out/peer"
  if ! python3 -c 'import torch' 2>/dev/null; then skip "peer: no PyTorch here"; return; fi
  if [ "$device" = cpu ]; then
    run "peer gpt" python3 "$here/peer_pytorch.py" --device cpu --model gpt --layers 2 --hidden 128 --heads 4 --ffn 512 \
      --vocab 512 --seq 64 --micro 2 --steps 3 --json "$out/peer/gpt.json"
    return
  fi
  local gpt="--model gpt --vocab 50304" llama="--model llama" name words
  while read -r name words; do
    [[ $name =~ $chosen ]] || continue
    # shellcheck disable=SC2086
    run "peer $name" python3 "$here/peer_pytorch.py" --device cuda $words --json "$out/peer/$name.json"
  done <<EOF
gpt2_124m_seq1024_eager $gpt --layers 12 --hidden 768 --heads 12 --ffn 3072 --seq 1024 --micro 16
gpt2_355m_seq1024_eager $gpt --layers 24 --hidden 1024 --heads 16 --ffn 4096 --seq 1024 --micro 16
gpt2_774m_seq1024_eager $gpt --layers 36 --hidden 1280 --heads 20 --ffn 5120 --seq 1024 --micro 16
gpt2_1p5b_seq1024_eager $gpt --layers 48 --hidden 1600 --heads 25 --ffn 6400 --seq 1024 --micro 16
gpt2_124m_dropout_eager $gpt --layers 12 --hidden 768 --heads 12 --ffn 3072 --seq 1024 --micro 16 --dropout 0.1
gpt2_1p5b_dropout_eager $gpt --layers 48 --hidden 1600 --heads 25 --ffn 6400 --seq 1024 --micro 16 --dropout 0.1
llama_1b_seq1024_eager $llama --vocab 32000 --layers 16 --hidden 2048 --heads 32 --kv_heads 8 --ffn 8192 --seq 1024 --micro 16
$(trainers)
gpt2_124m_seq1024_fsdp $gpt --layers 12 --hidden 768 --heads 12 --ffn 3072 --seq 1024 --micro 16 --mode fsdp
gpt2_1p5b_seq1024_fsdp $gpt --layers 48 --hidden 1600 --heads 25 --ffn 6400 --seq 1024 --micro 16 --mode fsdp
EOF
}
# Cases that `framework: pytorch` and `pytorch_compile` predict: few layers of large models, and steps so
# small that the host bounds them.
trainers() {
  local small="--steps 12 --warmup 4 --style trainer --kernels" eight="--vocab 128256 --untied --layers 6 --hidden 4096 --heads 32 --kv_heads 8 --ffn 14336"
  local seventy="--vocab 32000 --untied --layers 2 --hidden 8192 --heads 64 --kv_heads 8 --ffn 28672 --seq 4096 --micro 2"
  local one="--vocab 32000 --layers 16 --hidden 2048 --heads 32 --kv_heads 8 --ffn 8192"
  cat <<EOF
trainer_llama_8b_6layers $llama $eight --seq 8192 --micro 1 $small
trainer_llama_8b_6layers_compile $llama $eight --seq 8192 --micro 1 $small --compile
trainer_llama_1b $llama $one --seq 2048 --micro 8 $small
trainer_llama_1b_compile $llama $one --seq 2048 --micro 8 $small --compile
trainer_gpt2_1p5b $gpt --layers 48 --hidden 1600 --heads 25 --ffn 6400 --seq 1024 --micro 8 $small
trainer_gpt2_124m $gpt --layers 12 --hidden 768 --heads 12 --ffn 3072 --seq 1024 --micro 16 $small
trainer_gpt2_124m_compile $gpt --layers 12 --hidden 768 --heads 12 --ffn 3072 --seq 1024 --micro 16 $small --compile
trainer_llama_70b_2layers $llama $seventy $small
trainer_llama_1b_tiny $llama $one --seq 64 --micro 1 $small
trainer_gpt2_124m_tiny $gpt --layers 12 --hidden 768 --heads 12 --ffn 3072 --seq 64 --micro 1 $small
trainer_llama_8b_6layers_fsdp $llama $eight --seq 8192 --micro 1 $small --mode fsdp
EOF
}

rates() {
  if [ "$device" = cpu ]; then skip "rates: they are the GPU's"; return; fi
  if ! python3 -c 'import torch' 2>/dev/null; then skip "rates: no PyTorch here"; return; fi
  run "rates" python3 "$here/torch_rates.py" --json "$out/rates.json"
}

say "stages: $stages on $device; $("${ours[@]}" "$windtunnel" --version)"
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader \
  >>"$out/log.txt" 2>&1
# A missing device is reported once, not for every scenario.
if [ "$device" = cuda ]; then
  missing=$("${ours[@]}" "$windtunnel" run "$(file_of gpt2_124m_1xcuda)" --set run.steps=1 --set run.warmup=1 --set batch.micro=1 -q 2>&1 >/dev/null) ||
    { say "nothing can be measured: $missing"; exit 1; }
fi
for stage in $stages; do
  # A single stage gets nine minutes less what it needs to end. If all stages run, none may take the time that
  # the next ones need.
  case $stages in *\ *) case $stage in single) budget=640 ;; *) budget=150 ;; esac ;; *) budget=500 ;; esac
  budget=${seconds:-$budget}
  stage_end=$(($(date +%s) + budget))
  say "$stage"
  $stage
done
rm -rf "$out/.cache" "$out/.mps"
limit=$((60 * 1000 * 1000))
size() { du -sb "$out" | cut -f 1; }
if [ "$(size)" -gt $limit ]; then
  ls -S "$out"/*/*.trace.json.gz 2>/dev/null | while read -r trace; do
    [ "$(size)" -gt $limit ] && { skip "$trace: removed, $out would be larger than 60 MB"; rm -f "$trace"; }
  done
fi
say "done: $(du -sh "$out" | cut -f 1) in $out"
