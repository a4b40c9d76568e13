#!/usr/bin/env bash
# Benchmarks list their cases, the table of a collective has a row for each size, and what is missing is named.
# Usage: benchmarks_test.sh COLLECTIVE_TABLE COLLECTIVE_MODEL_ERROR GPU_BENCH BENCH...
set -u
table=$1 model_error=$2 gpu_bench=$3
shift 3
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

for bench in "$@"; do
  cases=$("$bench" --benchmark_list_tests) || fail "$bench ends with status $?"
  [ -n "$cases" ] || fail "$bench lists no cases"
done

rows=$("$table" -o all_reduce -r 2 -b 1K -e 4K -n 3 -w 1) || fail "collective_table ends with status $?"
[ "$(grep -cE '^ +(1024|2048|4096) .* sum .* 0$' <<< "$rows")" = 3 ] || fail "collective_table prints: $rows"
grep -q '^# Out of bounds values : 0 OK' <<< "$rows" || fail "collective_table found wrong sums: $rows"

message=$("$model_error" /none 2>&1) && fail "collective_model_error takes a file that is not there"
[ "$message" = "/none: cannot be read" ] || fail "collective_model_error says: $message"

if ! message=$("$gpu_bench" --benchmark_list_tests 2>&1); then
  [ "$message" = "gpu_bench: cluster.device: no CUDA device was found" ] || fail "gpu_bench says: $message"
fi

exit "$((failures > 0))"
