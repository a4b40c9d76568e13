#!/bin/bash
# Every strategy trains alike over gloo and mpi, whoever launches its ranks: windtunnel, mpirun, something with torchrun's variables or
# Slurm's, a launcher on each of several nodes. And whatever keeps ranks from finding each other is named.
# Usage: launchers_test.sh BINARY
set -u
source "$(dirname "$0")/begin.sh"
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

cat > "$work/gpt.yaml" << 'SCENARIO'
name: gpt
model: {layers: 4, hidden: 64, heads: 4, vocab: 256, seq_len: 64, attention: flash}
batch: {micro: 2}
cluster: {devices_per_node: 2}
run: {warmup: 2, steps: 3}
SCENARIO

# losses FILE: the losses of all steps, from the standard output of `run -q --json -`.
losses() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["measured"]["losses"])' "$1"; }
run=("$windtunnel" run "$work/gpt.yaml" -q --json -)
mpirun=(mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2)

# find_ranks PATTERN LAUNCHER…: sets $ranks to the two processes of that name that these launchers have
# started.
find_ranks() {
  pattern=$1
  shift
  ranks=$(for parent in "$@"; do pgrep -P "$parent" -f "$pattern"; done)
  [ "$(echo "$ranks" | wc -w)" = 2 ] || fail "no two ranks: $ranks"
}

# expect_losses WHAT: the losses of the run whose output is in $work/out are the reference's.
expect_losses() {
  if [ "$(losses "$work/out")" != "$reference" ]; then
    fail "$1: losses $(losses "$work/out"), expected $reference; $(cat "$work/err")"
  fi
}

strategies=(
  "parallel.data={kind: ddp, size: 2}"
  "parallel.data={kind: zero1, size: 2}"
  "parallel.data={kind: zero2, size: 2}"
  "parallel.data={kind: fsdp, size: 2, version: 2}"
  "parallel.tensor={size: 2, sequence: true}"
  "parallel.context={size: 2}"
  "parallel.pipeline={size: 2, schedule: 1f1b}"
)
for strategy in "${strategies[@]}"; do
  set=(--set "$strategy")
  case $strategy in *pipeline*) set+=(--set batch.accumulate=4) ;; esac
  "${run[@]}" "${set[@]}" > "$work/out" 2> "$work/err"
  reference=$(losses "$work/out")
  [ -n "$reference" ] || fail "$strategy over gloo: $(cat "$work/err")"
  "${run[@]}" "${set[@]}" --set run.backend=mpi > "$work/out" 2> "$work/err"
  expect_losses "$strategy over mpi"
  "${mpirun[@]}" "${run[@]}" "${set[@]}" --set run.backend=mpi > "$work/out" 2> "$work/err"
  expect_losses "$strategy over mpi, under mpirun"
done

# Experts, to which tokens are sent and back, on four ranks.
set=(--set "parallel.data={kind: ddp, size: 4}" --set parallel.expert.size=2 --set "model.experts={count: 4, top_k: 2}"
     --set cluster.devices_per_node=4)
"${run[@]}" "${set[@]}" > "$work/out" 2> "$work/err"
reference=$(losses "$work/out")
[ -n "$reference" ] || fail "experts over gloo: $(cat "$work/err")"
"${run[@]}" "${set[@]}" --set run.backend=mpi > "$work/out" 2> "$work/err"
expect_losses "experts over mpi"

# DDP under every other launcher of ranks.
set=(--set "parallel.data={kind: ddp, size: 2}")
"${run[@]}" "${set[@]}" > "$work/out" 2> "$work/err"
reference=$(losses "$work/out")
"${mpirun[@]}" "${run[@]}" "${set[@]}" > "$work/out" 2> "$work/err"
expect_losses "gloo under mpirun"

# by_hand VARIABLES-OF-RANK… -- OPTIONS: starts one rank for each word "NAME=VALUE,NAME=VALUE", all together.
by_hand() {
  local ranks=() rank=0
  while [ "$1" != -- ]; do ranks+=("$1"); shift; done
  shift
  for variables in "${ranks[@]}"; do
    IFS=, read -ra list <<< "$variables"
    env "${list[@]}" "${run[@]}" "${set[@]}" "$@" > "$work/out$rank" 2> "$work/err$rank" &
    rank=$((rank + 1))
  done
  wait
  cp "$work/out0" "$work/out"
  cat "$work"/err? > "$work/err"
}
next_port
by_hand RANK={0,1},WORLD_SIZE=2,MASTER_PORT=$port -- 
expect_losses "torchrun's variables"
[ -s "$work/out1" ] && fail "rank 1 reports: $(cat "$work/out1")"
by_hand SLURM_PROCID=0,SLURM_LOCALID=0,SLURM_NTASKS=2,SLURM_NODELIST=localhost,SLURM_JOB_ID=8$$ \
  SLURM_PROCID=1,SLURM_LOCALID=1,SLURM_NTASKS=2,SLURM_NODELIST=localhost,SLURM_JOB_ID=8$$ --
expect_losses "Slurm's variables"

# The job's --ntasks-per-node is a step's maximum. Rank 0 calls itself by another name than others do.
slurm=SLURM_NTASKS=2,SLURM_NTASKS_PER_NODE=4,SLURM_STEP_TASKS_PER_NODE=2,SLURM_NODELIST=localhost,SLURM_JOB_ID=7$$
by_hand SLURM_PROCID=0,SLURM_LOCALID=0,$slurm SLURM_PROCID=1,SLURM_LOCALID=1,$slurm --
expect_losses "Slurm's --ntasks-per-node"
next_port
by_hand RANK=0,WORLD_SIZE=2,MASTER_ADDR=localhost,MASTER_PORT=$port RANK=1,WORLD_SIZE=2,MASTER_ADDR=127.0.0.2,MASTER_PORT=$port --
expect_losses "two names of one machine"

by_hand RANK={0,1},WORLD_SIZE=2,MASTER_PORT=$port,GLOO_SOCKET_IFNAME=lo --
expect_losses "an interface by its name"
by_hand RANK={0,1},WORLD_SIZE=2,MASTER_PORT=$port,GLOO_SOCKET_IFNAME=nowhere0 --
grep -q "GLOO_SOCKET_IFNAME is 'nowhere0', expected an interface" "$work/err" || fail "an interface that is not there: $(cat "$work/err")"

# torchrun restarts a job: it resumes from its own newest checkpoint, not from the one that it began with.
"${run[@]}" "${set[@]}" --checkpoint-dir "$work/begun" > /dev/null 2> "$work/err" || fail "the checkpoint to begin with"
next_port
by_hand RANK={0,1},WORLD_SIZE=2,MASTER_PORT=$port -- --resume-from "$work/begun" --checkpoint-dir "$work/goes_on" --set run.steps=6
next_port
by_hand RANK={0,1},WORLD_SIZE=2,MASTER_PORT=$port,TORCHELASTIC_RESTART_COUNT=1 -- --resume-from "$work/begun" \
  --checkpoint-dir "$work/goes_on" --set run.steps=8
python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["measured"]["first_step"] == 8' "$work/out" ||
  fail "a job that is begun again: $(cat "$work/err")"

# Asked to resume if there is a checkpoint, ranks agree whether there is one, whichever rank sees none.
for seen in 0 1; do
  next_port
  mkdir -p "$work/empty$seen"
  directories=("$work/begun" "$work/empty$seen")
  RANK=1 WORLD_SIZE=2 MASTER_PORT=$port "${run[@]}" "${set[@]}" --resume --checkpoint-dir "${directories[1 - seen]}" \
    --set run.steps=8 > "$work/out1" 2> "$work/err1" &
  RANK=0 WORLD_SIZE=2 MASTER_PORT=$port timeout 60 "${run[@]}" "${set[@]}" --resume --checkpoint-dir "${directories[seen]}" \
    --set run.steps=8 > "$work/out" 2> "$work/err"
  statuses="$?"
  wait $!
  statuses="$statuses $?"
  [ "$statuses" = "2 2" ] || fail "ranks of which one sees no checkpoint: $statuses, $(cat "$work/err" "$work/err1")"
  for text in "$work/err" "$work/err1"; do
    grep -q "sees .*no checkpoint in $work/empty$seen on .*: all ranks must find the same checkpoint" "$text" ||
      fail "of a rank that sees no checkpoint is said: $(cat "$text")"
  done
done

# Ranks look for the latest checkpoint themselves, and one does not see what rank 0 sees. It takes rank 0's
# where that exists, or says so, and rank 0 is not left waiting where it saves.
"${run[@]}" "${set[@]}" --checkpoint-dir "$work/both" --checkpoint-every 4 > /dev/null 2> "$work/err" || fail "checkpoints of steps 4 and 5"
cp -r "$work/both" "$work/one"
rm -r "$work/one/step_00000005"
for second in "$work/both/step_00000004" "$work/one"; do
  next_port
  RANK=1 WORLD_SIZE=2 MASTER_PORT=$port "${run[@]}" "${set[@]}" --resume-from "$second" --checkpoint-dir "$work/third" \
    --set run.steps=6 > "$work/out1" 2> "$work/err1" &
  RANK=0 WORLD_SIZE=2 MASTER_PORT=$port timeout 60 "${run[@]}" "${set[@]}" --resume-from "$work/both" --checkpoint-dir "$work/third" \
    --set run.steps=6 > "$work/out" 2> "$work/err"
  statuses="$?"
  wait $!
  statuses="$statuses $?"
  case $second in
  */step_00000004) [ "$statuses" = "0 0" ] || fail "rank 1 was told another checkpoint: $statuses, $(cat "$work/err" "$work/err1")" ;;
  *) [ "$statuses" = "1 2" ] || fail "rank 1 has another checkpoint: $statuses, $(cat "$work/err" "$work/err1")"
     grep -q "rank 1 would go on from .*one/step_00000004.*and rank 0 from 'step_00000005 .*all ranks must find the same" "$work/err1" ||
       fail "rank 1 says: $(cat "$work/err1")" ;;
  esac
  rm -rf "$work/third"
done

# Two nodes, each with a launcher of its own and one rank; over both backends.
on_nodes() {
  next_port
  for node in 1 0; do
    "${run[@]}" "${set[@]}" --set cluster.nodes=2 --set cluster.devices_per_node=1 --nnodes 2 --nproc-per-node 1 \
      --node-rank $node --master-addr 127.0.0.1 --master-port $port "$@" > "$work/out$node" 2> "$work/err$node" &
  done
  wait
  cp "$work/out0" "$work/out"
  cat "$work"/err? > "$work/err"
}
# As torchrun's command line names node 0.
next_port
for node in 1 0; do
  "${run[@]}" "${set[@]}" --set cluster.nodes=2 --set cluster.devices_per_node=1 --nnodes 2 --nproc_per_node 1 --node_rank $node \
    --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:$port --rdzv_id a_job > "$work/out$node" 2> "$work/err$node" &
done
wait
cp "$work/out0" "$work/out"
cat "$work"/err? > "$work/err"
expect_losses "nodes that meet at an endpoint"

for backend in gloo mpi; do
  on_nodes --set run.backend=$backend
  expect_losses "two nodes over $backend"
  [ -s "$work/out1" ] && fail "node 1 reports: $(cat "$work/out1")"
done

# Costs between nodes are measured over their link, and kept by its name; timings are not judged here.
next_port
two_nodes=(--set cluster.nodes=2 --set cluster.devices_per_node=1 --set "cluster.network.inter_node={kind: ethernet, gbits_per_nic: 1}")
for node in 1 0; do
  "$windtunnel" compare "$work/gpt.yaml" "${set[@]}" "${two_nodes[@]}" --node-rank $node --master-addr 127.0.0.1 --master-port $port \
    -q --no-progress > "$work/out$node" 2> "$work/err$node" &
  launchers[node]=$!
done
wait "${launchers[0]}"
status=$?
[ $status = 0 ] || [ $status = 3 ] || fail "compare on two nodes: $(cat "$work/err0")"
wait "${launchers[1]}" || fail "node 1: $(cat "$work/err1")"
grep -q 'gloo over 2 nodes of ethernet 1 Gb/s' "$XDG_CACHE_HOME"/windtunnel/*.json || fail "no costs over two nodes were kept"
"$windtunnel" compare "$work/gpt.yaml" "${set[@]}" "${two_nodes[@]}" -q 2> "$work/err" || fail "compare without nodes: $(cat "$work/err")"
"$windtunnel" predict "$work/gpt.yaml" "${two_nodes[@]}" --set "parallel.pipeline={size: 2}" --set batch.accumulate=4 2> "$work/err"
status=$?
[ $status = 2 ] && grep -q 'lacks the costs' "$work/err" || fail "a pipeline over two nodes: exit status $status: $(cat "$work/err")"

# A rank on the second node is killed: the first says so, and neither leaves anything.
next_port
for node in 1 0; do
  "$windtunnel" run "$work/gpt.yaml" "${set[@]}" --set cluster.nodes=2 --set cluster.devices_per_node=1 --set run.steps=10000000 \
    --node-rank $node --master-addr 127.0.0.1 --master-port $port --no-progress > /dev/null 2> "$work/err$node" &
  launchers[node]=$!
done
await_steps "$work/err0"
kill -9 "$(pgrep -P "${launchers[1]}" -f 'rank .*job.json')"
for node in 0 1; do
  wait "${launchers[node]}"
  [ $? = 1 ] || fail "node $node must end with exit status 1"
done
grep -q 'node 1: rank 1 was killed by signal 9' "$work/err0" || fail "node 0 says: $(cat "$work/err0")"

# expect STATUS PATTERN FILE: checks the exit status of a command, which is $status, and what it has printed.
expect() {
  [ "$status" = "$1" ] || fail "exit status $status, expected $1: $(cat "$3")"
  grep -q -e "$2" "$3" || fail "expected '$2' in: $(cat "$3")"
}

# Ranks that disagree on the scenario: both report which ranks, and on what.
next_port
RANK=1 WORLD_SIZE=2 MASTER_PORT=$port "${run[@]}" "${set[@]}" --seed 7 2> "$work/err1" &
RANK=0 WORLD_SIZE=2 MASTER_PORT=$port "${run[@]}" "${set[@]}" 2> "$work/err0"
status=$?
wait
expect 1 "rank 1 (.*) has another scenario or command line than rank 0: '.*seed: 7.*' instead of '.*seed: 0.*'" "$work/err0"
grep -q 'rank 1 (.*) has another scenario' "$work/err1" || fail "rank 1 was not told: $(cat "$work/err1")"

# All ranks take part in saving, not rank 0 alone.
next_port
RANK=1 WORLD_SIZE=2 MASTER_PORT=$port "${run[@]}" "${set[@]}" 2> "$work/err1" &
RANK=0 WORLD_SIZE=2 MASTER_PORT=$port "${run[@]}" "${set[@]}" --checkpoint-dir "$work/saved" 2> "$work/err0"
status=$?
wait
expect 1 "rank 1 (.*) has another scenario or command line than rank 0: '--checkpoint-dir or --export: no' instead of '--checkpoint-dir or --export: yes'" "$work/err0"

# A rank that never comes, and the deadline.
next_port
RANK=0 WORLD_SIZE=2 MASTER_PORT=$port "${run[@]}" "${set[@]}" --rendezvous-timeout 1 2> "$work/err"
status=$?
expect 1 "rank 1 did not come to 127.0.0.1:$port within 1 s" "$work/err"

# A port that another process has.
next_port
python3 -c "
import socket, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('127.0.0.1', $port)); s.listen(); print('on', flush=True); time.sleep(60)" > "$work/listens" &
listener=$!
until [ -s "$work/listens" ]; do sleep 0.1; done
RANK=0 WORLD_SIZE=2 MASTER_PORT=$port "${run[@]}" "${set[@]}" 2> "$work/err"
status=$?
expect 1 "port $port on 127.0.0.1 is taken" "$work/err"
kill $listener

# MPI needs a launcher that supports it.
next_port
by_hand RANK={0,1},WORLD_SIZE=2,MASTER_PORT=$port -- --set run.backend=mpi
grep -q 'MPI knows of 1 process, the group has 2 ranks: start them with' "$work/err" || fail "mpi without MPI: $(cat "$work/err")"

# Nodes that the options leave out, or give otherwise than the scenario.
"${run[@]}" "${set[@]}" --set cluster.nodes=2 --set cluster.devices_per_node=1 2> "$work/err"
status=$?
expect 2 'has 2 nodes: give the command on each of them' "$work/err"
"${run[@]}" "${set[@]}" --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 2> "$work/err"
status=$?
expect 2 'nnodes is 2, but cluster.nodes is 1' "$work/err"
"${run[@]}" "${set[@]}" --standalone --set cluster.nodes=2 --set cluster.devices_per_node=1 2> "$work/err"
status=$?
expect 2 'standalone is for one node, but cluster.nodes is 2' "$work/err"
# PyTorch's recipe for several jobs on one machine.
"${run[@]}" "${set[@]}" --nnodes 1 --rdzv-backend c10d --rdzv-endpoint localhost:0 > "$work/out" 2> "$work/err" ||
  fail "a free port on one node: $(cat "$work/err")"
"${run[@]}" "${set[@]}" "${two_nodes[@]}" --node-rank 0 --rdzv-endpoint localhost:0 2> "$work/err"
status=$?
expect 2 'rdzv-endpoint: port 0 is any free one, which the other nodes would not know' "$work/err"

# An MPI rank that is killed is named, and nothing is left: no process, no shared memory.
: > "$work/err"
"$windtunnel" run "$work/gpt.yaml" "${set[@]}" --set run.backend=mpi --set run.steps=10000000 --no-progress > /dev/null 2> "$work/err" &
launcher=$!
await_steps "$work/err"
find_ranks 'rank .*job.json' $launcher
kill -9 "$(echo "$ranks" | tail -n 1)"
wait $launcher
status=$?
expect 1 'rank [01] was killed by signal 9' "$work/err"
expect_gone $ranks
ls -d "$work"/windtunnel-mpi-* 2> /dev/null && fail "the PMIx server's directory is left"

# Ranks do not outlive an mpirun that was killed.
: > "$work/err"
"${mpirun[@]}" "$windtunnel" run "$work/gpt.yaml" "${set[@]}" --set run.steps=10000000 > "$work/out" 2> "$work/err" &
launcher=$!
await_steps "$work/err"
find_ranks 'run .*gpt.yaml' $launcher
kill -9 $launcher
wait $launcher 2> /dev/null
expect_gone $ranks
kill -9 $ranks 2> /dev/null

[ "$failures" = 0 ] && echo "all claims hold"
exit "$failures"
