#!/bin/bash
# The scripts of `windtunnel completion`, in the shells themselves: zsh and fish only where they are
# installed.
# Usage: completion_test.sh BINARY
set -u
windtunnel=$(realpath "$1")
work=${TEST_TMPDIR:?}
failures=0
for shell in bash zsh fish; do
  "$windtunnel" completion $shell > "$work/completion.$shell" || failures=$((failures + 1))
done
cd "$work" && mkdir -p logs && touch a.yaml 'two words.yaml' b.json rows.jsonl

# is EXPECTED FOUND WHAT
is() {
  [ "$1" = "$2" ] && return
  echo "FAILED: $3: found '$2', expected '$1'"
  failures=$((failures + 1))
}

# in_bash WORD…: what bash offers for the last of these words, on one line.
in_bash() {
  bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _windtunnel; printf "%s\n" "${COMPREPLY[@]}"' \
    bash "$work/completion.bash" "$@" | sort | paste -sd ' '
}
is 'predict profile' "$(in_bash windtunnel pr)" 'commands'
is 'check merge show' "$(in_bash windtunnel profile '')" 'commands of profile'
is '--quick --quiet' "$(in_bash windtunnel search --qui)" 'options'
is '--tensorboard' "$(in_bash windtunnel run a.yaml --tens)" 'options behind a file'
is 'a.yaml logs two words.yaml' "$(in_bash windtunnel predict '')" 'scenarios'
is 'h100-nvl-94g h100-pcie-80g h100-sxm-80g h100-sxm-96g-500w' "$(in_bash windtunnel predict a.yaml --profile h1)" 'names of profiles'
is 'b.json' "$(in_bash windtunnel profile show b.)" 'files of profiles'
is 'logs' "$(in_bash windtunnel run --tensorboard '')" 'directories'
is 'b.json' "$(in_bash windtunnel predict --json = b)" 'the value behind an equals sign'
is '' "$(in_bash windtunnel search --top '')" 'a number'
is 'logs rows.jsonl' "$(in_bash windtunnel validate '')" 'rows'
is 'bash fish zsh' "$(in_bash windtunnel completion '')" 'shells'
is 'models' "$(in_bash windtunnel list m)" 'lists'
is '' "$(in_bash windtunnel ra)" 'what is internal'

if command -v zsh > /dev/null; then
  zsh -n completion.zsh || failures=$((failures + 1))
  # When sourced, it registers itself. Each command has a function.
  is '_windtunnel 1 1' "$(zsh -fc 'autoload -U compinit; compinit -D -u; source ./completion.zsh; print $_comps[windtunnel] $+functions[_windtunnel_run] $+functions[_windtunnel_profile_merge]')" 'zsh'
else
  echo "zsh is skipped: it is not installed"
fi

if command -v fish > /dev/null; then
  export HOME=$work XDG_CONFIG_HOME=$work XDG_DATA_HOME=$work
  in_fish() { fish --no-config -c "source ./completion.fish; complete -C '$1'" | cut -f 1 | sort | paste -sd ' '; }
  fish --no-execute completion.fish || failures=$((failures + 1))
  is 'predict profile' "$(in_fish 'windtunnel pr')" 'commands in fish'
  is 'check merge show' "$(in_fish 'windtunnel profile ')" 'commands of profile in fish'
  is '--quick --quiet' "$(in_fish 'windtunnel search --qui')" 'options in fish'
  is 'h100-nvl-94g h100-pcie-80g h100-sxm-80g h100-sxm-96g-500w' "$(in_fish 'windtunnel predict a.yaml --profile h1')" 'profiles in fish'
  is 'a.yaml' "$(in_fish 'windtunnel predict a')" 'scenarios in fish'
else
  echo "fish is skipped: it is not installed"
fi
[ $failures = 0 ] && echo "all claims hold"
exit $failures
