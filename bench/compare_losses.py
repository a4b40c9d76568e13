#!/usr/bin/env python3
"""Checks that ranks that share a batch have the losses of one rank.

Prints for each file the largest relative difference of the losses over the steps that both have. The exit status
is 1 if one is beyond the rounding of bf16, 2^-8.
"""
import argparse
import json
import sys


def losses(path):
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    results = document if isinstance(document, list) else document.get("results", [document])
    return results[0]["measured"]["losses"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("one", metavar="ONE.json", help="the result of one rank")
    parser.add_argument("ranks", metavar="RANKS.json", nargs="*", help="results of several ranks")
    arguments = parser.parse_args()
    alone = losses(arguments.one)
    status = 0
    for path in arguments.ranks:
        ranks = losses(path)
        steps = min(len(alone), len(ranks))
        worst = max(abs(a - b) / abs(b) for a, b in zip(ranks[:steps], alone[:steps]))
        is_within = worst <= 2.0**-8
        status = status if is_within else 1
        verdict = "within" if is_within else "beyond"
        print(f"{path}: {steps} steps, largest difference {worst:.2e}, {verdict} the rounding of bf16")
    return status


if __name__ == "__main__":
    sys.exit(main())
