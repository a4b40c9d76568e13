#include "cost_models/kernel_roofline.h"

#include <algorithm>
#include <cstdlib>

namespace windtunnel {
namespace {

constexpr int64_t kQueryBlock = 128;  // rows of a FlashAttention-2 block (Dao 2023, section 3.3: 64 or 128)

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

Duration MemoryTime(Bytes traffic, const DeviceSpec& device) {
  return traffic / (device.hbm * device.hbm_efficiency);
}

// log2 by repeated halving, linear in between: exact at powers of two and the same on every machine.
double Log2(double x) {
  double whole = 0;
  for (; x >= 2; x /= 2) ++whole;
  return whole + (x - 1);
}

Duration TiledTime(const Gemm& g, int64_t tile_m, int64_t tile_n, FlopRate peak, const DeviceSpec& device) {
  const int64_t tiles = CeilDiv(g.m, tile_m) * CeilDiv(g.n, tile_n);
  const double waves = static_cast<double>(CeilDiv(tiles, device.multiprocessors));
  const Flops tile(2.0 * static_cast<double>(tile_m * tile_n) *
                   static_cast<double>(g.k + device.gemm.k_overhead));
  const double of_one = device.gemm.ceiling / static_cast<double>(device.multiprocessors);
  return tile * waves / FlopRate::FromFlopsPerSecond(peak.flops_per_second() * of_one);
}

Result<FlopRate> PeakOf(DType dtype, const DeviceSpec& device, bool tf32) {
  const FlopRate peak = device.PeakFor(dtype == DType::kFloat32 && tf32 ? DType::kTf32 : dtype);
  if (peak > FlopRate()) return peak;
  return InvalidInput("{} has no arithmetic in {}", device.name, Name(dtype));
}

Result<Duration> GemmTime(const Gemm& g, const DeviceSpec& device, bool tf32) {
  WT_ASSIGN_OR_RETURN(FlopRate peak, PeakOf(g.dtype, device, tf32));
  const Duration upright = TiledTime(g, device.gemm.tile_m, device.gemm.tile_n, peak, device);
  const Duration across = TiledTime(g, device.gemm.tile_n, device.gemm.tile_m, peak, device);
  return std::min(upright, across);
}

template <typename Attention>
Duration AttentionTime(const Attention& a, Flops flops, const DeviceSpec& device) {
  const auto& rates = a.kind == AttentionKind::kFlash ? device.flash : device.eager;
  const FlopRate rate = AttentionRateAt(rates, a.head_dim, a.seq);
  const double blocks = static_cast<double>(a.batch * a.heads * CeilDiv(a.seq, kQueryBlock));
  const double filled = std::min(blocks / static_cast<double>(device.multiprocessors), 1.0);
  return flops / FlopRate::FromFlopsPerSecond(rate.flops_per_second() * filled);
}

template <typename Attention>
Duration BlockTime(const Attention& a, Flops flops, const DeviceSpec& device) {
  return AttentionTime(AttentionForward{a.batch, a.seq * a.blocks, a.heads, a.kv_heads, a.head_dim,
                                        AttentionKind::kFlash, a.dtype},
                       flops, device);
}

Result<Duration> ArithmeticTime(const OpKind& kind, const DeviceSpec& device, bool tf32) {
  if (const auto* g = std::get_if<Gemm>(&kind)) return GemmTime(*g, device, tf32);
  // Tiles of all groups fill the multiprocessors together.
  if (const auto* g = std::get_if<GroupedGemm>(&kind))
    return GemmTime(Gemm{.m = g->m, .n = g->groups * g->n, .k = g->k, .dtype = g->dtype}, device, tf32);
  if (const auto* a = std::get_if<AttentionForward>(&kind)) return AttentionTime(*a, FlopsOf(kind), device);
  if (const auto* a = std::get_if<AttentionBackward>(&kind)) return AttentionTime(*a, FlopsOf(kind), device);
  // As flash attention of the tokens whose keys are at hand.
  if (const auto* a = std::get_if<ContextAttentionForward>(&kind))
    return BlockTime(*a, FlopsOf(kind), device);
  if (const auto* a = std::get_if<ContextAttentionBackward>(&kind))
    return BlockTime(*a, FlopsOf(kind), device);
  return Duration();
}

// Over the link to the host; only the side on the device counts, since both move the same elements.
bool CrossesToHost(const OpKind& kind) {
  const auto* copy = std::get_if<Copy>(&kind);
  return (copy != nullptr && copy->crosses != Copy::Crosses::kNothing) ||
         std::holds_alternative<LoadBatch>(kind);
}

}  // namespace

FlopRate AttentionRateAt(const std::vector<AttentionRate>& rates, int64_t head_dim, int64_t seq) {
  int64_t nearest = rates.front().head_dim;
  for (const AttentionRate& rate : rates) {
    if (std::llabs(rate.head_dim - head_dim) < std::llabs(nearest - head_dim)) nearest = rate.head_dim;
  }
  const AttentionRate *below = nullptr, *above = nullptr;
  for (const AttentionRate& rate : rates) {
    if (rate.head_dim != nearest) continue;
    if (rate.seq <= seq) below = &rate;
    if (rate.seq >= seq && above == nullptr) above = &rate;
  }
  if (below == nullptr) return above->rate;
  if (above == nullptr || above == below) return below->rate;
  const double from = Log2(static_cast<double>(below->seq)), to = Log2(static_cast<double>(above->seq));
  const double share = (Log2(static_cast<double>(seq)) - from) / (to - from);
  const double rate = below->rate.flops_per_second() * (1 - share) + above->rate.flops_per_second() * share;
  return FlopRate::FromFlopsPerSecond(rate);
}

Result<Duration> KernelTime(const OpKind& kind, const DeviceSpec& device, bool tf32) {
  if (CrossesToHost(kind)) {
    const auto* copy = std::get_if<Copy>(&kind);
    const Bytes bytes =
        copy ? std::max(SizeOf(copy->from), SizeOf(copy->to)) * copy->elements : TrafficOf(kind);
    return bytes / device.host_link + device.kernel_minimum;
  }
  WT_ASSIGN_OR_RETURN(Duration arithmetic, ArithmeticTime(kind, device, tf32));
  return std::max(arithmetic, MemoryTime(TrafficOf(kind), device)) + device.kernel_minimum;
}

}  // namespace windtunnel
