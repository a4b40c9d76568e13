# Checks of one call of $windtunnel. Failed checks are printed and counted in $failures. Sourced.
failures=0

# expect STATUS PATTERN ARGUMENTS…: the exit status, and a line of the output that matches.
expect() {
  status=$1
  pattern=$2
  shift 2
  output=$("$windtunnel" "$@" 2>&1)
  found=$?
  if [ "$found" != "$status" ]; then
    echo "FAILED: windtunnel $*: exit status $found, expected $status: $output"
    failures=$((failures + 1))
  elif ! printf '%s\n' "$output" | grep -q -e "$pattern"; then
    echo "FAILED: windtunnel $*: expected '$pattern' in: $output"
    failures=$((failures + 1))
  fi
}

# expect_line STATUS PATTERN ARGUMENTS…: the same, and the error is a single line.
expect_line() {
  expect "$@"
  shift 2
  lines=$("$windtunnel" "$@" 2>&1 >/dev/null | wc -l)
  if [ "$lines" != 1 ]; then
    echo "FAILED: windtunnel $*: $lines lines on standard error, expected 1"
    failures=$((failures + 1))
  fi
}
