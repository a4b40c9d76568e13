#!/bin/bash
# Nothing hangs and nothing is left behind: a rank that is killed, a launcher that is killed, an interrupt, and ranks
# that another launcher starts.
# Usage: faults_test.sh BINARY
set -u
source "$(dirname "$0")/begin.sh"

fail() {
  echo "FAILED: $*"
  exit 1
}

# A scenario that runs far longer than this test.
cat > "$work/long.yaml" << 'SCENARIO'
name: long
model: {layers: 2, hidden: 64, heads: 2, vocab: 256, seq_len: 64}
batch: {micro: 2}
parallel: {data: {kind: ddp, size: 2}}
cluster: {devices_per_node: 2}
run: {warmup: 5, steps: 10000000}
SCENARIO

# A pattern of what is reported about a rank's last operator. Between two steps it has none.
last_operator="('[^']+' \([^)]+\) of|none:) step [0-9]+( was done)?"

# Pids of the ranks that process $1 launched.
ranks_of() { pgrep -P "$1" -f 'rank .*job.json'; }

# Starts a run with further options "$@" in the background, sets $launcher, and waits until it takes steps.
start_run() {
  : > "$work/err.txt"
  # This test may be run under nohup itself.
  env --default-signal=HUP "$windtunnel" run "$work/long.yaml" "$@" > "$work/out.txt" 2> "$work/err.txt" &
  launcher=$!
  await_steps "$work/err.txt"
}

# Wherever memory runs out, the run ends and says something: before ranks start, while they meet (150 MB here, where the store has none to
# answer with), in the first step. Where that is depends on the machine, so every error counts.
for kilobytes in 150000 160000 240000 280000; do
  output=$(bash -c "ulimit -v $kilobytes; exec timeout 90 '$windtunnel' run '$work/long.yaml' -q --set model.hidden=1024" 2>&1)
  found=$?
  [ $found != 0 ] && [ $found != 124 ] && [ -n "$output" ] || fail "ulimit -v $kilobytes: exit status $found: $output"
done

# A rank is killed in the middle of a step.
start_run
ranks=$(ranks_of $launcher)
victim=$(echo "$ranks" | tail -n 1)
victim_rank=$(tr '\0' '\n' < "/proc/$victim/environ" | sed -n 's/^RANK=//p')
began=$(date +%s)
kill -9 "$victim"
wait $launcher
status=$?
took=$(($(date +%s) - began))
[ $status = 1 ] || fail "a killed rank must give exit status 1, not $status"
[ $took -le 10 ] || fail "it took $took s to notice that a rank was killed"
grep -q "rank $victim_rank was killed by signal 9" "$work/err.txt" || fail "the message: $(cat "$work/err.txt")"
grep -qE "last operator was $last_operator" "$work/err.txt" || fail "no last operator: $(cat "$work/err.txt")"
expect_gone $ranks

# The launcher itself is killed.
start_run
ranks=$(ranks_of $launcher)
kill -9 $launcher
wait $launcher 2> /dev/null
expect_gone $ranks

# The user interrupts.
start_run
ranks=$(ranks_of $launcher)
kill -TERM $launcher
wait $launcher
[ $? = 0 ] && fail "an interrupted run must not succeed"
expect_gone $ranks

# The terminal is closed.
rm -rf "$work"/windtunnel-??????  # of the launcher that was killed
start_run
ranks=$(ranks_of $launcher)
kill -HUP $launcher
wait $launcher
[ $? = 1 ] || fail "a run that was hung up must give exit status 1"
expect_gone $ranks
grep -q 'interrupted by signal 1 (Hangup)' "$work/err.txt" || fail "the message: $(cat "$work/err.txt")"
ls -d "$work"/windtunnel-?????? 2> /dev/null && fail "its directory is left"

# Ctrl-Z and `fg`: the ranks stop and go on with their launcher. (With job control, it has a process group, which bash could continue.)
is_stopped() { [ "$(sed 's/.*) //; s/ .*//' "/proc/$1/stat")" = T ]; }
set -m
start_run
set +m
ranks=$(ranks_of $launcher)
kill -TSTP $launcher
for pid in $ranks $launcher; do
  for _ in $(seq 50); do is_stopped $pid && break; sleep 0.1; done
  is_stopped $pid || fail "process $pid of a run that the terminal has stopped (ranks $ranks, launcher $launcher) goes on"
done
steps=$(grep -c '^step:' "$work/err.txt")
kill -CONT $launcher
for _ in $(seq 50); do
  [ "$(grep -c '^step:' "$work/err.txt")" -gt "$steps" ] && break
  sleep 0.1
done
[ "$(grep -c '^step:' "$work/err.txt")" -gt "$steps" ] || fail "a run that is continued takes no step: $(tail -n 1 "$work/err.txt")"
kill -TERM $launcher
wait $launcher
expect_gone $ranks

# An interrupt before the ranks take steps, or before they exist: nothing is left of what they would need.
mkdir "$work/early"
for backend in gloo mpi; do
  for pause in 0 0.02 0.05 0.1; do
    TMPDIR=$work/early "$windtunnel" run "$work/long.yaml" --set run.backend=$backend > "$work/out.txt" 2> "$work/err.txt" &
    launcher=$!
    for _ in $(seq 500); do
      made=$(ls "$work/early")
      [ -n "$made" ] && break
      sleep 0.01
    done
    sleep $pause
    kill -TERM $launcher
    wait $launcher
    [ $? = 1 ] || fail "a run over $backend that was interrupted after $pause s: $(cat "$work/err.txt")"
    grep -q 'interrupted by signal 15 (Terminated)' "$work/err.txt" || fail "the message: $(cat "$work/err.txt")"
    left=$(ls "$work/early"; for name in $made; do ls -d "/dev/shm/$name" 2> /dev/null; done)
    [ -z "$left" ] || fail "interrupted over $backend after $pause s, it leaves $left"
  done
done

# Whoever started the launcher ignores SIGCHLD, so that nobody can wait for children.
timeout -k 5 30 env --ignore-signal=CHLD "$windtunnel" run "$work/long.yaml" --set run.steps=5 > "$work/out.txt" 2> "$work/err.txt" ||
  fail "with SIGCHLD ignored: exit status $?: $(cat "$work/err.txt")"

# DataParallel has one process, which has all ranks.
start_run --set parallel.data.kind=dp
kill -9 "$(ranks_of $launcher)"
wait $launcher
[ $? = 1 ] || fail "a killed process of dp must give exit status 1"
grep -q "the process of ranks 0 to 1 was killed by signal 9" "$work/err.txt" || fail "the message: $(cat "$work/err.txt")"
grep -qE "$last_operator \(rank 0\), $last_operator \(rank 1\)" "$work/err.txt" || fail "no last operators: $(cat "$work/err.txt")"

# Another launcher, by torchrun's contract: each rank joins, only rank 0 reports.
next_port
for rank in 0 1; do
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    "$windtunnel" run "$work/long.yaml" --set run.steps=5 > "$work/joined$rank.txt" 2>&1 &
done
wait
grep -q 'a step' "$work/joined0.txt" || fail "rank 0 reports nothing: $(cat "$work/joined0.txt")"
[ -s "$work/joined1.txt" ] && fail "rank 1 reports: $(cat "$work/joined1.txt")"

# Two launchers on this machine, each of which counts LOCAL_RANK from 0: their ranks do not take the same core.
next_port
ranks=()
for rank in 0 1; do
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    "$windtunnel" run "$work/long.yaml" > "$work/joined$rank.txt" 2>&1 &
  ranks+=($!)
done
cores_of() { sed -n 's/^Cpus_allowed_list:\t//p' "/proc/$1/status" 2> /dev/null; }
for _ in $(seq 300); do
  cores=("$(cores_of "${ranks[0]}")" "$(cores_of "${ranks[1]}")")
  [[ ${cores[0]} =~ ^[0-9]+$ && ${cores[1]} =~ ^[0-9]+$ ]] && break
  sleep 0.05
done
kill "${ranks[@]}"
wait
[[ ${cores[0]} =~ ^[0-9]+$ ]] || fail "rank 0 may use cores '${cores[0]}'"
[ "$(nproc)" = 1 ] || [ "${cores[0]}" != "${cores[1]}" ] || fail "both ranks have core ${cores[0]}"

# Ranks that a shell has started in the background outlive it: RANK was set by the user.
next_port
bash -c 'for rank in 1 0; do
  RANK=$rank WORLD_SIZE=2 MASTER_PORT=$1 nohup "${@:3}" > "$2/shell$rank.txt" 2>&1 < /dev/null &
done
for _ in $(seq 300); do grep -q "^step:  *2 " "$2/shell0.txt" && break; sleep 0.05; done' \
  bash $port "$work" "$windtunnel" run "$work/long.yaml" --set run.steps=500
for _ in $(seq 300); do
  grep -q 'a step' "$work/shell0.txt" && break
  sleep 0.1
done
grep -q 'a step' "$work/shell0.txt" || fail "ranks end with the shell that started them: $(tail -n 1 "$work"/shell?.txt)"

# With a launcher that stays, ranks end soon after it, also those of DataParallel's one process. The flight
# record has all of them.
TORCHELASTIC_RUN_ID=run RANK=0 WORLD_SIZE=1 bash -c '"${@:2}" > "$1/dp.txt" 2>&1 < /dev/null &
echo $! > "$1/dp.pid"
for _ in $(seq 300); do grep -q "^step:  *2 " "$1/dp.txt" && break; sleep 0.05; done' \
  bash "$work" "$windtunnel" run "$work/long.yaml" --set parallel.data.kind=dp --set run.steps=5000 \
    --flight-record "$work/dp.json"
expect_gone "$(cat "$work/dp.pid")"
grep -q '^windtunnel: .*the launcher (process .*) has ended' "$work/dp.txt" || fail "the message: $(tail -n 1 "$work/dp.txt")"
python3 -c 'import json, sys; assert [len(rank["operators"]) > 0 for rank in json.load(open(sys.argv[1]))["ranks"]] == [True, True]' \
  "$work/dp-rank-0.json" || fail "the flight record of dp under another launcher"

# Two processes get the same rank number: one of them is told so at once, the others go on.
next_port
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
copies=()
for copy in a b; do
  RANK=1 "$windtunnel" run "$work/long.yaml" --set run.steps=5 > "$work/copy_$copy.txt" 2>&1 &
  copies[${#copies[@]}]=$!
done
RANK=0 "$windtunnel" run "$work/long.yaml" --set run.steps=5 > "$work/joined0.txt" 2>&1 || fail "rank 0: $(cat "$work/joined0.txt")"
unset WORLD_SIZE MASTER_ADDR MASTER_PORT
wait "${copies[0]}"
statuses=$?
wait "${copies[1]}"
statuses="$statuses $?"
[ "$statuses" = '0 1' ] || [ "$statuses" = '1 0' ] || fail "of two with one number: $statuses: $(cat "$work"/copy_?.txt)"
grep -q '^windtunnel: rank 1 is there already (.*): each number is of one process' "$work"/copy_?.txt || fail "the message: $(cat "$work"/copy_?.txt)"

# If nobody listens on a port that the system may hand out, a rank that connects there does not get through to
# itself. Here the system has ten such ports.
alone=(unshare -n sh -c 'ip link set lo up && echo 40000 40009 > /proc/sys/net/ipv4/ip_local_port_range && exec "$@"' sh)
if "${alone[@]}" true 2> /dev/null; then
  RANK=1 WORLD_SIZE=2 MASTER_PORT=40000 "${alone[@]}" "$windtunnel" run "$work/long.yaml" --rendezvous-timeout 1 2> "$work/err.txt"
  grep -q 'nobody answers at 127.0.0.1:40000' "$work/err.txt" || fail "a rank that calls itself: $(cat "$work/err.txt")"
else
  echo "skipped: a rank that calls itself, which takes a network namespace"
fi

# A world size that does not match the scenario's: the message names what the user has set.
for variables in RANK=0,WORLD_SIZE= SLURM_PROCID=0,SLURM_NTASKS= "OMPI_COMM_WORLD_RANK=0,OMPI_COMM_WORLD_SIZE="; do
  IFS=, read -ra list <<< "${variables}3"
  env "${list[@]}" "$windtunnel" run "$work/long.yaml" 2> "$work/err.txt"
  [ $? = 2 ] || fail "a wrong world size must give exit status 2"
  name=${variables##*,}
  grep -q "${name%=}.* is 3, but the scenario has 2 ranks" "$work/err.txt" || fail "the message: $(cat "$work/err.txt")"
done

# A Slurm batch script that starts one of the ranks, without srun.
SLURM_PROCID=0 SLURM_NTASKS=2 MASTER_PORT=$port "$windtunnel" run "$work/long.yaml" --rendezvous-timeout 0.2 2> "$work/err.txt"
[ $? = 1 ] || fail "a rank alone must give exit status 1"
grep -q "rank 1 did not come .*no step has started it .*srun windtunnel run" "$work/err.txt" || fail "the message: $(cat "$work/err.txt")"
echo "all claims hold"
