#!/bin/sh
# What `bazel run //scenarios:NAME` executes: run.sh WINDTUNNEL COMMAND SCENARIO EXTRA...
# Bazel starts it inside the runfiles. The scenario is handed on by its path in the source tree, so that error messages
# name the file that one edits and paths in it resolve; the user's own relative paths count from BUILD_WORKING_DIRECTORY,
# which the command line resolves itself.
windtunnel=$PWD/$1
command=$2
scenario=${BUILD_WORKSPACE_DIRECTORY:-$PWD}/$3
[ -e "$scenario" ] || scenario=$PWD/$3
shift 3
exec "$windtunnel" "$command" "$scenario" "$@"
