#!/usr/bin/env python3
"""Runs `compare --recalibrate` N times on each scenario and prints the table of docs/fidelity.md.

    tools/fidelity.py [--runs 10] [--out results.jsonl] [SCENARIO.yaml ...]

Each run calibrates, freezes its prediction, runs live and compares. Nothing else should run on the machine meanwhile. The results
of every run are appended to --out, one JSON object a line, so that an interrupted campaign goes on where it stopped.
"""
import argparse
import collections
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFAULT = ["mlp_1rank", "gpt_1rank", "ddp_mlp_2rank", "ddp_mlp_wide_2rank", "ddp_gpt_2rank",
           "ddp_gpt_2rank_accumulate", "ddp_gpt_4rank_oversubscribed", "zero1_gpt_2rank", "zero2_gpt_2rank",
           "fsdp_gpt_2rank", "fsdp_gpt_2rank_offload", "fsdp_gpt_2rank_recompute", "fsdp_gpt_4rank_hybrid",
           "mp_gpt_2rank", "gpipe_gpt_2rank", "1f1b_gpt_2rank", "interleaved_gpt_2rank", "zb_h1_gpt_2rank",
           "1f1b_gpt_4rank_oversubscribed", "pp2_dp2_gpt_4rank", "tp2_gpt_2rank", "dp_gpt_2threads"]


def compare(binary, scenario):
    """The result object of one comparison; exit statuses other than 0 and 3 (outside tolerance) end the campaign."""
    run = subprocess.run([binary, "compare", scenario, "--recalibrate", "--json", "-", "-q", "--no-progress"],
                         stdout=subprocess.PIPE, text=True)
    if run.returncode not in (0, 3):
        sys.exit(f"{scenario}: compare ended with status {run.returncode}")
    return json.loads(run.stdout[run.stdout.index("{"):])


def row(name, results):
    errors = [result["error"]["step_time"] for result in results]
    sizes = sorted(abs(error) for error in errors)
    measured = [result["measured"]["step_time_s"]["p50"] for result in results]
    covered = sum(result["predicted"]["step_time_s"]["p10"] <= result["measured"]["step_time_s"]["p50"]
                  <= result["predicted"]["step_time_s"]["p90"] for result in results)
    memory = max(result["error"]["peak_memory_bytes"] for result in results)
    initial = max(result["error"].get("initial_peak_bytes", 0) for result in results)
    resident = max(abs(result["error"].get("resident_bytes", 0)) for result in results) / 2**20
    bubbles = sorted(abs(result["error"]["bubble_fraction"]) for result in results)
    has_bubble = any(result["measured"]["bubble_fraction"] > 0 for result in results)
    bubble = f"{statistics.median(bubbles):.3f} / {bubbles[-1]:.3f}" if has_bubble else "–"
    return (f"| `{name}` | {len(results)} | {1e3 * statistics.median(measured):.3g} ms | "
            f"{100 * statistics.median(sizes):.1f} % | {100 * sizes[-1]:.1f} % | {100 * statistics.mean(errors):+.1f} % | "
            f"{covered}/{len(results)} | {bubble} | {memory} B | {initial} B | {resident:.1f} MiB |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("fidelity.jsonl"))
    parser.add_argument("--binary", default=str(ROOT / "bazel-bin" / "windtunnel"))
    parser.add_argument("scenarios", nargs="*", default=[str(ROOT / "scenarios" / f"{name}.yaml") for name in DEFAULT])
    arguments = parser.parse_args()

    results = collections.defaultdict(list)
    if arguments.out.exists():
        for line in arguments.out.read_text().splitlines():
            result = json.loads(line)
            results[result["scenario"]].append(result)
    names = {scenario: pathlib.Path(scenario).stem for scenario in arguments.scenarios}
    # Round robin, so that drift of the machine meets every scenario.
    for turn in range(arguments.runs):
        for scenario in arguments.scenarios:
            if len(results[names[scenario]]) > turn:
                continue
            result = compare(arguments.binary, scenario)
            for block in ("predicted", "measured"):
                result[block].pop("step_times_s", None)
                result[block].pop("losses", None)
            result["scenario"] = names[scenario]
            results[names[scenario]].append(result)
            with arguments.out.open("a") as out:
                out.write(json.dumps(result) + "\n")
            print(f"{turn + 1}/{arguments.runs} {names[scenario]}: {100 * result['error']['step_time']:+.1f} %",
                  file=sys.stderr, flush=True)

    print("| scenario | runs | measured step (median) | median \\|error\\| | worst | mean error | within p10-p90 | "
          "bubble error (median / worst) | peak memory error | start-up peak error | resident error |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for scenario in arguments.scenarios:
        print(row(names[scenario], results[names[scenario]]))


if __name__ == "__main__":
    main()
