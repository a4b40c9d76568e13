#!/usr/bin/env python3
"""Checks that ranks that share a batch have the losses of one rank: compare_losses.py ONE.json RANKS.json...

Prints for each file the largest relative difference of the losses over the steps that both have; bf16 rounds
to 2^-8.
"""
import json
import sys


def losses(path):
    document = json.load(open(path))
    results = document if isinstance(document, list) else document.get("results", [document])
    return results[0]["measured"]["losses"]


def main():
    alone = losses(sys.argv[1])
    for path in sys.argv[2:]:
        ranks = losses(path)
        steps = min(len(alone), len(ranks))
        worst = max(abs(a - b) / abs(b) for a, b in zip(ranks[:steps], alone[:steps]))
        verdict = "within" if worst <= 2.0**-8 else "beyond"
        print(f"{path}: {steps} steps, largest difference {worst:.2e}, {verdict} the rounding of bf16")


if __name__ == "__main__":
    main()
