#!/usr/bin/env python3
"""Writes compile_commands.json for clangd and clang-tidy: tools/compile_commands.py (from anywhere in the checkout)."""
import argparse
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUERY = 'mnemonic("CppCompile", //...)'


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    text = subprocess.run([ROOT / "bazelw", "aquery", "--output=jsonproto", QUERY], cwd=ROOT, check=True,
                          stdout=subprocess.PIPE).stdout
    entries = {}
    for action in json.loads(text).get("actions", []):
        arguments = action["arguments"]
        source = next((a for a in arguments if a.endswith((".cc", ".cpp")) and not a.startswith("-")), None)
        if source:
            entries[source] = {"directory": str(ROOT), "file": source, "arguments": arguments}
    (ROOT / "compile_commands.json").write_text(json.dumps(list(entries.values()), indent=1) + "\n")
    print(f"compile_commands.json: {len(entries)} files")


if __name__ == "__main__":
    main()
