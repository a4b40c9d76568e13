#include "cost_models/kernel_roofline.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/ceil_divide.h"
#include "plan/fused_attention.h"

namespace windtunnel {
namespace {

constexpr int64_t kQueryBlock = 128;  // rows of a FlashAttention-2 block (Dao 2023, section 3.3: 64 or 128)

// log2 by repeated halving, linear in between: exact at powers of two and the same on every machine.
double Log2(double x) {
  double whole = 0;
  for (; x >= 2; x /= 2) ++whole;
  return whole + (x - 1);
}

// The tile sizes for which cuBLAS has kernels, in either direction.
constexpr std::array<GemmTile, 8> kTiles = {
    {{256, 128}, {128, 256}, {128, 128}, {256, 64}, {64, 256}, {128, 64}, {64, 128}, {64, 64}}};
constexpr int64_t kMostSplits = 8;     // of k
constexpr int64_t kLeastSplit = 256;   // of k: the smallest part that is worth a kernel
constexpr int64_t kLeastShared = 128;  // the shortest side of tiles whose steps of k are shared evenly

double Edges(int64_t m, int64_t n) { return 1.0 / static_cast<double>(m) + 1.0 / static_cast<double>(n); }

// What a device's products in one type reach of the type's peak.
struct Multiplication {
  FlopRate peak;
  double ceiling, k_overhead, edge_overhead;  // as in GemmSpec
};

// The smaller a tile, the larger the part of its time that it loads rather than multiplies.
double ShareOfPeak(const GemmTile& tile, const Multiplication& of, const GemmSpec& spec) {
  return of.ceiling * (1 + of.edge_overhead * Edges(spec.tile_m, spec.tile_n)) /
         (1 + of.edge_overhead * Edges(tile.m, tile.n));
}

// How much longer a step of k takes because of the alignment of rows.
double RowFactor(const BatchedGemm& g, const GemmSpec& spec) {
  if (g.row_divisor == 0 || SizeOf(g.dtype) != Bytes(2)) return 1;
  const int64_t bytes = 2 * g.row_divisor;
  return bytes >= 32 ? 1 : bytes == 16 ? spec.rows_of_16 : bytes >= 4 ? spec.rows_of_4 : spec.rows_of_2;
}

// Split parts of k write their sums, which another kernel reads and adds up.
Duration SumTime(const BatchedGemm& g, int64_t split, const DeviceSpec& device) {
  if (split == 1) return Duration();
  return MemoryTime(Bytes(4) * (2 * g.batch * g.m * g.n * split), device) + device.kernel_minimum;
}

Duration TiledTime(const BatchedGemm& g, const GemmTile& tile, int64_t split, const Multiplication& of,
                   const DeviceSpec& device) {
  const int64_t tiles = g.batch * split * CeilDivide(g.m, tile.m) * CeilDivide(g.n, tile.n);
  const double waves = static_cast<double>(CeilDivide(tiles, device.multiprocessors));
  const double k = RowFactor(g, device.gemm) * static_cast<double>(g.k) / static_cast<double>(split);
  const Flops of_tile(2.0 * static_cast<double>(tile.m * tile.n) * (k + of.k_overhead));
  const double of_one = ShareOfPeak(tile, of, device.gemm) / static_cast<double>(device.multiprocessors);
  return of_tile * waves / (of.peak * of_one) + SumTime(g, split, device);
}

// A lower bound of TiledTime, less SumTime, for all splits: no multiprocessor is ever idle.
Duration LeastTiledTime(const BatchedGemm& g, const GemmTile& tile, const Multiplication& of,
                        const DeviceSpec& device) {
  const int64_t tiles = g.batch * CeilDivide(g.m, tile.m) * CeilDivide(g.n, tile.n);
  constexpr double kRounding = 1 - 1e-9;
  const Flops work(kRounding * 2.0 * static_cast<double>(tiles * tile.m * tile.n) *
                   RowFactor(g, device.gemm) * static_cast<double>(g.k));
  return work / (of.peak * ShareOfPeak(tile, of, device.gemm));
}

// Stream-K: every multiprocessor has equally many steps of k, and hands over one tile that others share.
// Nothing if there are too many tiles.
std::optional<Duration> SharedOutTime(const BatchedGemm& g, const GemmTile& tile, const Multiplication& of,
                                      const DeviceSpec& device) {
  const int64_t tiles = g.batch * CeilDivide(g.m, tile.m) * CeilDivide(g.n, tile.n);
  const double most = device.gemm.stream_k_waves * static_cast<double>(device.multiprocessors);
  if (static_cast<double>(tiles) > most || std::min(tile.m, tile.n) < kLeastShared) return std::nullopt;
  const double k = RowFactor(g, device.gemm) * static_cast<double>(g.k);
  const Flops work(2.0 * static_cast<double>(tiles * tile.m * tile.n) * (k + of.k_overhead));
  const Bytes handed_over = Bytes(4) * (2 * tile.m * tile.n * device.multiprocessors);  // written and read
  return work / (of.peak * ShareOfPeak(tile, of, device.gemm)) + MemoryTime(handed_over, device) +
         device.kernel_minimum;
}

// The peak that the ceiling applies to.
Result<FlopRate> PeakOf(DType dtype, const DeviceSpec& device, bool tf32, bool fast_accumulation = false) {
  const FlopRate peak = device.PeakFor(dtype == DType::kFloat32 && tf32 ? DType::kTf32 : dtype);
  if (peak > FlopRate() && IsFactor(dtype)) {
    const GemmSpec& gemm = device.gemm;
    const double of_fp8 = fast_accumulation ? gemm.fp8_share : gemm.fp8_precise_share;
    const double of_blocks = dtype == DType::kMxFloat8 ? gemm.mxfp8_share : gemm.fp4_share;
    return peak * (dtype == DType::kFloat8 ? of_fp8 : of_blocks);
  }
  if (peak > FlopRate()) return peak;
  if (dtype == DType::kMxFloat8 && device.PeakFor(DType::kFloat8) > FlopRate())
    return InvalidInput(
        "precision.fp8_recipe is mxfp8, expected tensorwise, delayed, rowwise or block: {} multiplies no "
        "microscaled blocks",
        device.name);
  std::vector<std::string_view> others;
  for (const DType other : {DType::kFloat8, DType::kBFloat16, DType::kFloat16, DType::kTf32, DType::kFloat32})
    if (device.PeakFor(other) > FlopRate()) others.push_back(Name(other));
  return InvalidInput("precision.compute is {}, expected one of {}: {} has no figure for it",
                      dtype == DType::kMxFloat8 ? Name(DType::kFloat8) : Name(dtype), fmt::join(others, ", "),
                      device.name);
}

// What products reach of their type's peak.
double CeilingOf(DType dtype, const DeviceSpec& device, bool tf32) {
  const bool has_own = dtype == DType::kFloat32 && !tf32 && device.gemm.fp32_ceiling > 0;
  return has_own ? device.gemm.fp32_ceiling : device.gemm.ceiling;
}

Result<Multiplication> MultiplicationOf(const BatchedGemm& g, const DeviceSpec& device, bool tf32) {
  WT_ASSIGN_OR_RETURN(const FlopRate peak, PeakOf(g.dtype, device, tf32, g.fast_accumulation));
  const GemmSpec& spec = device.gemm;
  const double beside = TimeBesideArithmetic(g.dtype, device, tf32);
  return Multiplication{.peak = peak,
                        .ceiling = CeilingOf(g.dtype, device, tf32),
                        .k_overhead = beside * static_cast<double>(spec.k_overhead),
                        .edge_overhead = beside * spec.edge_overhead};
}

// Measured rates are of 16 bits. In other types fused attention scales with arithmetic; eager attention with
// memory, as long as its products are faster.
template <typename Attention>
Result<FlopRate> AttentionRateIn(const Attention& a, FlopRate of_16_bits, const DeviceSpec& device,
                                 bool tf32) {
  if (SizeOf(a.dtype) == Bytes(2)) return of_16_bits;
  WT_ASSIGN_OR_RETURN(const FlopRate peak, PeakOf(a.dtype, device, tf32));
  if (a.kind == AttentionKind::kEager) {
    const double by_memory = of_16_bits.flops_per_second() * 2 / static_cast<double>(SizeOf(a.dtype).count());
    const double by_products = peak.flops_per_second() * CeilingOf(a.dtype, device, tf32);
    return FlopRate::FromFlopsPerSecond(std::min(by_memory, by_products));
  }
  const FlopRate bf16 = device.PeakFor(DType::kBFloat16), fp16 = device.PeakFor(DType::kFloat16);
  const double peak_16 = std::max(bf16.flops_per_second(), fp16.flops_per_second());
  if (peak_16 == 0)
    return InvalidInput(
        "precision.compute is {}, expected bf16 or fp16: flash attention's rates are those of 16 bits, which "
        "{} has no peak of",
        Name(a.dtype), device.name);
  return FlopRate::FromFlopsPerSecond(of_16_bits.flops_per_second() * peak.flops_per_second() / peak_16);
}

template <typename Attention>
const std::vector<AttentionRate>& RatesOf(const Attention& a, const DeviceSpec& device,
                                          FlashKernels kernels) {
  if (a.kind == AttentionKind::kEager) return device.eager;
  switch (kernels) {
    case FlashKernels::kFlashAttention2:
      return device.flash;
    case FlashKernels::kFlashAttention1:
      return device.flash_1;
    case FlashKernels::kCudnn:
      return device.flash_cudnn;
    case FlashKernels::kWindtunnel:
      return IsForCudnn(a) ? device.flash_cudnn : device.flash;
  }
  return device.flash;
}

// How the time of attention with a window, or to all keys (which may be another sequence's), follows from
// rates of causal attention: fused kernels skip tiles of scores of which nothing is seen, and compute the
// others whole.
struct CausalWork {
  int64_t seq = 0;   // of causal attention that works on as many key tiles per query tile
  double share = 1;  // the time per FLOP over that attention's
};
template <typename Attention>
CausalWork CausalWorkOf(const Attention& a) {
  if (a.window == 0 && a.causal) return {a.seq, 1};
  const int64_t tiles = CeilDivide(a.seq, kQueryBlock), key_tiles = CeilDivide(a.keys(), kQueryBlock);
  const int64_t window = a.window == 0 ? 0 : CeilDivide(a.window - 1, kQueryBlock) + 1;  // in tiles
  const double worked =
      a.causal ? SeenPairs(tiles, window) : static_cast<double>(tiles) * static_cast<double>(key_tiles);
  const double alike = std::max(2 * worked / static_cast<double>(tiles) - 1, 1.0);  // tiles of that sequence
  const int64_t longest = a.causal ? a.seq : std::numeric_limits<int64_t>::max();
  const int64_t seq = std::min<int64_t>(longest, std::llround(alike * static_cast<double>(kQueryBlock)));
  const double tile = static_cast<double>(kQueryBlock * kQueryBlock);
  const double useful = SeenPairsOf(a) / (worked * tile);
  const double useful_alike = SeenPairs(seq, 0) / (alike * (alike + 1) / 2 * tile);
  return {seq, useful_alike / useful};
}

// What a tile of queries takes beside the tiles of scores that it sees, where a window lets it see few:
// cuDNN's own benchmark (cudnn-frontend, sdpa_benchmark_training) has 128 heads of 64 columns over 8,192
// tokens with a window of 128 in 0.41 and 0.90 ms forward and backward on a GB200, and 64 of 128 columns (8
// of keys) with one of 1,024 in 0.42 and 1.00 ms, on an H200 in 0.74 and 2.15. From rates of whole attention
// follow 0.08, 0.35, 0.31, 0.95, 0.57 and 1.96: 6.2, 10.5, 5.5, 2.1, 7.2 and 8.0 us a tile are missing if it
// is the less, the more of the scores the window leaves. Here it is their mean.
constexpr Duration kTileInWindow = Microseconds(6.5);

template <typename Attention>
Duration WindowTime(const Attention& a, const DeviceSpec& device) {
  if (a.window == 0 || a.kind == AttentionKind::kEager) return Duration();
  const double tiles = static_cast<double>(a.batch * a.heads * CeilDivide(a.seq, kQueryBlock));
  const double unseen = 1 - SeenPairs(a.seq, a.window) / SeenPairs(a.seq, 0);
  return kTileInWindow.Scaled(unseen * std::max(tiles / static_cast<double>(device.multiprocessors), 1.0));
}

template <typename Attention>
Result<Duration> AttentionTime(const Attention& a, Flops flops, bool is_backward, const DeviceSpec& device,
                               const KernelOptions& options) {
  const auto& rates = RatesOf(a, device, options.flash);
  // Eager attention computes all scores, and masks what is not seen. A causal kernel would count half of
  // them.
  const bool is_eager = a.kind == AttentionKind::kEager;
  const double rows = static_cast<double>(a.seq) / static_cast<double>(a.keys());
  const CausalWork work =
      is_eager ? CausalWork{a.keys(), rows * SeenPairs(a.keys(), 0) / SeenPairsOf(a)} : CausalWorkOf(a);
  flops = flops * work.share;
  // FlashAttention has kernels for heads of 32, 64, 96, … (csrc/flash_attn/src).
  const bool is_padded = !is_eager && (options.flash == FlashKernels::kFlashAttention1 ||
                                       options.flash == FlashKernels::kFlashAttention2);
  const int64_t columns = is_padded ? CeilDivide(a.head_dim, 32) * 32 : a.head_dim;
  flops = flops * (static_cast<double>(columns) / static_cast<double>(a.head_dim));
  WT_ASSIGN_OR_RETURN(
      const FlopRate rate,
      AttentionRateIn(a, AttentionRateAt(rates, columns, work.seq, is_backward), device, options.tf32));
  const double blocks = static_cast<double>(a.batch * a.heads * CeilDivide(a.seq, kQueryBlock));
  const double filled = std::min(blocks / static_cast<double>(device.multiprocessors), 1.0);
  return flops / (rate * filled) + WindowTime(a, device);
}

// Runs as flash attention over the tokens whose keys are present, and never by cuDNN on the cuda device.
template <typename Attention>
Result<Duration> BlockTime(const Attention& a, Flops flops, bool is_backward, const DeviceSpec& device,
                           KernelOptions options) {
  if (options.flash == FlashKernels::kWindtunnel) options.flash = FlashKernels::kFlashAttention2;
  AttentionForward whole{a.batch,    a.seq * a.blocks,      a.heads, a.kv_heads,
                         a.head_dim, AttentionKind::kFlash, a.dtype};
  whole.window = a.window;
  whole.causal = a.causal;
  whole.value_dim = a.value_dim;
  WT_ASSIGN_OR_RETURN(const Duration time, AttentionTime(whole, flops, is_backward, device, options));
  return time - WindowTime(whole, device).Scaled(1 - 1 / static_cast<double>(a.blocks));
}

// Units that multiply microscaled blocks also make the products of larger blocks (TransformerEngine pull
// request 2157).
template <typename Product>
DType MultipliedAs(const Product& g, const DeviceSpec& device) {
  return g.of_blocks && device.PeakFor(DType::kMxFloat8) > FlopRate() ? DType::kMxFloat8 : g.dtype;
}

// What state-spaces/mamba's kernels reach, over the peak in fp32 without tensor cores: their small products
// run on tensor cores, but with as much work beside them. On an H100 the five kernels of forward take 92.5 ns
// a token (vLLM pull request 27299: 128 heads of 64 columns, a state of 128, one group, chunks of 256,
// 262,144 tokens), of which passes over memory, at its rate, are 34.7; the other 57.8 are for 6.33 MFLOP. No
// rates of backward, nor of other devices, are published; they are taken to follow.
constexpr double kStateSpaceRate = 1.64;

// Windtunnel's kernels go token by token, without tensor cores: five operations a column of the state forward
// and sixteen backward (runtime/cuda/kernels/state_space_scan.cu). What they reach of the peak has not been
// measured.
constexpr double kScanRate = 0.5;

Result<Duration> StateSpaceTime(const StateSpaceShape& s, Flops flops, bool is_backward,
                                const DeviceSpec& device, const KernelOptions& options) {
  const FlopRate fp32 = device.PeakFor(DType::kFloat32);
  if (fp32 == FlopRate())
    return InvalidInput("{} has no figure for arithmetic in fp32, expected peak_tflops.fp32 with model.mamba",
                        device.name);
  if (options.flash == FlashKernels::kWindtunnel) {
    const double of_state = is_backward ? 16 : 5;
    return Flops(of_state * static_cast<double>(s.tokens() * s.inner() * s.state)) / (fp32 * kScanRate);
  }
  // (In fp32, products run without tensor cores; half of the peak is an assumption.)
  return flops / (fp32 * (SizeOf(s.dtype) == Bytes(2) ? kStateSpaceRate : 0.5));
}

// flash-linear-attention's kernels of chunks of 64 tokens (fla/ops/gated_delta_rule/chunk.py): some compute
// all chunks at once, others go through a sequence chunk by chunk. The constants are from FlashQLA's
// measurements of FLA 0.5.1 on H200s and GB200s, by CUDA graphs, with heads of 128
// (benchmark_results_H200.txt and _GB200.txt). Of the 126 forwards of 8,192 tokens and more, 4 to 64 heads
// and up to 8 sequences, the mean error is 5 % on H200s and 7 % on GB200s, and the largest 20 and 24 %, too
// slow with 64 heads. The fewer backwards, and an A800's and an H800's forward, which are others'
// measurements, are met within 9 %.
constexpr double kChunkReads = 1.45;  // of what kernels move, over what they read and write once
constexpr double kChunkTflops =
    103;  // where products bound them, on GB200s; they use the tensor cores of A100s
constexpr double kChunkShareOfPeak =
    0.16;  // at most so much of the peak in 16 bits; an assumption, for older ones
constexpr double kForwardStepUs = 1.3, kBackwardStepUs = 4.0;  // of one chunk behind the other

// What kernels of chunks move, in numbers of 16 bits of a token and head, and their FLOPs.
struct ChunkKernels {
  double numbers = 0, flops = 0;
  Duration Time(const DeltaNetShape& s, const DeviceSpec& device, FlopRate rate) const {
    const double heads = static_cast<double>(s.tokens() * s.value_heads);
    const Bytes bytes(std::llround(2 * kChunkReads * numbers * heads));
    return std::max(MemoryTime(bytes, device), Flops(flops * heads) / rate);
  }
};

Result<Duration> DeltaNetTime(const DeltaNetShape& s, Flops flops, bool is_backward, const DeviceSpec& device,
                              const KernelOptions& options) {
  const FlopRate fp32 = device.PeakFor(DType::kFloat32);
  const bool is_own = options.flash == FlashKernels::kWindtunnel;
  if (is_own || SizeOf(s.dtype) != Bytes(2)) {
    if (fp32 == FlopRate())
      return InvalidInput(
          "{} has no figure for arithmetic in fp32, expected peak_tflops.fp32 with model.delta_net",
          device.name);
    // Token by token: operations a number of the state (runtime/cuda/kernels/delta_net_scan.cu).
    const double of_state = is_backward ? 23 : 7;
    if (is_own)
      return Flops(of_state * static_cast<double>(s.tokens() * s.inner() * s.key_dim)) / (fp32 * kScanRate);
    return flops / (fp32 * 0.5);
  }
  const double k = static_cast<double>(s.key_dim), v = static_cast<double>(s.value_dim), c = kDeltaNetChunk;
  const double state = k * v / c, tiles = std::ceil(v / 64);
  // Backward makes what forward made of keys and states again.
  const ChunkKernels forward{.numbers = 5 * k + 4 * v + 3 * c + state,
                             .flops = 2 * c * (2 * k + 2 * v) + 1.25 * c * k + 2 * k * v};
  const ChunkKernels states{.numbers = 2 * k * tiles + 2 * v + state, .flops = 4 * k * v};
  const ChunkKernels backward{
      .numbers = 16 * k + 13 * v + 2 * c + 2 * state,
      .flops = 2 * c * (2 * k + 2 * v) + c * (16 * k + 8 * v) + 4 * c * c + 6 * k * v};
  const ChunkKernels gradients{.numbers = 3 * k * tiles + 3 * v + state, .flops = 6 * k * v};
  const FlopRate rate = std::min(Tflops(kChunkTflops), device.PeakFor(DType::kBFloat16) * kChunkShareOfPeak);
  Duration behind = states.Time(s, device, rate);
  if (is_backward) behind += gradients.Time(s, device, rate);
  const double steps = std::ceil(static_cast<double>(s.seq) / c);
  const Duration latency = Microseconds(steps * (is_backward ? kBackwardStepUs : kForwardStepUs));
  return (is_backward ? backward : forward).Time(s, device, rate) + std::max(behind, latency);
}

// One QR factorisation after another (cuSOLVER's geqrf and orgqr): [4096,4] in 74 us, [8192,8] in 112,
// [128,32] in 179, [512,64] in 259 (FlagGems pull request 5586, an unnamed device); [16,4] in 53, [128,32] in
// 189 (H100, pytorch pull request 173788).
Duration QrTime(const Orthonormalize& o) {
  const auto columns = static_cast<double>(o.columns), elements = static_cast<double>(o.rows) * columns;
  return Microseconds(48 + 3.6 * columns + 0.4e-3 * elements);
}

Result<Duration> ArithmeticTime(const OpKind& kind, const DeviceSpec& device, const KernelOptions& options) {
  if (const auto* g = std::get_if<Gemm>(&kind)) {
    // Products that run at once share waves.
    const int64_t rows =
        CommonPowerOfTwo(CommonPowerOfTwo(g->transpose_a ? g->m : g->k, g->transpose_b ? g->k : g->n), g->n);
    WT_ASSIGN_OR_RETURN(const Duration all, GemmTime({g->streams, g->m, g->n, g->k, MultipliedAs(*g, device),
                                                      g->fast_accumulation, options.pads_products ? 0 : rows},
                                                     device, options.tf32));
    return all / g->streams;
  }
  // Tiles of all groups fill the multiprocessors together.
  if (const auto* g = std::get_if<GroupedGemm>(&kind))
    return GemmTime({g->groups, g->m, g->n, g->k, MultipliedAs(*g, device), g->fast_accumulation}, device,
                    options.tf32);
  if (const auto* a = std::get_if<AttentionForward>(&kind))
    return AttentionTime(*a, FlopsOf(kind), false, device, options);
  if (const auto* a = std::get_if<AttentionBackward>(&kind)) {
    if (a->deterministic)
      return Unsupported("run.deterministic: nobody's rates of deterministic attention are known for {}",
                         device.name);
    return AttentionTime(*a, FlopsOf(kind), true, device, options);
  }
  if (const auto* a = std::get_if<ContextAttentionForward>(&kind))
    return BlockTime(*a, FlopsOf(kind), false, device, options);
  if (const auto* a = std::get_if<ContextAttentionBackward>(&kind))
    return BlockTime(*a, FlopsOf(kind), true, device, options);
  if (const auto* s = std::get_if<StateSpaceForward>(&kind))
    return StateSpaceTime(*s, FlopsOf(kind), false, device, options);
  if (const auto* s = std::get_if<StateSpaceBackward>(&kind))
    return StateSpaceTime(*s, FlopsOf(kind), true, device, options);
  if (const auto* s = std::get_if<DeltaNetForward>(&kind))
    return DeltaNetTime(*s, FlopsOf(kind), false, device, options);
  if (const auto* s = std::get_if<DeltaNetBackward>(&kind))
    return DeltaNetTime(*s, FlopsOf(kind), true, device, options);
  if (const auto* o = std::get_if<Orthonormalize>(&kind)) return QrTime(*o);
  return Duration();
}

// How long kernels that put tokens in order take at least (TokenRowsSpec).
Duration TokenRowsTime(const OpKind& kind, const DeviceSpec& device) {
  const TokenRowsSpec& spec = device.token_rows;
  const auto bytes = [](const TokenRows& t) { return SizeOf(t.dtype) * ((t.tokens + t.rows) * t.hidden); };
  const auto copying = [&](const TokenRows& t) {
    return spec.permute > Bandwidth() ? bytes(t) / spec.permute : Duration();
  };
  if (const auto* d = std::get_if<DispatchTokens>(&kind)) return copying(*d);
  if (const auto* b = std::get_if<CombineBackward>(&kind)) return copying(*b);
  const auto* c = std::get_if<CombineTokens>(&kind);
  if (c == nullptr || spec.sum_ps_per_element == 0) return Duration();
  const double ps = spec.sum_ps_per_element * static_cast<double>(c->tokens * c->hidden);
  return Picoseconds(std::llround(ps)) + MemoryTime(bytes(*c), device);
}

// Over the link to the host; only the side on the device counts, since both move the same elements.
bool CrossesToHost(const OpKind& kind) {
  const auto* copy = std::get_if<Copy>(&kind);
  return (copy != nullptr && copy->crosses != Copy::Crosses::kNothing) ||
         std::holds_alternative<LoadBatch>(kind);
}

}  // namespace

int64_t CommonPowerOfTwo(int64_t a, int64_t b) {
  const auto both = static_cast<uint64_t>(a | b);
  return static_cast<int64_t>(both & (~both + 1));
}

double TimeBesideArithmetic(DType dtype, const DeviceSpec& device, bool tf32) {
  if (dtype != DType::kFloat32 || tf32) return 1;
  const FlopRate of_16_bits = std::max(device.PeakFor(DType::kBFloat16), device.PeakFor(DType::kFloat16));
  if (of_16_bits <= FlopRate()) return 1;
  const double slower = device.PeakFor(DType::kFloat32).flops_per_second() / of_16_bits.flops_per_second();
  return std::min(2 * slower, 1.0);  // twice the bytes
}

Duration MemoryTime(Bytes traffic, const DeviceSpec& device) {
  return traffic / (device.hbm * device.hbm_efficiency);
}

Result<Duration> GemmTime(const BatchedGemm& g, const DeviceSpec& device, bool tf32) {
  WT_ASSIGN_OR_RETURN(const Multiplication of, MultiplicationOf(g, device, tf32));
  Duration least = Duration::Max();
  const auto try_out = [&](const GemmTile& tile) {
    const Duration bound = LeastTiledTime(g, tile, of, device);
    for (int64_t split = 1; split <= kMostSplits; ++split) {
      if (split > 1 && g.k < split * kLeastSplit) break;
      if (bound + SumTime(g, split, device) >= least) break;
      least = std::min(least, TiledTime(g, tile, split, of, device));
    }
    if (const auto shared_out = SharedOutTime(g, tile, of, device)) least = std::min(least, *shared_out);
  };
  for (const GemmTile& tile : kTiles) try_out(tile);
  for (const GemmTile& tile : device.gemm.tiles) try_out(tile);
  const Bytes result = IsFactor(g.dtype) ? Bytes(2) : SizeOf(g.dtype);
  const Bytes traffic = SizeOf(g.dtype) * (g.batch * (g.m * g.k + g.k * g.n) / NumbersIn(g.dtype)) +
                        result * (g.batch * g.m * g.n);
  return std::max(least, MemoryTime(traffic, device));
}

namespace {

// The rate for heads of a measured size.
FlopRate RateOfHeads(const std::vector<AttentionRate>& rates, int64_t head_dim, int64_t seq,
                     bool is_backward) {
  const AttentionRate *below = nullptr, *above = nullptr;
  for (const AttentionRate& rate : rates) {
    if (rate.head_dim != head_dim) continue;
    if (rate.seq <= seq) below = &rate;
    if (rate.seq >= seq && above == nullptr) above = &rate;
  }
  const auto rate_of = [&](const AttentionRate& at) { return is_backward ? at.backward : at.forward; };
  if (below == nullptr) return rate_of(*above);
  if (above == nullptr || above == below) return rate_of(*below);
  const double from = Log2(static_cast<double>(below->seq)), to = Log2(static_cast<double>(above->seq));
  const double share = (Log2(static_cast<double>(seq)) - from) / (to - from);
  const double rate =
      rate_of(*below).flops_per_second() * (1 - share) + rate_of(*above).flops_per_second() * share;
  return FlopRate::FromFlopsPerSecond(rate);
}

}  // namespace

FlopRate AttentionRateAt(const std::vector<AttentionRate>& rates, int64_t head_dim, int64_t seq,
                         bool is_backward) {
  std::set<int64_t> sizes;
  for (const AttentionRate& rate : rates) sizes.insert(rate.head_dim);
  const auto at_least = sizes.lower_bound(head_dim);
  if (at_least == sizes.end() || sizes.size() == 1)
    return RateOfHeads(rates, *sizes.rbegin(), seq, is_backward);
  if (*at_least == head_dim) return RateOfHeads(rates, head_dim, seq, is_backward);
  // The time of a pair of a query and a key is that of its softmax, plus a part that grows with the head's
  // size.
  const auto first = at_least == sizes.begin() ? at_least : std::prev(at_least);
  const auto small = static_cast<double>(*first), large = static_cast<double>(*std::next(first));
  const auto pair_of = [&](double size) {
    return size / RateOfHeads(rates, static_cast<int64_t>(size), seq, is_backward).flops_per_second();
  };
  const double slope = (pair_of(large) - pair_of(small)) / (large - small);
  const auto size = static_cast<double>(head_dim);
  const double pair = pair_of(small) + slope * (size - small);
  const double least = size < small ? pair_of(small) * size / small : pair;
  return FlopRate::FromFlopsPerSecond(size / std::max(pair, least));
}

Result<Duration> KernelWork(const OpKind& kind, const DeviceSpec& device, const KernelOptions& options) {
  if (CrossesToHost(kind)) {
    const auto* copy = std::get_if<Copy>(&kind);
    const Bytes bytes =
        copy ? std::max(SizeOf(copy->from), SizeOf(copy->to)) * copy->elements : TrafficOf(kind);
    return bytes / device.host_link;
  }
  WT_ASSIGN_OR_RETURN(Duration arithmetic, ArithmeticTime(kind, device, options));
  if (IsProduct(kind)) arithmetic = arithmetic.Scaled(1 / options.product_speed);
  return std::max(
      {arithmetic.Scaled(options.slowest), MemoryTime(TrafficOf(kind), device), TokenRowsTime(kind, device)});
}

Result<Duration> KernelTime(const OpKind& kind, const DeviceSpec& device, const KernelOptions& options) {
  WT_ASSIGN_OR_RETURN(const Duration work, KernelWork(kind, device, options));
  return work + device.kernel_minimum;
}

}  // namespace windtunnel
