#!/bin/sh
# Prints a C++ source file that holds files as text: embed.sh NAME=FILE...
set -eu
printf '#include "reports/html/assets.h"\n\nnamespace windtunnel {\n'
for pair in "$@"; do
  name=${pair%%=*} file=${pair#*=}
  # Compilers need not accept string literals longer than 64 KiB, so the text comes in pieces, which they
  # join.
  printf '\nconst std::string_view %s =' "$name"
  split -b 15000 --filter='printf "\\n    R\"asset("; cat; printf ")asset\""' "$file"
  printf ';\n'
done
printf '\n}  // namespace windtunnel\n'
