#!/usr/bin/env python3
"""PyTorch on one device: median step time and peak memory of the models of the GPU scenarios.

    bench/peer_pytorch.py --model gpt --layers 12 --hidden 768 --heads 12 --ffn 3072 --vocab 50304 --seq 1024 --micro 16

bf16 parameters, activations and gradients; AdamW over fp32 master weights with fp32 moments, fused; scaled_dot_product_attention, whose
best kernel PyTorch picks. eager is a plain loop, ddp and fsdp (version 2) wrap the model for a world of one rank. A step is timed from an idle device to an idle device, zero_grad to
optimizer included, as windtunnel times its own. Prints one line of JSON; --json FILE writes it there, too.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Block(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.llama = a.model == "llama"
        self.heads, self.kv_heads, self.width = a.heads, a.kv_heads, a.hidden // a.heads
        norm, bias = (RMSNorm, False) if self.llama else (nn.LayerNorm, True)
        self.norm1, self.norm2 = norm(a.hidden), norm(a.hidden)
        self.qkv = nn.Linear(a.hidden, (a.heads + 2 * a.kv_heads) * self.width, bias=bias)
        self.proj = nn.Linear(a.hidden, a.hidden, bias=bias)
        self.up = nn.Linear(a.hidden, (2 if self.llama else 1) * a.ffn, bias=bias)
        self.down = nn.Linear(a.ffn, a.hidden, bias=bias)

    def attend(self, x, angles):
        batch, length, _ = x.shape
        sizes = [n * self.width for n in (self.heads, self.kv_heads, self.kv_heads)]
        q, k, v = (z.view(batch, length, -1, self.width).transpose(1, 2) for z in self.qkv(x).split(sizes, -1))
        if self.llama:
            q, k = rotate(q, *angles), rotate(k, *angles)
        grouped = {"enable_gqa": True} if self.kv_heads != self.heads else {}
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, **grouped)
        return self.proj(out.transpose(1, 2).reshape(batch, length, -1))

    def forward(self, x, angles):
        x = x + self.attend(self.norm1(x), angles)
        h = self.up(self.norm2(x))
        if self.llama:
            gate, value = h.chunk(2, -1)
            return x + self.down(F.silu(gate) * value)
        return x + self.down(F.gelu(h))


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.llama = a.model == "llama"
        self.tokens = nn.Embedding(a.vocab, a.hidden)
        self.positions = None if self.llama else nn.Embedding(a.seq, a.hidden)
        self.blocks = nn.ModuleList(Block(a) for _ in range(a.layers))
        self.norm = RMSNorm(a.hidden) if self.llama else nn.LayerNorm(a.hidden)
        self.head = nn.Linear(a.hidden, a.vocab, bias=False)
        self.head.weight = self.tokens.weight
        half = a.hidden // a.heads // 2
        angle = torch.outer(torch.arange(a.seq).float(), 10000.0 ** (-torch.arange(half).float() / half))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions(torch.arange(ids.shape[1], device=ids.device))
        angles = (self.cos.to(x.dtype), self.sin.to(x.dtype))
        for block in self.blocks:
            x = block(x, angles)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class MasterAdamW:
    """bf16 parameters, updated by way of fp32 master weights; gradients are converted for it."""

    def __init__(self, parameters, fused):
        self.parameters = [p for p in parameters if p.requires_grad]
        self.masters = [p.detach().float().clone().requires_grad_() for p in self.parameters]
        self.inner = torch.optim.AdamW(self.masters, lr=3e-4, weight_decay=0.01, fused=fused)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    def step(self):
        for master, parameter in zip(self.masters, self.parameters):
            master.grad = parameter.grad.float()
        self.inner.step()
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.masters)
        for master in self.masters:
            master.grad = None


def prepare(a, device):
    model = Model(a).to(device)
    if a.mode == "fsdp":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        return model, torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=device.type == "cuda")
    model = model.to(torch.bfloat16)
    optimizer = MasterAdamW(model.parameters(), device.type == "cuda")
    if a.mode == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    return model, optimizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--mode", default="eager", choices=("eager", "ddp", "fsdp"))
    parser.add_argument("--model", default="gpt", choices=("gpt", "llama"))
    for name, value in dict(layers=12, hidden=768, heads=12, kv_heads=0, ffn=3072, vocab=50304, seq=1024, micro=16,
                            steps=20, warmup=5).items():
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--json")
    a = parser.parse_args()
    a.kv_heads = a.kv_heads or a.heads
    device = torch.device(a.device)
    wait = torch.cuda.synchronize if a.device == "cuda" else lambda: None
    torch.manual_seed(0)
    if a.mode != "eager":
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
        torch.distributed.init_process_group("nccl" if a.device == "cuda" else "gloo")
    model, optimizer = prepare(a, device)
    batches = [torch.randint(a.vocab, (2, a.micro, a.seq), device=device) for _ in range(4)]
    times = []
    for step in range(a.warmup + a.steps):
        if step == a.warmup and a.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        ids, targets = batches[step % len(batches)]
        wait()
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = model(ids, targets)
        loss.backward()
        optimizer.step()
        wait()
        times.append(time.perf_counter() - begin)
    measured = sorted(times[a.warmup:])
    result = dict(peer="pytorch " + torch.__version__, mode=a.mode, device=torch.cuda.get_device_name() if a.device == "cuda" else "cpu",
                  model={k: v for k, v in vars(a).items() if k not in ("json",)},
                  parameters=sum(p.numel() for p in model.parameters()),
                  median_s=statistics.median(measured), p10_s=measured[len(measured) // 10],
                  p90_s=measured[int(0.9 * len(measured))], loss=float(loss))
    if a.device == "cuda":
        result["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
        result["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
    text = json.dumps(result)
    print(text)
    if a.json:
        with open(a.json, "w") as file:
            file.write(text + "\n")
    if a.mode != "eager":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
