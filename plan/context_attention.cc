#include "plan/context_attention.h"

namespace windtunnel {

AttentionDims ContextAttention::CoreDims() const {
  AttentionDims core = dims_;
  if (exchanges_heads()) {
    core.seq *= context_.ranks();
    core.heads /= context_.ranks();
    core.kv_heads /= context_.ranks();
  }
  if (core.document > 0) {
    core.batch *= core.seq / core.document;
    core.seq = core.document;
  }
  return core;
}

Slice ContextAttention::Workspace(bool backward) const {
  const AttentionDims core = CoreDims();
  const int64_t elements = is_plain() ? AttentionWorkspaceElements(core.seq, core.keys(), backward)
                                      : AttentionWorkspaceElements(dims_.seq * blocks(), backward);
  return c_.b.Temporary(name_ + ".workspace", elements, Category::kWorkspace);
}

// ---- ulysses

Slice ContextAttention::Enter(Slice qkv) const {
  if (!exchanges_heads()) return qkv;
  return Heads().ToHeads(qkv, dims_.parts(), name_ + ".qkv");
}

Slice ContextAttention::Leave(Slice out) const {
  return exchanges_heads() ? Heads().ToTokens(out, {dims_.out_columns()}, name_ + ".out") : out;
}

// ---- ring and all_gather

Slice ContextAttention::KeysAndValues(Slice qkv) const {
  const Slice kv = c_.Activation(name_ + ".kv", dims_.tokens() * dims_.key_columns());
  c_.b.Add(CopyColumns{dims_.tokens(), dims_.key_columns(), dims_.query_columns(), dims_.packed_columns(), 0,
                       dims_.key_columns(), dims_.dtype},
           name_ + ".kv", {qkv}, {kv});
  return kv;
}

Slice ContextAttention::Gathered(Slice kv) const {
  const Slice all = c_.Activation(name_ + ".kv.gathered", kv.elements * context_.ranks());
  c_.b.WaitBeforeUse(all, context_.stream->AllGather(c_.b, kv, all, name_ + ".kv", c_.b.BeforeNextCompute()));
  return all;
}

// The shift is under way while the operators added next are computed.
Slice ContextAttention::Shifted(Slice x, const std::string& name) const {
  const Slice y = c_.Activation(name, x.elements);
  c_.b.WaitBeforeUse(y, context_.stream->Shift(c_.b, x, y, name, c_.b.BeforeNextCompute()));
  return y;
}

ContextAttention::Core ContextAttention::ForwardBlock(Slice qkv, Slice kv, int step) const {
  const std::string name = steps() > 1 ? fmt::format("{}.{}", name_, step) : name_;
  const Core core = {
      c_.Activation(name + ".out", dims_.tokens() * dims_.out_columns()),
      c_.b.Temporary(name + ".log_sum_exp", dims_.batch * dims_.heads * dims_.seq, Category::kActivations)};
  const Slice workspace = Workspace(false);
  c_.b.Add(ContextAttentionForward{dims_.batch, dims_.seq, dims_.heads, dims_.kv_heads, dims_.head_dim,
                                   context_.ranks(), blocks(), step, dims_.dtype, DropsWithin(), dims_.window,
                                   dims_.causal, dims_.value_dim},
           name, {qkv, kv}, {core.out, core.saved, workspace});
  return core;
}

DropoutSite ContextAttention::DropsWithin() const {
  if (!dims_.drops_within || c_.b.evaluates()) return {};
  return DropoutSiteOf(dims_.dropout, name_ + ".probabilities", c_.b.micro_batch(), c_.visit);
}

bool ContextAttention::drops_apart() const {
  return dims_.dropout > 0 && !dims_.drops_within && dims_.kind == AttentionKind::kEager && !c_.b.evaluates();
}

// Dropout as a pass of its own over eager's probabilities, whose two forms and the mask are kept (Korthikanti
// et al. 2022, table of activations: 5 bytes per element in 16 bits).
void ContextAttention::Drop(Core& core) const {
  const int64_t elements = core.saved.elements;
  const DType type = dims_.fp32_softmax ? DType::kFloat32 : dims_.dtype;
  core.dropped = c_.b.Temporary(name_ + ".dropped", elements, Category::kActivations, type);
  core.mask = c_.b.Temporary(name_ + ".dropout.mask", elements, Category::kActivations, DType::kUInt8);
  c_.b.Add(Dropout{elements, false, type}, name_ + ".dropout", {core.saved}, {core.dropped, core.mask});
  if (dims_.fp32_softmax) core.rounded = core.dropped = Rounded(core.dropped, name_ + ".dropped.rounded");
}

// fp32 probabilities as the product with values takes them.
Slice ContextAttention::Rounded(Slice probabilities, const std::string& name) const {
  const Slice rounded = c_.Activation(name, probabilities.elements);
  c_.b.Add(Copy{.elements = probabilities.elements, .from = DType::kFloat32, .to = dims_.dtype}, name,
           {probabilities}, {rounded});
  return rounded;
}

ContextAttention::Core ContextAttention::PlainForward(std::vector<Slice> inputs) const {
  const AttentionDims d = CoreDims();
  const int64_t rows = d.batch * d.heads * d.seq;
  Core core = {c_.Activation(name_ + ".out", d.tokens() * d.out_columns()),
               d.kind == AttentionKind::kEager
                   ? c_.b.Temporary(name_ + ".probabilities", rows * d.keys(), Category::kActivations,
                                    d.fp32_softmax ? DType::kFloat32 : d.dtype)
                   : c_.b.Temporary(name_ + ".log_sum_exp", rows, Category::kActivations)};
  const Slice workspace = Workspace(false);
  c_.b.Add(AttentionForward{d.batch, d.seq, d.heads, d.kv_heads, d.head_dim, d.kind, d.dtype, d.value_dim,
                            d.window, DropsWithin(), exchanges_heads() ? context_.ranks() : 1, d.causal,
                            d.fp32_softmax, d.key_seq, d.biased},
           name_, std::move(inputs), {core.out, core.saved, workspace});
  if (drops_apart()) Drop(core);
  else if (d.fp32_softmax) core.rounded = Rounded(core.saved, name_ + ".probabilities.rounded");
  return core;
}

void ContextAttention::PlainBackward(Slice dout, const std::vector<Slice>& inputs, const Core& core,
                                     std::vector<Slice> gradients) const {
  const AttentionDims d = CoreDims();
  gradients.push_back(Workspace(true));
  if (core.mask.buffer >= 0) {
    // (What it writes stands for the gradient, which has no buffer of its own.)
    const Slice& place = d.fp32_softmax ? core.saved : core.dropped;
    c_.b.Add(Dropout{place.elements, true, d.fp32_softmax ? DType::kFloat32 : d.dtype}, name_ + ".dropout",
             {place, core.mask}, {place});
  }
  std::vector<Slice> reads = {dout};
  reads.insert(reads.end(), inputs.begin(), inputs.end());
  reads.insert(reads.end(), {core.out, core.saved});
  if (core.rounded.buffer >= 0) reads.push_back(core.rounded);
  c_.b.Add(
      AttentionBackward{d.batch, d.seq, d.heads, d.kv_heads, d.head_dim, d.kind, d.dtype, d.deterministic,
                        d.value_dim, d.window, DropsWithin(), exchanges_heads() ? context_.ranks() : 1,
                        d.causal, d.fp32_softmax, d.key_seq, d.biased},
      name_, std::move(reads), std::move(gradients));
}

ContextAttention::Core ContextAttention::ForwardCross(Slice queries, Slice keys) const {
  return PlainForward({queries, keys});
}

ContextAttention::CrossGradients ContextAttention::BackwardCross(Slice dout, Slice queries, Slice keys,
                                                                 const Core& core) const {
  const CrossGradients gradients = {c_.Activation(name_ + ".dq", queries.elements),
                                    c_.Activation(name_ + ".dkv", keys.elements)};
  PlainBackward(dout, {queries, keys}, core, {gradients.queries, gradients.keys});
  return gradients;
}

ContextAttention::Core ContextAttention::Forward(Slice qkv, Slice bias) const {
  if (dims_.biased) return PlainForward({qkv, bias});
  if (is_plain()) return PlainForward({qkv});
  Slice kv = KeysAndValues(qkv);
  if (steps() == 1) return ForwardBlock(qkv, Gathered(kv), 0);
  Core all;
  for (int step = 0; step < steps(); ++step) {
    const Slice next = step + 1 < steps() ? Shifted(kv, fmt::format("{}.kv.{}", name_, step + 1)) : kNoSlice;
    const Core block = ForwardBlock(qkv, kv, step);
    if (step == 0) {
      all = block;
    } else {
      c_.b.Add(MergeAttention{dims_.batch, dims_.seq, dims_.heads, dims_.values(), dims_.dtype}, name_,
               {block.out, block.saved}, {all.out, all.saved});
    }
    kv = next;
  }
  return all;
}

Slice ContextAttention::BackwardBlock(Slice dout, Slice qkv, Slice kv, const Core& core, int step,
                                      Slice dqkv) const {
  const std::string name = steps() > 1 ? fmt::format("{}.{}", name_, step) : name_;
  const Slice dkv = c_.Activation(name + ".dkv", kv.elements);
  const Slice workspace = Workspace(true);
  c_.b.Add(ContextAttentionBackward{dims_.batch, dims_.seq, dims_.heads, dims_.kv_heads, dims_.head_dim,
                                    context_.ranks(), blocks(), step, step > 0, dims_.dtype, DropsWithin(),
                                    dims_.window, dims_.causal, dims_.value_dim},
           name, {dout, qkv, kv, core.out, core.saved}, {dqkv, dkv, workspace});
  return dkv;
}

Slice ContextAttention::Backward(Slice dout, Slice qkv, const Core& core, Slice* dscores) const {
  if (is_plain()) {
    const AttentionDims d = CoreDims();
    if (exchanges_heads()) dout = Heads().ToHeads(dout, {dims_.out_columns()}, name_ + ".dout");
    const Slice dqkv = c_.Activation(name_ + ".dqkv", d.tokens() * d.packed_columns());
    std::vector<Slice> gradients = {dqkv};
    if (dims_.biased) {
      *dscores = c_.Activation(name_ + ".dscores", d.batch * d.heads * d.seq * d.seq);
      gradients.push_back(*dscores);
    }
    PlainBackward(dout, {qkv}, core, std::move(gradients));
    return exchanges_heads() ? Heads().ToTokens(dqkv, dims_.parts(), name_ + ".dqkv") : dqkv;
  }
  Slice kv = KeysAndValues(qkv), dkv;
  const Slice dqkv = c_.Activation(name_ + ".dqkv", dims_.tokens() * dims_.packed_columns());
  if (steps() == 1) {
    const Slice all = BackwardBlock(dout, qkv, Gathered(kv), core, 0, dqkv);
    dkv = c_.Activation(name_ + ".dkv.own", kv.elements);
    c_.b.WaitBeforeUse(
        dkv, context_.stream->ReduceScatter(c_.b, all, dkv, name_ + ".dkv", c_.b.BeforeNextCompute()));
  } else {
    for (int step = 0; step < steps(); ++step) {
      const Slice next =
          step + 1 < steps() ? Shifted(kv, fmt::format("{}.kv.{}", name_, step + 1)) : kNoSlice;
      const Slice block = BackwardBlock(dout, qkv, kv, core, step, dqkv);
      if (step > 0) {
        c_.b.Add(Copy{.elements = block.elements, .from = dims_.dtype, .to = dims_.dtype, .accumulate = true},
                 name_ + ".dkv", {dkv}, {block});
      }
      dkv = Shifted(block, fmt::format("{}.dkv.{}", name_, step + 1));
      kv = next;
    }
  }
  c_.b.Add(CopyColumns{dims_.tokens(), dims_.key_columns(), 0, dims_.key_columns(), dims_.query_columns(),
                       dims_.packed_columns(), dims_.dtype},
           name_ + ".dkv", {dkv}, {dqkv});
  return dqkv;
}

}  // namespace windtunnel
