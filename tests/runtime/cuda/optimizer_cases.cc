// Cases of the optimizers, of clipping and of loss scaling.
#include <cstring>
#include <limits>
#include <numeric>

#include "tests/runtime/cuda/case_list.h"

namespace windtunnel::test {
namespace {

enum class Guard { kNone, kPasses, kSkips };  // not guarded; guarded, without and with an overflow

// An update of tensors of these lengths.
void AddUpdate(Cases& c, const OptimizerSpec& spec, const std::vector<int64_t>& lengths, Guard guard) {
  const int states = spec.kind != OptimizerKind::kSgd ? 2 : spec.momentum > 0 ? 1 : 0;
  const bool is_guarded = guard != Guard::kNone;
  const int64_t elements = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const OptimizerUpdate op{spec, elements, static_cast<int64_t>(lengths.size()), states, is_guarded};
  auto& update = c.Add("optimizer update", op, {.step = 3});
  for (int64_t length : lengths) update.Read(kFloat, length);
  if (is_guarded) {
    update.Read(kFloat, 1).Read(kFloat, kLossScaleNumbers);
    const float numbers[] = {1024, 0, 2};
    std::memcpy(update.buffers.back().bytes.data(), numbers, sizeof(numbers));
    *reinterpret_cast<float*>(update.buffers[update.buffers.size() - 2].bytes.data()) =
        guard == Guard::kSkips ? 1.0f : 0.0f;
  }
  for (int64_t length : lengths) update.Update(kFloat, length);
  for (int state = 0; state < states; ++state) {
    const DType moments = MomentsOf(spec, /*second=*/state == 1);
    for (int64_t length : lengths) {
      update.Update(moments, ElementsFor(length, moments), 0.1);
      if (IsDynamic8(moments)) continue;
      // Averages of squares have no sign, which is in the last byte of an element.
      std::vector<uint8_t>& bytes = update.buffers.back().bytes;
      const auto size = static_cast<size_t>(SizeOf(moments).count());
      for (size_t i = size - 1; state == 1 && i < bytes.size(); i += size) bytes[i] &= 0x7f;
    }
  }
}

void AddMuon(Cases& c) {
  OptimizerSpec spec;
  spec.kind = OptimizerKind::kMuon;
  spec.lr = 0.01;
  spec.weight_decay = 0.1;
  spec.momentum = 0.95;
  OptimizerSpec narrow = spec;
  narrow.moments = MomentsType::kBf16;
  const auto put = [](OperatorCase& of, float number) {
    *reinterpret_cast<float*>(of.buffers.back().bytes.data()) = number;
  };
  for (const OptimizerSpec& of : {spec, narrow}) {
    for (const Guard guard : {Guard::kNone, Guard::kPasses, Guard::kSkips}) {
      const bool is_guarded = guard != Guard::kNone;
      const float overflows = guard == Guard::kSkips ? 1.0f : 0.0f;
      for (const int64_t n : {int64_t{1}, int64_t{333}, c.large ? int64_t{2'000'001} : int64_t{20'000}}) {
        auto& direction = c.Add("muon direction", MuonDirection{of, n, is_guarded}).Read(kFloat, n);
        if (is_guarded) put(direction.Read(kFloat, 1), overflows);
        direction.Update(MomentsOf(of), n, 0.1).Write(DType::kBFloat16, n);
        auto& update = c.Add("muon update", MuonUpdate{of, n, 1.5, is_guarded}).Read(DType::kBFloat16, n);
        if (is_guarded) put(update.Read(kFloat, 1), overflows);
        update.Update(kFloat, n);
      }
    }
  }
}

// Random columns, and the last one the first again, in place of which a random one comes.
void AddOrthonormalize(Cases& c) {
  struct Shape {
    int64_t rows, columns;
  };
  for (const DType dtype : {kFloat, DType::kBFloat16, DType::kFloat16}) {
    for (const Shape& shape :
         {Shape{1, 1}, Shape{333, 1}, Shape{700, 5}, Shape{c.large ? 50'257 : 2'000, 4}}) {
      for (const bool depends : {false, true}) {
        if (depends && shape.columns == 1) continue;
        auto& of = c.Add("orthonormalize", Orthonormalize{shape.rows, shape.columns, dtype});
        of.Update(dtype, shape.rows * shape.columns);
        if (!depends) continue;
        std::vector<uint8_t>& bytes = of.buffers.back().bytes;
        const auto size = static_cast<size_t>(SizeOf(dtype).count());
        const auto row = size * static_cast<size_t>(shape.columns);
        for (size_t begin = 0; begin < bytes.size(); begin += row)
          std::memcpy(&bytes[begin + row - size], &bytes[begin], size);
      }
    }
  }
}

}  // namespace

void AddOptimizers(Cases& c) {
  std::vector<int64_t> lengths = {1, 20'000, 64, 333};
  for (int64_t i = 0; i < 110; ++i) lengths.push_back(3 + i % 50);
  if (c.large) lengths.push_back(2'000'000);
  const auto tensors = static_cast<int64_t>(lengths.size());
  const int64_t elements = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  std::vector<int> replicas;
  for (int64_t i = 0; i < tensors; ++i) replicas.push_back(i % 3 == 0 ? 2 : 1);
  for (bool squared : {false, true}) {
    for (bool shared : {false, true}) {
      auto& norm = c.Add("gradient norm",
                         GradientNorm{elements, tensors, squared, shared ? replicas : std::vector<int>()});
      for (int64_t length : lengths) norm.Read(kFloat, length);
      norm.Write(kFloat, 1);
    }
  }
  for (double value : {0.5, 3.0}) {
    auto& clip = c.Add("clip gradients", ClipGradients{elements, tensors, 1.0}).Read(kFloat, 1);
    *reinterpret_cast<float*>(clip.buffers.back().bytes.data()) = static_cast<float>(value);
    for (int64_t length : lengths) clip.Update(kFloat, length);
  }
  auto& root = c.Add("square root", SquareRoot{}).Read(kFloat, 1).WriteToRead(0);
  *reinterpret_cast<float*>(root.buffers.back().bytes.data()) = 5.0f;

  for (bool overflows : {false, true}) {
    auto& unscale = c.Add("unscale gradients", UnscaleGradients{elements, tensors});
    unscale.Read(kFloat, kLossScaleNumbers).Write(kFloat, 1);
    for (int64_t length : lengths) unscale.Update(kFloat, length);
    auto* last = reinterpret_cast<float*>(unscale.buffers.back().bytes.data());
    if (overflows) *last = std::numeric_limits<float>::infinity();
    auto& scale = c.Add("update loss scale", UpdateLossScale{.growth_interval = 1}).Read(kFloat, 1);
    *reinterpret_cast<float*>(scale.buffers.back().bytes.data()) = overflows ? 1.0f : 0.0f;
    scale.Update(kFloat, kLossScaleNumbers);
  }

  OptimizerSpec sgd, momentum, adam, adamw;
  sgd.kind = momentum.kind = OptimizerKind::kSgd;
  sgd.momentum = 0.0;
  momentum.momentum = 0.9;
  adam.kind = OptimizerKind::kAdam;
  adamw.kind = OptimizerKind::kAdamW;
  OptimizerSpec narrow_momentum = momentum, narrow_adamw = adamw, packed_adam = adam, packed_adamw = adamw;
  narrow_momentum.moments = narrow_adamw.moments = MomentsType::kBf16;
  packed_adam.moments = packed_adamw.moments = MomentsType::kInt8;
  for (OptimizerSpec* spec :
       {&sgd, &momentum, &adam, &adamw, &narrow_momentum, &narrow_adamw, &packed_adam, &packed_adamw}) {
    spec->lr = 0.01;
    spec->weight_decay = 0.1;
    for (Guard guard : {Guard::kNone, Guard::kPasses, Guard::kSkips}) AddUpdate(c, *spec, lengths, guard);
  }
  AddMuon(c);
  AddOrthonormalize(c);
}

}  // namespace windtunnel::test
