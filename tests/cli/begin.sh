# The common beginning of tests of the command line. Sourced after `set -u` with the binary: sets $windtunnel
# and $work, and keeps caches and temporary files in $work.
windtunnel=$(realpath "$1")
work=${TEST_TMPDIR:?}
export XDG_CACHE_HOME=$work/cache TMPDIR=$work
unset RANK WORLD_SIZE

# Sets $port to a port that nobody listens on, below those that the system hands out (32768). Concurrent tests
# draw other ports.
next_port() {
  port=$(python3 - << 'PYTHON'
import random, socket
while True:
    port = random.randrange(20000, 32000)
    with socket.socket() as listener:
        try:
            listener.bind(("", port))
        except OSError:
            continue
    print(port)
    break
PYTHON
  )
}

# Fails when one of the processes "$@" is alive (a zombie that init has not reaped yet is not).
expect_gone() {
  for _ in $(seq 50); do
    alive=
    for pid in "$@"; do
      state=$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat" 2> /dev/null) && [ "$state" != Z ] && alive="$alive $pid"
    done
    [ -z "$alive" ] && return
    sleep 0.1
  done
  fail "still alive:$alive"
}

# await_steps FILE [PATTERN]: waits until the run whose standard error is FILE takes steps, after the first
# line that matches PATTERN.
await_steps() {
  for _ in $(seq 300); do
    sed "${2:+0,/$2/d}" "$1" | grep -q '^step:  *2 ' && return
    sleep 0.1
  done
  fail "no step was taken: $(cat "$1")"
}
