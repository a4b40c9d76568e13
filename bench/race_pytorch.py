#!/usr/bin/env python3
"""Races the live step against PyTorch's DDP on the same model, in alternation, and prints the ratio of medians.

    bench/race_pytorch.py --peer torch_ddp.py [--ranks 2] [--rounds 5]

The peer is a script that takes --ranks --layers --hidden --heads --seq --micro --vocab --steps --port --bucket_mb and prints a JSON line with
"median_ms" (PyTorch from Debian's python3-torch, Gloo, timed from barrier to barrier). One thread per rank: OMP_NUM_THREADS=1 as torchrun
sets it, since torch.set_num_threads(1) does not reach Debian's OpenBLAS, which then uses every core (--peer-threads). Both sides take
turns, since these machines drift; the ratio is that of the medians over rounds, with the smallest and largest round beside it.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = dict(layers=4, hidden=256, heads=4, seq=128, micro=4, vocab=4096)


def ours(binary, ranks, steps):
    scenario = ROOT / "scenarios" / ("gpt_1rank.yaml" if ranks == 1 else "ddp_gpt_2rank.yaml")
    sets = {"model.layers": MODEL["layers"], "model.hidden": MODEL["hidden"], "model.heads": MODEL["heads"],
            "model.seq_len": MODEL["seq"], "model.vocab": MODEL["vocab"], "batch.micro": MODEL["micro"],
            "run.steps": steps}
    if ranks > 1:
        sets["parallel.data.bucket_cap_mb"] = 25
    command = [binary, "run", str(scenario), "--json", "-", "-q", "--no-progress"]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return 1e3 * json.loads(out[out.index("{"):])["measured"]["step_time_s"]["p50"]


def theirs(peer, python, ranks, steps, port, threads):
    command = [python, peer, "--ranks", str(ranks), "--steps", str(steps), "--port", str(port)]
    for key, value in MODEL.items():
        command += [f"--{key}", str(value)]
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    if threads > 0:
        environment["OMP_NUM_THREADS"] = str(threads)
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return json.loads(out.strip().splitlines()[-1])["median_ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--binary", default=str(ROOT / "bazel-bin" / "windtunnel"))
    parser.add_argument("--ranks", type=int, default=2, choices=(1, 2))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--peer-threads", type=int, default=1, help="OMP_NUM_THREADS of the peer; 0 leaves it unset")
    arguments = parser.parse_args()
    rounds = []
    for turn in range(arguments.rounds):
        us = ours(arguments.binary, arguments.ranks, arguments.steps)
        them = theirs(arguments.peer, arguments.python, arguments.ranks, arguments.steps, 29600 + turn,
                      arguments.peer_threads)
        rounds.append((us, them))
        print(f"round {turn + 1}: windtunnel {us:.1f} ms, PyTorch {them:.1f} ms, ratio {us / them:.3f}", flush=True)
    ratios = [us / them for us, them in rounds]
    ratio = statistics.median(us for us, _ in rounds) / statistics.median(them for _, them in rounds)
    print(f"ratio of medians {ratio:.3f} (rounds {min(ratios):.3f} to {max(ratios):.3f}, n={len(rounds)})")


if __name__ == "__main__":
    main()
