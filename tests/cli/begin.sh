# What tests of the command line begin with. Sourced after `set -u` with the binary: sets $windtunnel and $work, and keeps caches and
# temporary files in there.
windtunnel=$(realpath "$1")
work=${TEST_TMPDIR:?}
export XDG_CACHE_HOME=$work/cache TMPDIR=$work
unset RANK WORLD_SIZE

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
