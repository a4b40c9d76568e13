#!/usr/bin/env python3
"""PyTorch on one device: median step time and peak memory of the models of the GPU scenarios.

    bench/peer_pytorch.py --model gpt --layers 12 --hidden 768 --heads 12 --ffn 3072 --vocab 50304 --seq 1024 --micro 16

bf16 parameters, activations and gradients; AdamW over fp32 master weights with fp32 moments, fused; scaled_dot_product_attention, whose
best kernel PyTorch picks. eager is a plain loop, ddp and fsdp (version 2) wrap the model for a world of one rank. A step is timed from an
idle device to an idle device, zero_grad to optimizer included, as windtunnel times its own. Prints one line of JSON; --json FILE writes it
there, too.

--style trainer is what `framework: pytorch` predicts: Llamas with a module for each of queries, keys, values, gate and up, RMS norms and
rotary positions of elementary operators as Meta and torchtitan wrote them, and losses in fp32. --compile compiles each block
(`framework: pytorch_compile`). --kernels adds what each kernel of the device takes, from torch.profiler, over two further steps.
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


class ElementaryRMSNorm(RMSNorm):
    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def rotate_complex(x, angles):
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * angles).flatten(-2).to(x.dtype)


class Apart(nn.Module):
    """Linear layers of one common input, each with its own weights; returns their outputs."""

    def __init__(self, inputs, outputs, bias):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(inputs, columns, bias=bias) for columns in outputs)

    def forward(self, x):
        return [layer(x) for layer in self.layers]


class Stacked(nn.Module):
    """The same layers with their weights in one linear layer."""

    def __init__(self, inputs, outputs, bias):
        super().__init__()
        self.outputs = outputs
        self.layer = nn.Linear(inputs, sum(outputs), bias=bias)

    def forward(self, x):
        return self.layer(x).split(self.outputs, -1)


class Block(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.llama = a.model == "llama"
        self.heads, self.kv_heads, self.width = a.heads, a.kv_heads, a.hidden // a.heads
        self.apart = self.llama and a.style == "trainer"
        norm, bias = (norm_of(a), False) if self.llama else (nn.LayerNorm, True)
        self.norm1, self.norm2 = norm(a.hidden), norm(a.hidden)
        layers = Apart if self.apart else Stacked
        self.qkv = layers(a.hidden, [heads * self.width for heads in (a.heads, a.kv_heads, a.kv_heads)], bias)
        self.proj = nn.Linear(a.hidden, a.hidden, bias=bias)
        self.up = layers(a.hidden, [a.ffn] * (2 if self.llama else 1), bias)
        self.down = nn.Linear(a.ffn, a.hidden, bias=bias)
        self.drop = nn.Dropout(a.dropout)

    def attend(self, x, angles):
        batch, length, _ = x.shape
        q, k, v = (z.view(batch, length, -1, self.width) for z in self.qkv(x))
        if self.apart:
            q, k = rotate_complex(q, angles), rotate_complex(k, angles)
        q, k, v = (z.transpose(1, 2) for z in (q, k, v))
        if self.llama and not self.apart:
            q, k = rotate(q, *angles), rotate(k, *angles)
        grouped = {"enable_gqa": True} if self.kv_heads != self.heads else {}
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=self.drop.p, is_causal=True, **grouped)
        return self.drop(self.proj(out.transpose(1, 2).reshape(batch, length, -1)))

    def forward(self, x, angles):
        x = x + self.attend(self.norm1(x), angles)
        h = self.up(self.norm2(x))
        if self.llama:
            gate, value = h
            return x + self.drop(self.down(F.silu(gate) * value))
        return x + self.drop(self.down(F.gelu(h[0])))


def norm_of(a):
    return ElementaryRMSNorm if a.style == "trainer" else RMSNorm


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.llama = a.model == "llama"
        self.loss_type = torch.float32 if a.style == "trainer" else None
        self.apart = self.llama and a.style == "trainer"
        self.tokens = nn.Embedding(a.vocab, a.hidden)
        self.positions = None if self.llama else nn.Embedding(a.seq, a.hidden)
        self.blocks = nn.ModuleList(Block(a) for _ in range(a.layers))
        self.drop = nn.Dropout(a.dropout)
        self.norm = norm_of(a)(a.hidden) if self.llama else nn.LayerNorm(a.hidden)
        self.head = nn.Linear(a.hidden, a.vocab, bias=False)
        if not a.untied:
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
        if self.apart:
            angles = torch.complex(self.cos.float(), self.sin.float())[:, None]
        else:
            angles = (self.cos.to(x.dtype), self.sin.to(x.dtype))
        x = self.drop(x)
        for block in self.blocks:
            x = block(x, angles)
        logits = self.head(self.norm(x)).flatten(0, 1)
        return F.cross_entropy(logits.to(self.loss_type or logits.dtype), targets.flatten())


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
    with torch.device(device):
        model = Model(a)
    if a.compile:
        for block in model.blocks:
            block.compile(dynamic=False)
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


def kernels_of(step):
    """The device's kernels and copies in two steps: name, count and total microseconds, sorted by time."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as profiler:
        for _ in range(2):
            step()
        torch.cuda.synchronize()
    totals = {}
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            total = totals.setdefault(event.name[:160], [0, 0.0])
            total[0] += 1
            total[1] += event.time_range.elapsed_us()
    operators = [(row.key, str(row.input_shapes)[:200], row.count, row.self_device_time_total)
                 for row in profiler.key_averages(group_by_input_shape=True) if row.self_device_time_total > 0]
    return dict(steps=2, kernels=sorted(([name, *total] for name, total in totals.items()), key=lambda row: -row[2])[:150],
                operators=sorted(operators, key=lambda row: -row[3])[:200])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--mode", default="eager", choices=("eager", "ddp", "fsdp"))
    parser.add_argument("--model", default="gpt", choices=("gpt", "llama"))
    for name, value in dict(layers=12, hidden=768, heads=12, kv_heads=0, ffn=3072, vocab=50304, seq=1024, micro=16,
                            steps=20, warmup=5).items():
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--style", default="peer", choices=("peer", "trainer"))
    parser.add_argument("--untied", action="store_true", help="a head with weights of its own")
    parser.add_argument("--dropout", type=float, default=0.0,
                        help="of embeddings, of attention's probabilities, and of what attention and MLP add")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--kernels", action="store_true")
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

    def train(step):
        optimizer.zero_grad()
        loss = model(*batches[step % len(batches)])
        loss.backward()
        optimizer.step()
        return loss

    times = []
    for step in range(a.warmup + a.steps):
        if step == a.warmup and a.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        wait()
        begin = time.perf_counter()
        loss = train(step)
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
        free, total = torch.cuda.mem_get_info()
        result["device_bytes_in_use"] = total - free
    text = json.dumps(result)
    print(text)
    if a.kernels:
        try:
            text = json.dumps(dict(result, profile=kernels_of(lambda: train(0))))
        except Exception as error:  # the measurement stands without its profile
            print("no profile of kernels:", repr(error))
    if a.json:
        with open(a.json, "w") as file:
            file.write(text + "\n")
    if a.mode != "eager":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
