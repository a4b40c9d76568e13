#!/usr/bin/env python3
"""What a GPU sustains in the products and the attention of large models' layers, through PyTorch (cuBLASLt, FlashAttention-2, cuDNN).

    bench/torch_rates.py --json rates.json

Products of a layer run in turn, forward, for inputs and for weights, over and over for --seconds, so that clocks settle as they do within a
step; each is timed by events within that. Operands are random numbers and rotate through more than the L2 cache. bf16, and fp8 (e4m3,
scales of whole tensors, as torch._scaled_mm takes them: every operand row by row along k). Attention is causal, over 16,384 tokens, forward
and backward timed apart. Experts are sixteen products, one after the other and as one grouped product. Medians in microseconds, TFLOP/s.
"""
import argparse
import json
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

TOKENS = 8192
ROTATION = 256 << 20
# (inputs, outputs) of the layers of one tensor rank: queries/keys/values, projection, up (and gate), down.
LAYERS = {
    "llama3_8b": [(4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096)],
    "llama3_70b_tp4": [(8192, 2560), (2048, 8192), (8192, 14336), (7168, 8192)],
    "gpt3_175b_tp4": [(12288, 9216), (3072, 12288), (12288, 12288), (12288, 12288)],
    "llama3_405b_tp8": [(16384, 2304), (2048, 16384), (16384, 13312), (6656, 16384)],
}


def products_of(layers):
    """name, m, n, k of every product of a layer: m x n sums of k."""
    for inputs, outputs in layers:
        name = f"{inputs}->{outputs}"
        yield name + " forward", TOKENS, outputs, inputs
        yield name + " input gradient", TOKENS, inputs, outputs
        yield name + " weight gradient", outputs, inputs, TOKENS


def random(rows, columns, dtype):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16).to(dtype)


class Product:
    def __init__(self, name, m, n, k, fp8, fast=True):
        self.name, self.m, self.n, self.k = name, m, n, k
        dtype = torch.float8_e4m3fn if fp8 else torch.bfloat16
        size = (m * k + k * n) * dtype.itemsize
        self.sets = [(random(m, k, dtype), random(n, k, dtype)) for _ in range(max(2, min(8, ROTATION // size)))]
        self.fp8, self.fast, self.turn, self.marks = fp8, fast, 0, []
        # bf16 operands lie as autograd has them in memory: rows of inputs and rows of weights.
        if not fp8 and name.endswith("input gradient"):
            self.sets = [(a, b.t().contiguous().t()) for a, b in self.sets]
        elif not fp8 and name.endswith("weight gradient"):
            self.sets = [(a.t().contiguous().t(), b.t().contiguous().t()) for a, b in self.sets]
        self.one = torch.ones((), device="cuda")

    def run(self, timed):
        a, b = self.sets[self.turn % len(self.sets)]
        self.turn += 1
        if timed:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
        if self.fp8:
            torch._scaled_mm(a, b.t(), scale_a=self.one, scale_b=self.one, out_dtype=torch.bfloat16, use_fast_accum=self.fast)
        else:
            torch.mm(a, b.t())
        if timed:
            end.record()
            self.marks.append((begin, end))

    def result(self):
        times = sorted(1e3 * begin.elapsed_time(end) for begin, end in self.marks)
        median = statistics.median(times)
        return dict(name=self.name, m=self.m, n=self.n, k=self.k, us=median, p10_us=times[len(times) // 10],
                    p90_us=times[len(times) * 9 // 10], count=len(times), tflops=2e-6 * self.m * self.n * self.k / median)


def clock():
    """The multiprocessors' MHz, the watts and the degrees Celsius at this moment."""
    try:
        line = subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm,power.draw,temperature.gpu", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=5).stdout
        return [float(x) for x in line.split(",")]
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def sustained(items, seconds):
    """Runs all items in turn for `seconds`; only the second half is timed. The host is ahead by at most a round."""
    for item in items:
        item.run(False)
    torch.cuda.synchronize()
    begin, state = time.perf_counter(), None
    while (elapsed := time.perf_counter() - begin) < seconds:
        for item in items:
            item.run(elapsed > seconds / 2)
        if elapsed > 0.75 * seconds and state is None:
            state = clock()  # while the device works on what is queued
        torch.cuda.synchronize()
    return state


def products(seconds):
    results = []
    for model, layers in LAYERS.items():
        for kind, fp8, fast in (("bf16", False, True), ("fp8", True, True), ("fp8 precise", True, False)):
            try:
                items = [Product(*product, fp8, fast) for product in products_of(layers)]
                state = sustained(items, seconds)
                results.append(dict(layers=model, dtype=kind, clock_mhz_watts_celsius=state,
                                    products=[item.result() for item in items]))
            except Exception as error:
                results.append(dict(layers=model, dtype=kind, error=repr(error)[:300]))
            items = None
            torch.cuda.empty_cache()
    return results


class Attention:
    def __init__(self, seq, heads, kv_heads, width, backend):
        self.name, self.backend, self.marks = f"{heads}/{kv_heads}x{width} {seq} {backend.name}", backend, []
        batch = 16384 // seq
        shape = lambda n: (batch, n, seq, width)
        make = lambda n: torch.randn(batch, seq, n, width, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
        self.q, self.k, self.v = make(heads), make(kv_heads), make(kv_heads)
        self.dy = torch.randn(shape(heads), device="cuda", dtype=torch.bfloat16)
        self.grouped = {"enable_gqa": True} if heads != kv_heads else {}
        self.flops = 4 * batch * heads * width * (seq * (seq + 1) // 2)

    def run(self, timed):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        events[0].record()
        with sdpa_kernel(self.backend):
            y = F.scaled_dot_product_attention(self.q, self.k, self.v, is_causal=True, **self.grouped)
        events[1].record()
        torch.autograd.grad(y, (self.q, self.k, self.v), self.dy)
        events[2].record()
        if timed:
            self.marks.append(events)

    def result(self):
        forward = statistics.median(1e3 * a.elapsed_time(b) for a, b, _ in self.marks)
        backward = statistics.median(1e3 * b.elapsed_time(c) for _, b, c in self.marks)
        return dict(name=self.name, count=len(self.marks), forward_us=forward, backward_us=backward,
                    forward_tflops=1e-6 * self.flops / forward, backward_tflops=2.5e-6 * self.flops / backward)


def attention(seconds):
    results = []
    for heads, kv_heads, width in ((32, 8, 128), (32, 32, 128), (16, 16, 64)):
        for seq in (1024, 2048, 4096, 8192):
            if (heads, kv_heads) == (32, 32) and seq != 2048:
                continue
            for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
                try:
                    item = Attention(seq, heads, kv_heads, width, backend)
                    sustained([item], seconds)
                    results.append(item.result())
                except Exception as error:
                    results.append(dict(name=f"{heads}/{kv_heads}x{width} {seq} {backend.name}", error=repr(error)[:300]))
    return results


class Call:
    """Any function, timed whole."""

    def __init__(self, name, function, flops=0, moved=0):
        self.name, self.function, self.flops, self.moved, self.marks = name, function, flops, moved, []

    def run(self, timed):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        self.function()
        end.record()
        if timed:
            self.marks.append((begin, end))

    def result(self):
        median = statistics.median(1e3 * begin.elapsed_time(end) for begin, end in self.marks)
        return dict(name=self.name, count=len(self.marks), us=median, tflops=1e-6 * self.flops / median,
                    gbytes_per_s=1e-3 * self.moved / median)


def calls(seconds):
    """Experts, memory-bound kernels, copies."""
    bf16, device = torch.bfloat16, "cuda"
    made = []
    for rows in (1024, 4096):
        for inputs, outputs in ((2048, 1536), (768, 2048)):
            x = torch.randn(16 * rows, inputs, device=device, dtype=bf16)
            w = torch.randn(16, inputs, outputs, device=device, dtype=bf16)
            parts = x.view(16, rows, inputs)
            ends = torch.arange(1, 17, device=device, dtype=torch.int32) * rows
            flops = 2 * 16 * rows * inputs * outputs
            made.append(Call(f"16 experts {rows}x{inputs}->{outputs} apart", lambda p=parts, w=w: [p[i] @ w[i] for i in range(16)], flops))
            if hasattr(torch, "_grouped_mm"):
                made.append(Call(f"16 experts {rows}x{inputs}->{outputs} grouped", lambda x=x, w=w, e=ends: torch._grouped_mm(x, w, offs=e), flops))
    big, other = (torch.empty(1 << 30, device=device, dtype=bf16).normal_() for _ in range(2))
    made.append(Call("copy of 2 GiB", lambda: other.copy_(big), moved=4 << 30))
    x, y = (torch.randn(16384, 4096, device=device, dtype=bf16) for _ in range(2))
    wide = x.float()
    n = x.numel()
    made += [Call("add of bf16", lambda: x + y, moved=6 * n), Call("to fp32", lambda: x.float(), moved=6 * n),
             Call("to bf16", lambda: wide.to(bf16), moved=6 * n), Call("square of fp32", lambda: wide.pow(2), moved=8 * n),
             Call("product of fp32", lambda: wide * wide, moved=8 * n), Call("mean of fp32 rows", lambda: wide.mean(-1, keepdim=True), moved=4 * n),
             Call("product with a bf16 row", lambda: x * y[0], moved=4 * n), Call("silu", lambda: F.silu(x), moved=4 * n),
             Call("gelu", lambda: F.gelu(x), moved=4 * n), Call("sum over rows to a row", lambda: x.sum(0), moved=2 * n),
             Call("layer norm", lambda: F.layer_norm(x, (4096,)), moved=4 * n), Call("amax", lambda: x.abs().amax(), moved=2 * n),
             Call("e4m3", lambda: x.to(torch.float8_e4m3fn), moved=3 * n)]
    logits = torch.randn(8192, 32000, device=device)
    targets = torch.randint(32000, (8192,), device=device)
    needs = logits.clone().requires_grad_()

    def loss_and_gradient():
        needs.grad = None
        F.cross_entropy(needs, targets).backward()

    made += [Call("log-softmax of fp32", lambda: F.log_softmax(logits, -1), moved=8 * logits.numel()),
             Call("cross-entropy of fp32 and its gradient", loss_and_gradient, moved=20 * logits.numel())]
    results = []
    for call in made:
        try:
            sustained([call], seconds)
            results.append(call.result())
        except Exception as error:
            results.append(dict(name=call.name, error=repr(error)[:300]))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.2, help="of each layer's products; attention and others take a quarter")
    parser.add_argument("--json", required=True)
    a = parser.parse_args()
    torch.manual_seed(0)
    result = dict(torch=torch.__version__, cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(),
                  device=torch.cuda.get_device_name())
    for name, measure, seconds in (("products", products, a.seconds), ("attention", attention, a.seconds / 4),
                                   ("others", calls, a.seconds / 8)):
        begin = time.perf_counter()
        result[name] = measure(seconds)
        print(name, f"{time.perf_counter() - begin:.1f} s", flush=True)
        with open(a.json, "w") as file:
            json.dump(result, file)


if __name__ == "__main__":
    main()
