#!/bin/sh
# Runs schema_test.py with Debian's Python, which has jsonschema and yaml.
exec /usr/bin/python3 "$@"
