#!/bin/bash
# MPI starts when all processes of a job call MPI_Init; a process that none joins says so instead of waiting.
set -u
start=$1
fail() {
  echo "FAILED: $1"
  exit 1
}
mpirun=(timeout 60 mpirun --allow-run-as-root --oversubscribe --bind-to none)

"${mpirun[@]}" -n 2 "$start" > "$TEST_TMPDIR/out" 2> "$TEST_TMPDIR/err" || fail "two processes: $(cat "$TEST_TMPDIR"/out "$TEST_TMPDIR"/err)"
[ "$(grep -c '^started$' "$TEST_TMPDIR/out")" = 2 ] || fail "two processes say: $(cat "$TEST_TMPDIR/out")"

"${mpirun[@]}" -n 1 "$start" : -n 1 sleep 600 > "$TEST_TMPDIR/out" 2> "$TEST_TMPDIR/err"
status=$?
[ $status = 1 ] || fail "one without the other ends with $status: $(cat "$TEST_TMPDIR"/out "$TEST_TMPDIR"/err)"
grep -q '^MPI has not started within 2000 ms: MPI_Init waits for processes of the job' "$TEST_TMPDIR/out" ||
  fail "one without the other says: $(cat "$TEST_TMPDIR/out")"
echo passed
