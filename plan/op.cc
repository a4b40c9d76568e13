#include "plan/op.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include "plan/op_visit.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

std::string_view Flag(bool set, std::string_view text) { return set ? text : std::string_view(); }

template <typename Attention>
std::string AttentionKey(std::string_view direction, const Attention& a) {
  return fmt::format(
      FMT_COMPILE("attention_{} {} {} b={} s={}{} h={} kv={} d={}{}{}{}{}{}"), direction, WordOf(a.kind),
      Name(a.dtype), a.batch, a.seq, a.key_seq == 0 ? "" : fmt::format(FMT_COMPILE(" keys={}"), a.key_seq),
      a.heads, a.kv_heads, a.head_dim,
      a.values() == a.head_dim ? "" : fmt::format(FMT_COMPILE(" v={}"), a.values()),
      a.window == 0 ? "" : fmt::format(FMT_COMPILE(" w={}"), a.window), Flag(!a.causal, " bidirectional"),
      Flag(a.fp32_softmax, " fp32_softmax"), Flag(a.biased, " biased"));
}

// For operators over experts.
std::string GroupsSuffix(int64_t groups) {
  return groups == 0 ? std::string() : fmt::format(FMT_COMPILE(" groups={}"), groups);
}

// fp32 is not written.
std::string TypeSuffix(DType dtype) {
  return dtype == DType::kFloat32 ? std::string() : fmt::format(FMT_COMPILE(" {}"), Name(dtype));
}

std::string_view NameOf(Copy::Crosses crosses) {
  switch (crosses) {
    case Copy::Crosses::kNothing:
      return "";
    case Copy::Crosses::kToDevice:
      return " to_device";
    case Copy::Crosses::kToHost:
      return " to_host";
  }
  return "?";
}

// ---- cost keys, one function a kind

std::string KeyOf(const Gemm& g) {
  return fmt::format(FMT_COMPILE("gemm {} {}{} m={} n={} k={}{}{}{}{}{}{}{}"), Name(g.dtype),
                     g.transpose_a ? 't' : 'n', g.transpose_b ? 't' : 'n', g.m, g.n, g.k,
                     Flag(g.bias, " bias"), Flag(g.accumulate, " accumulate"), Flag(g.is_forward, " forward"),
                     Flag(g.fast_accumulation, " fast_accumulation"), Flag(g.of_blocks, " of_blocks"),
                     Flag(g.of_optimizer, " of_optimizer"),
                     g.streams > 1 ? fmt::format(FMT_COMPILE(" streams={}"), g.streams) : "");
}

std::string KeyOf(const GroupedGemm& g) {
  return fmt::format(FMT_COMPILE("grouped_gemm {} {}{} groups={} m={} n={} k={}{}{}{}{}"), Name(g.dtype),
                     g.transpose_a ? 't' : 'n', g.transpose_b ? 't' : 'n', g.groups, g.m, g.n, g.k,
                     Flag(g.accumulate, " accumulate"), Flag(g.is_forward, " forward"),
                     Flag(g.fast_accumulation, " fast_accumulation"), Flag(g.of_blocks, " of_blocks"));
}

template <typename R>
std::string RouteKey(std::string_view name, const R& r) {
  return fmt::format(FMT_COMPILE("{} {} tokens={} experts={} top_k={}"), name, Name(r.dtype), r.tokens,
                     r.experts, r.top_k);
}

std::string KeyOf(const RouteTokens& r) {
  const std::string key = RouteKey("route", r);
  return r.is_limited()
             ? fmt::format(FMT_COMPILE("{} groups={} top_k_groups={}"), key, r.groups, r.top_k_groups)
             : key;
}

std::string KeyOf(const RouteTokensBackward& r) { return RouteKey("route_backward", r); }

std::string TokenRowsKey(std::string_view name, const TokenRows& t) {
  return fmt::format(FMT_COMPILE("{} {} tokens={} hidden={} top_k={} rows={}"), name, Name(t.dtype), t.tokens,
                     t.hidden, t.top_k, t.rows);
}

std::string KeyOf(const DispatchTokens& d) {
  return TokenRowsKey("dispatch_tokens", d) + std::string(Flag(d.counted, " counted"));
}

std::string KeyOf(const CombineTokens& c) {
  return TokenRowsKey("combine_tokens", c) + std::string(Flag(c.weighted, " weighted"));
}

std::string KeyOf(const CombineBackward& c) {
  return TokenRowsKey("combine_backward", c) + std::string(Flag(!c.weighted, " unweighted"));
}

template <typename Conversion>
std::string ConversionSuffix(const Conversion& c) {
  return (c.shared_by > 1 ? fmt::format(FMT_COMPILE(" shared_by={}"), c.shared_by) : "") +
         (c.groups > 1 ? fmt::format(FMT_COMPILE(" groups={}"), c.groups) : "");
}

std::string KeyOf(const Fp8Amax& a) {
  return fmt::format(FMT_COMPILE("fp8_amax {} rows={} columns={}{}{}"), Name(a.dtype), a.rows, a.columns,
                     Flag(a.of == Fp8Amax::Of::kEachRow, " by_row"),
                     Flag(a.of == Fp8Amax::Of::kEachColumn, " by_column")) +
         ConversionSuffix(a) + std::string(Flag(a.together, " together"));
}

std::string KeyOf(const Fp8Cast& c) {
  return fmt::format(FMT_COMPILE("fp8_cast {} {} rows={} columns={}{}"), Name(c.dtype), WordOf(c.recipe),
                     c.rows, c.columns, Flag(c.transposed, " transposed")) +
         ConversionSuffix(c) +
         fmt::format(FMT_COMPILE("{}{}"), Flag(c.with_other, " with_other"), Flag(c.together, " together"));
}

std::string KeyOf(const ColumnSum& c) {
  return fmt::format(FMT_COMPILE("column_sum rows={} columns={}{}{}{}{}"), c.rows, c.columns,
                     Flag(c.accumulate, " accumulate"), GroupsSuffix(c.groups), Flag(c.apart, " apart"),
                     TypeSuffix(c.dtype));
}

std::string KeyOf(const SumParts& s) {
  return fmt::format(FMT_COMPILE("sum_parts {} parts={} n={}"), Name(s.dtype), s.parts, s.elements);
}

std::string KeyOf(const Quantize& q) {
  return fmt::format(FMT_COMPILE("quantize {} n={}"), Name(q.to), q.numbers);
}

std::string KeyOf(const Dequantize& d) {
  return fmt::format(FMT_COMPILE("dequantize {} {} n={}{}"), Name(d.from), Name(d.to), d.numbers,
                     d.runs() > 1 ? fmt::format(FMT_COMPILE(" runs={}"), d.runs()) : "");
}

std::string KeyOf(const AddBias& a) {
  return fmt::format(FMT_COMPILE("add_bias rows={} columns={}{}{}{}"), a.rows, a.columns,
                     GroupsSuffix(a.groups), Flag(a.apart, " apart"), TypeSuffix(a.dtype));
}

std::string KeyOf(const NormForward& n) {
  return fmt::format(FMT_COMPILE("norm_forward {} rows={} columns={}{}{}{}"), WordOf(n.kind), n.rows,
                     n.columns, Flag(n.bias, " bias"), Flag(n.residual, " residual"), TypeSuffix(n.dtype));
}

std::string KeyOf(const NormBackward& n) {
  return fmt::format(FMT_COMPILE("norm_backward {} rows={} columns={}{}{}{}{}{}"), WordOf(n.kind), n.rows,
                     n.columns, Flag(n.bias, " bias"), Flag(n.residual, " residual"),
                     Flag(n.accumulate, " accumulate"), Flag(n.frozen, " frozen"), TypeSuffix(n.dtype));
}

template <typename HeadNorm>
std::string HeadNormKey(std::string_view direction, const HeadNorm& n) {
  return fmt::format(FMT_COMPILE("head_norm_{} t={} h={} kv={} d={}{}"), direction, n.tokens, n.heads,
                     n.kv_heads, n.head_dim, Flag(n.whole, " whole"));
}

std::string KeyOf(const HeadNormForward& n) { return HeadNormKey("forward", n) + TypeSuffix(n.dtype); }

std::string KeyOf(const HeadNormBackward& n) {
  return HeadNormKey("backward", n) + std::string(Flag(n.accumulate, " accumulate")) +
         std::string(Flag(n.frozen, " frozen")) + TypeSuffix(n.dtype);
}

std::string KeyOf(const AttentionForward& a) {
  return AttentionKey("forward", a) + std::string(Flag(a.dropout.drops(), " dropout"));
}

std::string KeyOf(const AttentionBackward& a) {
  return fmt::format(FMT_COMPILE("{}{}{}"), AttentionKey("backward", a),
                     Flag(a.deterministic, " deterministic"), Flag(a.dropout.drops(), " dropout"));
}

template <typename Attention>
std::string ContextAttentionKey(std::string_view direction, const Attention& a) {
  const std::string_view place = a.blocks > 1 ? "all" : a.step == 0 ? "own" : "other";
  return fmt::format(FMT_COMPILE("context_attention_{} {} b={} s={} h={} kv={} d={}{}{}{} blocks={} {}"),
                     direction, Name(a.dtype), a.batch, a.seq, a.heads, a.kv_heads, a.head_dim,
                     a.values() == a.head_dim ? "" : fmt::format(FMT_COMPILE(" v={}"), a.values()),
                     a.window == 0 ? "" : fmt::format(FMT_COMPILE(" w={}"), a.window),
                     Flag(!a.causal, " bidirectional"), a.blocks, place);
}

std::string KeyOf(const ContextAttentionForward& a) {
  return ContextAttentionKey("forward", a) + std::string(Flag(a.dropout.drops(), " dropout"));
}

std::string KeyOf(const ContextAttentionBackward& a) {
  return fmt::format(FMT_COMPILE("{}{}{}"), ContextAttentionKey("backward", a),
                     Flag(a.accumulate, " accumulate"), Flag(a.dropout.drops(), " dropout"));
}

std::string KeyOf(const MergeAttention& m) {
  return fmt::format(FMT_COMPILE("merge_attention {} b={} s={} h={} d={}"), Name(m.dtype), m.batch, m.seq,
                     m.heads, m.value_dim);
}

std::string KeyOf(const CopyColumns& c) {
  return fmt::format(FMT_COMPILE("copy_columns {} rows={} columns={} from={} to={}"), Name(c.dtype), c.rows,
                     c.columns, c.from_stride, c.to_stride);
}

std::string KeyOf(const SplitColumns& s) {
  return fmt::format(FMT_COMPILE("{}_columns {} ranks={} rows={} columns={}"), s.join ? "join" : "split",
                     Name(s.dtype), s.ranks, s.rows, Sum(s.columns));
}

std::string KeyOf(const SwapBlocks& s) {
  return fmt::format(FMT_COMPILE("swap_blocks {} outer={} inner={} length={}{}{}"), Name(s.dtype), s.outer,
                     s.inner, s.length, Flag(s.chunks == SwapBlocks::Chunks::kFromZigzag, " from_zigzag"),
                     Flag(s.chunks == SwapBlocks::Chunks::kToZigzag, " to_zigzag"));
}

std::string KeyOf(const Dropout& d) {
  return fmt::format(FMT_COMPILE("dropout {} n={}{}"), Name(d.dtype), d.elements,
                     Flag(d.backward, " backward"));
}

std::string KeyOf(const Rope& r) {
  const std::string rotated = r.is_partial() ? fmt::format(" rope={}", r.rotated) : "";
  return fmt::format(FMT_COMPILE("rope b={} s={} h={} kv={} d={}{}{}{}"), r.batch, r.seq, r.heads, r.kv_heads,
                     r.head_dim, rotated, Flag(r.backward, " backward"), TypeSuffix(r.dtype));
}

std::string KeyOf(const RelativeBias& r) {
  return fmt::format(FMT_COMPILE("relative_bias {} s={} h={}{}"), Name(r.dtype), r.seq, r.heads,
                     Flag(!r.causal, " bidirectional"));
}

std::string KeyOf(const RelativeBiasBackward& r) {
  return fmt::format(FMT_COMPILE("relative_bias_backward {} b={} s={} h={}{}{}"), Name(r.dtype), r.batch,
                     r.seq, r.heads, Flag(!r.causal, " bidirectional"), Flag(r.accumulate, " accumulate"));
}

std::string KeyOf(const JoinLatentHeads& j) {
  return fmt::format(FMT_COMPILE("join_latent_heads b={} s={} h={} d={} rope={} v={}{}{}"), j.batch, j.seq,
                     j.heads, j.head_dim, j.rope_dim, j.value_dim, Flag(j.backward, " backward"),
                     TypeSuffix(j.dtype));
}

std::string StateSpaceKey(std::string_view direction, const StateSpaceShape& s) {
  return fmt::format(FMT_COMPILE("state_space_{} {} b={} s={} h={} g={} d={} n={} conv={} chunk={}"),
                     direction, Name(s.dtype), s.batch, s.seq, s.heads, s.groups, s.head_dim, s.state, s.conv,
                     s.chunk);
}

std::string KeyOf(const StateSpaceForward& s) { return StateSpaceKey("forward", s); }

std::string KeyOf(const StateSpaceBackward& s) { return StateSpaceKey("backward", s); }

std::string DeltaNetKey(std::string_view direction, const DeltaNetShape& s) {
  return fmt::format(FMT_COMPILE("delta_net_{} {} b={} s={} k={}x{} v={}x{} conv={}"), direction,
                     Name(s.dtype), s.batch, s.seq, s.key_heads, s.key_dim, s.value_heads, s.value_dim,
                     s.conv);
}

std::string KeyOf(const DeltaNetForward& s) { return DeltaNetKey("forward", s); }

std::string KeyOf(const DeltaNetBackward& s) { return DeltaNetKey("backward", s); }

std::string KeyOf(const GateForward& g) {
  return fmt::format(FMT_COMPILE("gate_forward rows={} columns={}{}{}"), g.rows, g.columns,
                     Flag(g.by_row, " by_row"), TypeSuffix(g.dtype));
}

std::string KeyOf(const GateBackward& g) {
  return fmt::format(FMT_COMPILE("gate_backward rows={} columns={}{}{}"), g.rows, g.columns,
                     Flag(g.by_row, " by_row"), TypeSuffix(g.dtype));
}

std::string KeyOf(const ActivationForward& a) {
  return fmt::format(FMT_COMPILE("activation_forward {} rows={} columns={}{}{}"), WordOf(a.kind), a.rows,
                     a.columns, Flag(a.weighted, " weighted"), TypeSuffix(a.dtype));
}

std::string KeyOf(const ActivationBackward& a) {
  return fmt::format(FMT_COMPILE("activation_backward {} rows={} columns={}{}{}"), WordOf(a.kind), a.rows,
                     a.columns, Flag(a.weighted, " weighted"), TypeSuffix(a.dtype));
}

std::string KeyOf(const EmbeddingForward& e) {
  return fmt::format(FMT_COMPILE("embedding_forward tokens={} seq={} vocab={} hidden={}{}{}{}"), e.tokens,
                     e.seq, e.vocab, e.hidden, Flag(e.learned_positions, " positions"),
                     Flag(e.vocab_parallel, " vocab_parallel"), TypeSuffix(e.dtype));
}

std::string KeyOf(const EmbeddingBackward& e) {
  return fmt::format(FMT_COMPILE("embedding_backward tokens={} seq={} vocab={} hidden={}{}{}{}{}{}"),
                     e.tokens, e.seq, e.vocab, e.hidden, Flag(e.learned_positions, " positions"),
                     Flag(e.accumulate_table, " accumulate_table"),
                     Flag(e.accumulate_positions, " accumulate_positions"),
                     Flag(e.vocab_parallel, " vocab_parallel"), TypeSuffix(e.dtype));
}

std::string KeyOf(const CrossEntropy& c) {
  return fmt::format(FMT_COMPILE("cross_entropy {} rows={} vocab={}{}"), Name(c.dtype), c.rows, c.vocab,
                     Flag(c.skips, " skips"));
}

template <typename VocabParallel>
std::string VocabParallelKey(std::string_view pass, const VocabParallel& v) {
  return fmt::format(FMT_COMPILE("vocab_parallel_{} {} rows={} vocab={}"), pass, Name(v.dtype), v.rows,
                     v.vocab);
}

std::string KeyOf(const VocabParallelMaximum& v) { return VocabParallelKey("maximum", v); }

std::string KeyOf(const VocabParallelSums& v) { return VocabParallelKey("sums", v); }

std::string KeyOf(const VocabParallelLoss& v) { return VocabParallelKey("loss", v); }

std::string KeyOf(const MeanSquaredError& m) {
  return fmt::format(FMT_COMPILE("mean_squared_error rows={} columns={}{}"), m.rows, m.columns,
                     TypeSuffix(m.dtype));
}

std::string KeyOf(const Copy& c) {
  return fmt::format(FMT_COMPILE("copy {} {} n={}{}{}{}"), Name(c.from), Name(c.to), c.elements,
                     Flag(c.scale != 1.0, " scaled"), Flag(c.accumulate, " accumulate"), NameOf(c.crosses));
}

std::string KeyOf(const Scale& s) {
  return fmt::format(FMT_COMPILE("scale n={}{}"), s.elements, TypeSuffix(s.dtype));
}

std::string KeyOf(const PackShards& p) {
  return fmt::format(FMT_COMPILE("pack_shards {} {} ranks={} n={} tensors={}"), Name(p.from), Name(p.to),
                     p.ranks, p.ranks * Sum(p.shard_elements), p.shard_elements.size());
}

std::string KeyOf(const UnpackShards& u) {
  return fmt::format(FMT_COMPILE("unpack_shards {} ranks={} n={} tensors={}"), Name(u.dtype), u.ranks,
                     u.ranks * Sum(u.shard_elements), u.shard_elements.size());
}

std::string KeyOf(const CopyTensors& c) {
  return fmt::format(FMT_COMPILE("copy_tensors {} n={} tensors={}"), Name(c.dtype), c.elements, c.tensors);
}

std::string KeyOf(const Fill& f) {
  return fmt::format(FMT_COMPILE("fill {} n={}"), Name(f.dtype), f.elements);
}

std::string KeyOf(const UnscaleGradients& u) {
  return fmt::format(FMT_COMPILE("unscale n={} tensors={}"), u.elements, u.tensors);
}

std::string KeyOf(const UpdateLossScale&) { return "update_loss_scale"; }

std::string OtherThanFp32(DType type) {
  return type == DType::kFloat32 ? "" : fmt::format(FMT_COMPILE(" {}"), Name(type));
}

std::string KeyOf(const GradientNorm& g) {
  return fmt::format(FMT_COMPILE("gradient_norm{} n={} tensors={}{}"), OtherThanFp32(g.dtype), g.elements,
                     g.tensors, Flag(g.squared, " squared"));
}

std::string KeyOf(const SquareRoot&) { return "square_root"; }

std::string KeyOf(const Orthonormalize& o) {
  return fmt::format(FMT_COMPILE("orthonormalize{} rows={} columns={}"), OtherThanFp32(o.dtype), o.rows,
                     o.columns);
}

std::string KeyOf(const ClipGradients& c) {
  return fmt::format(FMT_COMPILE("clip{} n={} tensors={}"), OtherThanFp32(c.dtype), c.elements, c.tensors);
}

std::string KeyOf(const OptimizerUpdate& o) {
  return fmt::format(FMT_COMPILE("optimizer{} {} n={} tensors={} states={}{}"),
                     OtherThanFp32(MomentsOf(o.spec)), WordOf(o.spec.kind), o.elements, o.tensors,
                     o.state_tensors, o.one_by_one ? " one_by_one" : "");
}

std::string KeyOf(const MuonDirection& m) {
  return fmt::format(FMT_COMPILE("muon_direction{} n={}"), OtherThanFp32(MomentsOf(m.spec)), m.elements);
}

std::string KeyOf(const MuonUpdate& m) { return fmt::format(FMT_COMPILE("muon_update n={}"), m.elements); }

std::string KeyOf(const InitializeParameter& i) {
  return fmt::format(FMT_COMPILE("initialize {} n={}{}"), static_cast<int>(i.distribution), i.elements,
                     Flag(!i.part.empty(), " part"));
}

std::string KeyOf(const LoadBatch& l) {
  return fmt::format(FMT_COMPILE("load_batch rows={} columns={} targets={}{}{}"), l.rows, l.columns,
                     l.targets, l.further > 0 ? fmt::format(FMT_COMPILE(" further={}"), l.further) : "",
                     l.source > 0 ? fmt::format(FMT_COMPILE(" source={}"), l.source) : "");
}

std::string KeyOf(const Collective& c) {
  const std::string key = fmt::format(FMT_COMPILE("{} {} bytes={}{}"), Name(c.kind), Name(c.dtype),
                                      MessageBytes(c).count(), Flag(c.by_copy_engine, " by_copy_engine"));
  return c.kind == CollectiveKind::kTokenExchange
             ? fmt::format(FMT_COMPILE("{} to_rank={:.6g} to_node={:.6g}"), key, c.reach.rank, c.reach.node)
             : key;
}

std::string KeyOf(const Send& s) {
  return fmt::format(FMT_COMPILE("send {} bytes={}"), Name(s.dtype), (SizeOf(s.dtype) * s.elements).count());
}

std::string KeyOf(const Receive& r) {
  return fmt::format(FMT_COMPILE("receive {} bytes={}"), Name(r.dtype),
                     (SizeOf(r.dtype) * r.elements).count());
}

std::string KeyOf(const HostWait&) { return std::string(); }

}  // namespace

OpKind::OpKind() = default;
OpKind::OpKind(const OpKind& other) = default;
OpKind::OpKind(OpKind&& other) noexcept = default;
OpKind& OpKind::operator=(const OpKind& other) = default;
OpKind& OpKind::operator=(OpKind&& other) noexcept = default;
OpKind::~OpKind() = default;

std::string_view Name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kReduce:
      return "reduce";
    case CollectiveKind::kGather:
      return "gather";
    case CollectiveKind::kScatter:
      return "scatter";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kTokenExchange:
      return "token_exchange";
    case CollectiveKind::kShift:
      return "shift";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "?";
}

bool HasRoot(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter;
}

Bytes MessageBytes(const Collective& collective) { return SizeOf(collective.dtype) * collective.elements; }

Bytes MessageBytes(const OpKind& kind) {
  if (const auto* collective = std::get_if<Collective>(&kind)) return MessageBytes(*collective);
  if (const auto* send = std::get_if<Send>(&kind)) return SizeOf(send->dtype) * send->elements;
  if (const auto* receive = std::get_if<Receive>(&kind)) return SizeOf(receive->dtype) * receive->elements;
  return Bytes(0);
}

std::string_view OperatorName(const OpKind& kind) {
  return std::visit(Overloaded{[](const Gemm&) { return std::string_view("gemm"); },
                               [](const GroupedGemm&) { return std::string_view("gemm"); },
                               [](const RouteTokens&) { return std::string_view("route"); },
                               [](const RouteTokensBackward&) { return std::string_view("route"); },
                               [](const DispatchTokens&) { return std::string_view("dispatch_tokens"); },
                               [](const CombineTokens&) { return std::string_view("combine_tokens"); },
                               [](const CombineBackward&) { return std::string_view("combine_tokens"); },
                               [](const Fp8Amax&) { return std::string_view("fp8_cast"); },
                               [](const Fp8Cast&) { return std::string_view("fp8_cast"); },
                               [](const ColumnSum&) { return std::string_view("bias_gradient"); },
                               [](const SumParts&) { return std::string_view("sum_parts"); },
                               [](const AddBias&) { return std::string_view("add_bias"); },
                               [](const NormForward&) { return std::string_view("norm"); },
                               [](const NormBackward&) { return std::string_view("norm"); },
                               [](const HeadNormForward&) { return std::string_view("norm"); },
                               [](const HeadNormBackward&) { return std::string_view("norm"); },
                               [](const AttentionForward&) { return std::string_view("attention"); },
                               [](const AttentionBackward&) { return std::string_view("attention"); },
                               [](const ContextAttentionForward&) { return std::string_view("attention"); },
                               [](const ContextAttentionBackward&) { return std::string_view("attention"); },
                               [](const MergeAttention&) { return std::string_view("attention"); },
                               [](const CopyColumns&) { return std::string_view("copy"); },
                               [](const SplitColumns&) { return std::string_view("copy"); },
                               [](const SwapBlocks&) { return std::string_view("copy"); },
                               [](const Dropout&) { return std::string_view("dropout"); },
                               [](const RelativeBias&) { return std::string_view("embedding"); },
                               [](const RelativeBiasBackward&) { return std::string_view("embedding"); },
                               [](const Rope&) { return std::string_view("rope"); },
                               [](const JoinLatentHeads&) { return std::string_view("rope"); },
                               [](const StateSpaceForward&) { return std::string_view("state_space"); },
                               [](const StateSpaceBackward&) { return std::string_view("state_space"); },
                               [](const DeltaNetForward&) { return std::string_view("delta_net"); },
                               [](const DeltaNetBackward&) { return std::string_view("delta_net"); },
                               [](const GateForward&) { return std::string_view("activation"); },
                               [](const GateBackward&) { return std::string_view("activation"); },
                               [](const ActivationForward&) { return std::string_view("activation"); },
                               [](const ActivationBackward&) { return std::string_view("activation"); },
                               [](const EmbeddingForward&) { return std::string_view("embedding"); },
                               [](const EmbeddingBackward&) { return std::string_view("embedding"); },
                               [](const CrossEntropy&) { return std::string_view("loss"); },
                               [](const VocabParallelMaximum&) { return std::string_view("loss"); },
                               [](const VocabParallelSums&) { return std::string_view("loss"); },
                               [](const VocabParallelLoss&) { return std::string_view("loss"); },
                               [](const MeanSquaredError&) { return std::string_view("loss"); },
                               [](const Copy&) { return std::string_view("copy"); },
                               [](const Quantize&) { return std::string_view("dequantize"); },
                               [](const Dequantize&) { return std::string_view("dequantize"); },
                               [](const Scale&) { return std::string_view("scale"); },
                               [](const PackShards&) { return std::string_view("copy"); },
                               [](const UnpackShards&) { return std::string_view("copy"); },
                               [](const CopyTensors&) { return std::string_view("copy"); },
                               [](const Fill&) { return std::string_view("fill"); },
                               [](const UnscaleGradients&) { return std::string_view("unscale"); },
                               [](const UpdateLossScale&) { return std::string_view("loss_scale"); },
                               [](const GradientNorm&) { return std::string_view("gradient_norm"); },
                               [](const Orthonormalize&) { return std::string_view("orthonormalize"); },
                               [](const SquareRoot&) { return std::string_view("gradient_norm"); },
                               [](const ClipGradients&) { return std::string_view("clip"); },
                               [](const OptimizerUpdate&) { return std::string_view("optimizer"); },
                               [](const MuonDirection&) { return std::string_view("optimizer"); },
                               [](const MuonUpdate&) { return std::string_view("optimizer"); },
                               [](const InitializeParameter&) { return std::string_view("initialize"); },
                               [](const LoadBatch&) { return std::string_view("data"); },
                               [](const Collective& c) { return Name(c.kind); },
                               [](const Send&) { return std::string_view("send"); },
                               [](const Receive&) { return std::string_view("receive"); },
                               [](const HostWait&) { return std::string_view("host_wait"); }},
                    kind);
}

int64_t WholePosition(const TokenSplit& split, int rank, int64_t tokens, int64_t token) {
  if (!split.zigzag) return rank * tokens + token;
  const int64_t half = tokens / 2;
  return token < half ? rank * half + token : (2 * split.ranks - 1 - rank) * half + token - half;
}

int64_t ElementsOf(const TensorPart& part) {
  int64_t elements = 0;
  for (const StridedRuns& runs : part) elements += runs.length * runs.count;
  return elements;
}

std::string CostKey(const OpKind& kind) {
  return std::visit([](const auto& op) { return KeyOf(op); }, kind);
}

}  // namespace windtunnel
