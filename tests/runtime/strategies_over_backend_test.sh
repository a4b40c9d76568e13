#!/bin/bash
# Runs the parity suites of the strategies with ranks that communicate over WINDTUNNEL_TEST_BACKEND: `mpi` (processes instead of threads) or
# `gloo`. Of each suite every WINDTUNNEL_EVERY-th case, since all cases take minutes; WINDTUNNEL_EVERY=1 runs them all.
# Usage: strategies_over_backend_test.sh TEST-BINARY…
set -u
# A thread pool does not survive the forks.
export WINDTUNNEL_TEST_BACKEND OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export GTEST_TOTAL_SHARDS=${WINDTUNNEL_EVERY:-4} GTEST_SHARD_INDEX=0
[ -n "${TEST_SHARD_STATUS_FILE:-}" ] && touch "$TEST_SHARD_STATUS_FILE"
shard=${TEST_SHARD_INDEX:-0} shards=${TEST_TOTAL_SHARDS:-1}
# GoogleTest would divide each suite by these, and write one report over the other.
unset TEST_SHARD_INDEX TEST_TOTAL_SHARDS TEST_SHARD_STATUS_FILE XML_OUTPUT_FILE
status=0
index=0
for suite in "$@"; do
  [ $((index % shards)) = "$shard" ] && { "./$suite" --gtest_brief=1 --gtest_filter='*Parity.Losses*' || status=1; }
  index=$((index + 1))
done
exit $status
