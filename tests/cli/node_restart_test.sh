#!/bin/bash
# A job on two nodes, each with a launcher of its own. A rank that dies on either node brings all ranks back
# from the last checkpoint, and ends them all once no restart is left. A launcher that dies ends them all at
# once. Nothing hangs, nothing is left.
# Usage: node_restart_test.sh BINARY
set -u
source "$(dirname "$0")/begin.sh"
cd "$work" || exit 1

fail() {
  echo "FAILED: $*"
  tail -n 20 err0.txt err1.txt
  exit 1
}

cat > gpt.yaml << 'SCENARIO'
name: gpt
model: {layers: 2, hidden: 32, heads: 2, vocab: 256, seq_len: 32}
batch: {micro: 2}
parallel: {data: {kind: ddp, size: 2}}
cluster: {nodes: 2, devices_per_node: 1}
run: {warmup: 5, steps: 10000000}
SCENARIO

# start OPTION…: starts the command on both nodes; their processes are ${launchers[0]} and ${launchers[1]}.
start() {
  next_port
  for node in 1 0; do
    : > err$node.txt  # of the run before, which has taken steps
    "$windtunnel" run gpt.yaml --no-progress --nnodes 2 --node-rank $node --master-addr 127.0.0.1 --master-port $port "$@" \
      > out$node.txt 2> err$node.txt &
    launchers[node]=$!
  done
}

# wait_for COMMAND…: waits until COMMAND succeeds, or fails the test.
wait_for() {
  for _ in $(seq 600); do
    "$@" > found.txt 2> /dev/null && return
    sleep 0.05
  done
  fail "waited in vain for: $*"
}
rank_on() { pgrep -P "${launchers[$1]}" -f 'rank .*job.json'; }  # the pid of a node's rank
is_restarted() { grep -q "restart $1 of" err0.txt && rank_on "$2"; }

# ends_with NODE STATUS SECONDS: the launcher of a node ends with STATUS within SECONDS.
ends_with() {
  for _ in $(seq $(($3 * 10))); do
    kill -0 "${launchers[$1]}" 2> /dev/null || break
    sleep 0.1
  done
  kill -0 "${launchers[$1]}" 2> /dev/null && fail "node $1 does not end"
  wait "${launchers[$1]}"
  local status=$?
  [ $status = "$2" ] || fail "node $1 ended with status $status, expected $2"
}

# A rank dies on one node and then on the other: the end is the undisturbed run's, bit by bit, over both
# backends.
steps=(--set run.steps=600 --checkpoint-every 20)  # more than a second, so that the second kill comes in time
start "${steps[@]}" --checkpoint-dir undisturbed
ends_with 0 0 60
ends_with 1 0 10
for backend in gloo mpi; do
  start "${steps[@]}" --checkpoint-dir $backend --max-restarts 2 --set run.backend=$backend
  wait_for test -e $backend/latest
  wait_for rank_on 1
  kill -9 "$(cat found.txt)"
  wait_for is_restarted 1 0
  grep -qE "node 1: rank 1 was killed by signal 9 .*restart 1 of 2, from .*$backend/step_" err0.txt || fail "the first restart over $backend"
  restarted=$(cat found.txt)
  wait_for rank_on 1
  tr '\0' '\n' < "/proc/$(cat found.txt)/environ" > environment.txt
  grep -qx 'TORCHELASTIC_RESTART_COUNT=1' environment.txt || fail "node 1's rank does not know of the restart"
  [ $backend = gloo ] || grep -qx 'OMPI_MCA_btl_tcp_if_include=lo' environment.txt || fail "MPI is not told which interface leads to node 0"
  kill -9 "$restarted"
  ends_with 0 0 60
  ends_with 1 0 10
  grep -q 'rank 0 was killed by signal 9 .*restart 2 of 2' err0.txt || fail "the second restart over $backend"
  last=$(cat undisturbed/latest)
  [ "$last" = "$(cat $backend/latest)" ] || fail "the last checkpoints are $last and $(cat $backend/latest)"
  for file in undisturbed/$last/*.safetensors; do
    cmp "$file" "$backend/$last/$(basename "$file")" || fail "other weights after restarts over $backend"
  done
done

# running OPTION…: starts a job and waits until it takes steps; sets $ranks.
running() {
  start --max-restarts 1 "$@"
  await_steps err0.txt
  for node in 0 1; do
    wait_for rank_on $node
    ranks[node]=$(cat found.txt)
  done
}

# Restarts are counted for the job, wherever ranks die. Each attempt leaves a record of what its ranks did
# last, on both nodes.
running --flight-record last.json
kill -9 "${ranks[1]}"
wait_for is_restarted 1 0
await_steps err0.txt '; restart '
kill -9 "$(rank_on 0)"
ends_with 0 1 20
ends_with 1 1 20
grep -q 'restart 1 of 1, from the beginning' err0.txt || fail "no restart"
grep -q 'rank 0 was killed by signal 9' err1.txt || fail "node 1 does not say who died last"
for suffix in '' -restart-1 -node-1 -node-1-restart-1; do
  [ -s last$suffix.json ] || fail "no flight record last$suffix.json"
done

# The launcher of either node dies: the other names it, and does not wait for it to come back.
running
kill -9 "${launchers[1]}"
ends_with 0 1 20
grep -q 'node 1 is gone: its launcher has ended' err0.txt || fail "node 0 does not name the node"
grep -q '; restart ' err0.txt && fail "a job is restarted without one of its nodes"
expect_gone "${ranks[@]}"
running
kill -9 "${launchers[0]}"
ends_with 1 1 20
grep -q 'node 0 is gone' err1.txt || fail "node 1 does not name the node"
expect_gone "${ranks[@]}"

# The user interrupts one of them.
running
kill -TERM "${launchers[1]}"
ends_with 0 1 20
ends_with 1 1 20
grep -q 'node 1 is gone: interrupted by signal 15' err0.txt || fail "node 0 does not say that the other was interrupted"
grep -q '; restart ' err0.txt && fail "an interrupted job is restarted"
expect_gone "${ranks[@]}"

# Nor does an interrupted node wait for the first one if that does not answer.
running
kill -STOP "${launchers[0]}"
sleep 0.3  # node 1 asks it ten times a second
kill -TERM "${launchers[1]}"
ends_with 1 1 5
expect_gone "${ranks[1]}"
kill -CONT "${launchers[0]}"
ends_with 0 1 20
grep -q 'node 1 is gone' err0.txt || fail "node 0 does not name the node"
expect_gone "${ranks[@]}"
echo "all claims hold"
