#!/usr/bin/env python3
"""Host time of transformer blocks in eager PyTorch, with tensors so small that nothing else counts.

Runs on a CPU: bench/framework_host.py. Prints microseconds of processor time, medians of seven runs of 400 passes, for a block as
MosaicML's MPT writes it (modules around each operator) and one as Megatron-LM of 2021 does (views, autograd functions, a fork of the
random state around dropout, bias-dropout-add as a script). cost_models/frameworks/*.json take ratios from it, never times: a
GPU's launches are not in them, and its host is another processor.
"""
import contextlib
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

SEQ, BATCH, HIDDEN, HEADS = 4, 1, 16, 2


class Same(torch.autograd.Function):
    """A tensor-parallel region on one rank: the identity, in both directions."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, dy):
        return dy


class FusedNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        y, mean, deviation = torch.native_layer_norm(x, [HIDDEN], weight, bias, 1e-5)
        ctx.save_for_backward(x, weight, bias, mean, deviation)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, bias, mean, deviation = ctx.saved_tensors
        return torch.ops.aten.native_layer_norm_backward(dy, x, [HIDDEN], mean, deviation, weight, bias, [True] * 3)


class FusedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y, torch.tensor([1.0]))
        return y

    @staticmethod
    def backward(ctx, dy):
        y, _ = ctx.saved_tensors
        return torch._softmax_backward_data(dy, y, -1, torch.float32)


class FusedGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias):
        ctx.save_for_backward(x, bias)
        return F.gelu(x)

    @staticmethod
    def backward(ctx, dy):
        x, _ = ctx.saved_tensors
        dx = torch.ops.aten.gelu_backward(dy, x)
        return dx, dx.sum((0, 1))


class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        ctx.save_for_backward(q, k, v)
        return torch.empty_like(q)

    @staticmethod
    def backward(ctx, dy):
        return tuple(torch.empty_like(x) for x in ctx.saved_tensors)


@contextlib.contextmanager
def forked_random_state():
    torch.set_rng_state(torch.get_rng_state())
    yield
    torch.set_rng_state(torch.get_rng_state())


def bias_dropout_add(x, bias, residual, p):
    # type: (Tensor, Tensor, Tensor, float) -> Tensor
    return residual + F.dropout(x + bias, p=p, training=True)


torch._C._jit_set_profiling_mode(False)
torch._C._jit_set_profiling_executor(False)
scripted_bias_dropout_add = torch.jit.script(bias_dropout_add)


class Parallel(nn.Module):
    """A column- or row-parallel linear layer."""

    def __init__(self, inputs, outputs, adds_bias):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.adds_bias = adds_bias

    def forward(self, x):
        y = F.linear(Same.apply(x), self.weight, self.bias if self.adds_bias else None)
        return y, None if self.adds_bias else self.bias


class MegatronNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))
        self.bias = nn.Parameter(torch.zeros(HIDDEN))

    def forward(self, x):
        return FusedNorm.apply(x, self.weight, self.bias)


class MegatronBlock(nn.Module):
    shape = (SEQ, BATCH, HIDDEN)

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = MegatronNorm(), MegatronNorm()
        self.qkv, self.dense = Parallel(HIDDEN, 3 * HIDDEN, True), Parallel(HIDDEN, HIDDEN, False)
        self.up, self.down = Parallel(HIDDEN, 4 * HIDDEN, False), Parallel(4 * HIDDEN, HIDDEN, False)
        self.dropout = nn.Dropout(0.1)

    def attend(self, mixed):
        mixed = mixed.view(*mixed.size()[:-1], HEADS, 3 * HIDDEN // HEADS)
        q, k, v = torch.split(mixed, HIDDEN // HEADS, dim=-1)
        heads = q.size(1) * q.size(2)
        q, k = q.view(q.size(0), heads, -1), k.view(k.size(0), heads, -1)
        scores = torch.empty(heads, SEQ, SEQ)
        scores = torch.baddbmm(scores, q.transpose(0, 1), k.transpose(0, 1).transpose(1, 2), beta=0.0, alpha=0.3)
        shares = FusedSoftmax.apply(scores.view(BATCH, HEADS, SEQ, SEQ).view(-1, SEQ, SEQ))
        shares = shares.view(BATCH, HEADS, SEQ, SEQ)
        with forked_random_state():
            shares = self.dropout(shares)
        v = v.view(v.size(0), heads, -1)
        context = torch.bmm(shares.view(heads, SEQ, -1), v.transpose(0, 1))
        context = context.view(BATCH, HEADS, SEQ, -1).permute(2, 0, 1, 3).contiguous()
        return context.view(SEQ, BATCH, HIDDEN)

    def forward(self, x):
        mixed, _ = self.qkv(self.norm1(x))
        y, bias = self.dense(self.attend(mixed))
        x = scripted_bias_dropout_add(y, bias.expand_as(x), x, 0.1)
        y, bias = self.up(self.norm2(x))
        y, bias = self.down(FusedGelu.apply(y, bias))
        return scripted_bias_dropout_add(y, bias.expand_as(x), x, 0.1)


class MptBlock(nn.Module):
    shape = (BATCH, SEQ, HIDDEN)

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN, bias=False), nn.Linear(4 * HIDDEN, HIDDEN, bias=False)
        self.gelu, self.dropout = nn.GELU(), nn.Dropout(0.0)

    def forward(self, x):
        q, k, v = (t.view(BATCH, SEQ, HEADS, -1) for t in self.qkv(self.norm1(x)).chunk(3, dim=2))
        context = FlashAttention.apply(q, k, v).reshape(BATCH, SEQ, HIDDEN)
        x = x + self.dropout(self.out(context))
        return x + self.dropout(self.down(self.gelu(self.up(self.norm2(x)))))


def microseconds(run, passes=400, runs=7):
    for _ in range(30):
        run()
    times = []
    for _ in range(runs):
        start = time.process_time()
        for _ in range(passes):
            run()
        times.append((time.process_time() - start) / passes * 1e6)
    return statistics.median(times)


def measure(make, layers=4):
    blocks = nn.Sequential(*[make() for _ in range(layers)])
    x = torch.randn(*make.shape, requires_grad=True)

    def step():
        blocks(x).sum().backward()
        for parameter in blocks.parameters():
            parameter.grad = None

    def without_gradients():
        with torch.no_grad():
            blocks(x)

    def checkpointed():
        y = x
        for block in blocks:
            y = checkpoint(block, y)
        y.sum().backward()
        for parameter in blocks.parameters():
            parameter.grad = None

    forward = microseconds(lambda: blocks(x)) / layers
    without = microseconds(without_gradients) / layers
    backward = microseconds(step) / layers - forward
    around = microseconds(checkpointed) / layers - without - forward - backward
    print(f"{make.__name__:14} forward {forward:6.0f}   without gradients {without:6.0f}   backward {backward:6.0f}   "
          f"around a recomputed block {around:6.0f} us")


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("torch", torch.__version__)
    for block in (MptBlock, MegatronBlock):
        measure(block)
