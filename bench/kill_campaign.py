#!/usr/bin/env python3
"""Kills random ranks of a live run at random moments, and looks at what is left.

  bench/kill_campaign.py bazel-bin/windtunnel scenarios/ddp_gpt_2rank.yaml --runs 50 --max-restarts 3

Every run saves checkpoints and restarts from them (`windtunnel run --max-restarts`). While it runs, one to `--kills` of its ranks are
killed with SIGKILL, each at a moment drawn from the time that an undisturbed run takes. Afterwards:

  * the run has succeeded, and its last checkpoint has the tensors of an undisturbed run's, bit by bit;
  * every checkpoint that is there can be read, checksums included, also right after each kill;
  * no process of the run is left.

Exit status 0 where all of that holds for all runs; the counts go to standard output. Options of `run` may follow after --.
"""

import argparse
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time


def is_alive(pid):
    """Whether the process exists and is not a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ranks_of(launcher):
    """The processes that `launcher` has started, by rank."""
    try:
        children = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    except FileNotFoundError:
        return {}
    ranks = {}
    for pid in map(int, children):
        try:
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        rank = [entry[5:] for entry in environment if entry.startswith(b"RANK=")]
        if rank and b"rank" in words:
            ranks[int(rank[0])] = pid
    return ranks


def tensor_files(checkpoint):
    return {file.name: file.read_bytes() for file in checkpoint.glob("*.safetensors")}


def newest(directory):
    return max(directory.glob("step_*"))


class Campaign:
    def __init__(self, options, work):
        self.options = options
        self.work = work
        self.draw = random.Random(options.seed)
        self.failures = []
        self.kills = 0
        self.kills_before_first_checkpoint = 0
        self.checked = 0
        self.restarts = 0

    def command(self, directory, extra):
        return [self.options.binary, "run", self.options.scenario, "--no-progress", "--checkpoint-dir", str(directory),
                "--checkpoint-every", str(self.options.every), *extra, *self.options.run_options]

    def environment(self):
        return {**os.environ, "TMPDIR": str(self.work)}

    def check(self, directory, when):
        """Checks that every checkpoint with its final name is whole. (A newer one may replace one meanwhile.)"""
        for checkpoint in sorted(directory.glob("step_*")):
            result = subprocess.run([self.options.binary, "checkpoint", "check", str(checkpoint)], capture_output=True, text=True)
            if result.returncode == 0:
                self.checked += 1
            elif checkpoint.exists():
                self.failures.append(f"{when}: {checkpoint.name} cannot be read: {result.stderr.strip()}")

    def undisturbed(self):
        """The tensors that an undisturbed run leaves, and how long it takes: the shorter of two runs."""
        durations = []
        for attempt in range(2):
            directory = self.work / f"undisturbed_{attempt}"
            began = time.monotonic()
            run = subprocess.run(self.command(directory, []), env=self.environment(), capture_output=True, text=True)
            if run.returncode != 0:
                sys.exit(f"the undisturbed run ended with status {run.returncode}: {run.stderr}")
            durations.append(time.monotonic() - began)
        return tensor_files(newest(directory)), min(durations)

    def kill_one(self, launcher, directory, number):
        ranks = ranks_of(launcher.pid)
        if not ranks or launcher.poll() is not None:
            return None
        rank = self.draw.choice(sorted(ranks))
        try:
            os.kill(ranks[rank], signal.SIGKILL)
        except ProcessLookupError:
            return None
        self.kills += 1
        if not list(directory.glob("step_*")):
            self.kills_before_first_checkpoint += 1
        self.check(directory, f"run {number}, after a kill of rank {rank}")
        return ranks[rank]

    def run(self, number, expected, duration):
        """Runs once; returns whether a rank could be killed before the run was over."""
        kills = self.kills
        directory = self.work / f"run_{number}"
        errors = self.work / f"run_{number}.txt"
        with open(errors, "w") as stderr:
            launcher = subprocess.Popen(self.command(directory, ["--max-restarts", str(self.options.max_restarts)]),
                                        stdout=subprocess.DEVNULL, stderr=stderr, env=self.environment())
        seen = set()
        for _ in range(self.draw.randint(1, self.options.kills)):
            deadline = time.monotonic() + self.draw.uniform(0.0, duration)
            while time.monotonic() < deadline and launcher.poll() is None:
                seen.update(ranks_of(launcher.pid).values())
                time.sleep(0.002)
            self.kill_one(launcher, directory, number)
        deadline = time.monotonic() + self.options.deadline
        while launcher.poll() is None and time.monotonic() < deadline:
            seen.update(ranks_of(launcher.pid).values())
            time.sleep(0.01)
        if launcher.poll() is None:
            self.failures.append(f"run {number} hangs")
            launcher.terminate()
            launcher.wait()
        self.judge(launcher, seen, number, directory, errors, expected)
        shutil.rmtree(directory)
        return self.kills > kills

    def judge(self, launcher, seen, number, directory, errors, expected):
        text = errors.read_text()
        self.restarts += text.count("; restart ")
        if launcher.returncode != 0:
            self.failures.append(f"run {number} ended with status {launcher.returncode}: {text.strip()}")
        elif tensor_files(newest(directory)) != expected:
            self.failures.append(f"run {number}: the weights or the optimizer's state differ from an undisturbed run's")
        self.check(directory, f"run {number}, at its end")
        left = [pid for pid in seen if is_alive(pid)]
        if left:
            self.failures.append(f"run {number} left processes: {left}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=os.path.realpath)
    parser.add_argument("scenario", type=os.path.realpath)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--kills", type=int, default=3, help="of a run, at most; fewer than or as many as restarts")
    parser.add_argument("--max-restarts", type=int, default=3)
    parser.add_argument("--every", type=int, default=5, help="steps from checkpoint to checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds until a run counts as hanging")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:end])
    options.run_options = words[end + 1:]
    with tempfile.TemporaryDirectory() as work:
        campaign = Campaign(options, pathlib.Path(work))
        expected, duration = campaign.undisturbed()
        number = untouched = 0
        while number < options.runs and untouched < 10 * options.runs:
            if campaign.run(number, expected, duration):
                number += 1
            else:
                untouched += 1
    if number < options.runs:
        campaign.failures.append(f"only {number} of {options.runs} runs could be killed before they were over")
    for failure in campaign.failures:
        print(f"FAILED: {failure}")
    print(f"{number} runs, {campaign.kills} kills ({campaign.kills_before_first_checkpoint} before the first checkpoint), "
          f"{campaign.restarts} restarts, {campaign.checked} checkpoints read, {len(campaign.failures)} failures")
    return 1 if campaign.failures else 0


if __name__ == "__main__":
    sys.exit(main())
