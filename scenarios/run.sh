#!/bin/sh
# What `./bazelw run //scenarios:NAME` executes: run.sh WINDTUNNEL COMMAND SCENARIO EXTRA...
# Bazel starts it inside the runfiles. The scenario is handed on by its path in the source tree, so that error messages
# name the file that one edits and paths in it resolve; the user's own relative paths count from BUILD_WORKING_DIRECTORY,
# which the command line resolves itself.
windtunnel=$PWD/$1
command=$2
scenario=${BUILD_WORKSPACE_DIRECTORY:-$PWD}/$3
[ -e "$scenario" ] || scenario=$PWD/$3
shift 3
[ "$command" = emulate ] || exec "$windtunnel" "$command" "$scenario" "$@"

# Several nodes: emulated where network namespaces are allowed. Elsewhere the step is predicted, from collectives among as many ranks
# of this machine and the rate of the link between nodes.
"$PWD/bench/netns_cluster.sh" -w "$windtunnel" "$scenario" -- "$@"
status=$?
[ $status = 77 ] || exit $status
echo "$(basename "$scenario"): its nodes cannot be emulated here (above): predicting only" >&2
ranks=$("$windtunnel" explain --resolved "$scenario" |
  python3 -c 'import sys, yaml; c = yaml.safe_load(sys.stdin)["cluster"]; print(c["nodes"] * c["devices_per_node"])')
"$windtunnel" calibrate "$scenario" --set cluster.nodes=1 --set cluster.devices_per_node="$ranks" || exit
exec "$windtunnel" predict "$scenario" "$@"
