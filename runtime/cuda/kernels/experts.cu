#include "runtime/cuda/kernels/experts.h"

#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

// One thread per token: its top_k largest logits (ties: the first), and the softmax among them (among all if
// top_k is 1). Writes the experts' numbers where their slots will be.
template <typename T>
struct ChooseExpertsKernel {
  static constexpr int kThreads = 128;
  // groups: 0 if experts are not limited to some groups.
  int64_t tokens, experts, top_k, groups, top_k_groups;
  const T* logits;
  float *probabilities, *weights;
  int32_t* slots;

  WT_DEVICE void operator()() const {
    for (int64_t t = FirstIndex<kThreads>(); t < tokens; t += IndexStride<kThreads>())
      Choose(logits + t * experts, probabilities + t * experts, weights + t * top_k, slots + t * top_k);
  }

  WT_DEVICE void Choose(const T* x, float* p, float* weight, int32_t* chosen) const {
    const uint64_t best_groups = BestGroups(x);
    for (int64_t k = 0; k < top_k; ++k) chosen[k] = NextLargest(x, k == 0 ? -1 : chosen[k - 1], best_groups);
    const float most = Float(x[chosen[0]]);
    const bool all = top_k == 1;
    float sum = 0.0f;
    for (int64_t e = 0; e < experts; ++e) p[e] = 0.0f;
    for (int64_t i = 0; i < (all ? experts : top_k); ++i) {
      const int64_t e = all ? i : chosen[i];
      sum += p[e] = std::exp(Float(x[e]) - most);
    }
    for (int64_t i = 0; i < (all ? experts : top_k); ++i) p[all ? i : chosen[i]] /= sum;
    for (int64_t k = 0; k < top_k; ++k) weight[k] = p[chosen[k]];
  }

  // One bit for each of the groups with the largest best logits (ties: the first).
  WT_DEVICE uint64_t BestGroups(const T* x) const {
    uint64_t best_groups = 0;
    const int64_t each = groups > 0 ? experts / groups : 0;
    for (int64_t k = 0; groups > 0 && k < top_k_groups; ++k) {
      int64_t best = -1;
      float best_logit = 0.0f;
      for (int64_t group = 0; group < groups; ++group) {
        if ((best_groups >> group & 1) != 0) continue;
        float most = -INFINITY;
        for (int64_t e = group * each; e < (group + 1) * each; ++e)
          most = Score(x[e]) > most ? Score(x[e]) : most;
        if (best >= 0 && !(most > best_logit)) continue;
        best = group;
        best_logit = most;
      }
      best_groups |= uint64_t{1} << best;
    }
    return best_groups;
  }

  // The next expert after `last` in the order of falling logits (ties: the first).
  WT_DEVICE int32_t NextLargest(const T* x, int32_t last, uint64_t best_groups) const {
    int32_t best = -1;
    for (int32_t e = 0; e < experts; ++e) {
      if (groups > 0 && (best_groups >> (e / (experts / groups)) & 1) == 0) continue;
      const float value = Score(x[e]);
      const bool left = last < 0 || value < Score(x[last]) || (value == Score(x[last]) && e > last);
      if (left && (best < 0 || value > Score(x[best]))) best = e;
    }
    return best;
  }

  // A NaN ranks last, as on the cpu device: unscaled losses in fp16 have some.
  WT_DEVICE static float Score(T x) {
    const float logit = Float(x);
    return logit == logit ? logit : -INFINITY;
  }
};

// One block per expert: assigns slots to the tokens that chose it, in their order.
struct TakeSlotsKernel {
  static constexpr int kThreads = 256, kWarps = kThreads / kWarp;
  int64_t choices, capacity;
  const int32_t* chosen;
  int32_t* slots;

  WT_DEVICE void operator()() const {
    int32_t* const of_warp = SharedMemory<int32_t>();  // [kWarps]
    const int32_t expert = BlockX();
    int64_t taken = 0;
    for (int64_t first = 0; first < choices; first += kThreads) {
      const int64_t i = first + Thread();
      const bool mine = i < choices && chosen[i] == expert;
      const uint32_t bits = Ballot(mine);
      if (Lane() == 0) of_warp[Thread() / kWarp] = CountBits(bits);
      SyncThreads();
      int64_t place = taken + CountBits(bits & ((1u << Lane()) - 1u));
      for (int warp = 0; warp < kWarps; ++warp) {
        if (warp < Thread() / kWarp) place += of_warp[warp];
        taken += of_warp[warp];
      }
      if (mine) slots[i] = static_cast<int32_t>(place < capacity ? expert * capacity + place : -1 - expert);
      SyncThreads();
    }
  }
};

// One thread per token. Gradient of the softmax: p (g - sum p g), where g are the gradients of the chosen
// experts' weights.
template <typename T>
struct RouteBackwardKernel {
  static constexpr int kThreads = 128;
  int64_t tokens, experts, top_k, capacity;
  const float *dweights, *probabilities;
  const int32_t* slots;
  T* dlogits;

  WT_DEVICE int64_t ExpertOf(int32_t slot) const {
    return slot < 0 ? -1 - static_cast<int64_t>(slot) : slot / capacity;
  }

  WT_DEVICE void operator()() const {
    for (int64_t t = FirstIndex<kThreads>(); t < tokens; t += IndexStride<kThreads>()) {
      const float* const p = probabilities + t * experts;
      const float* const d = dweights + t * top_k;
      const int32_t* const slot = slots + t * top_k;
      float sum = 0.0f;
      for (int64_t k = 0; k < top_k; ++k) sum += p[ExpertOf(slot[k])] * d[k];
      for (int64_t e = 0; e < experts; ++e) {
        float gradient = 0.0f;
        for (int64_t k = 0; k < top_k; ++k) {
          if (ExpertOf(slot[k]) == e) gradient = d[k];
        }
        dlogits[t * experts + e] = Rounded<T>(p[e] * (gradient - sum));
      }
    }
  }
};

// One block per choice: copies the token's row into its slot.
template <typename T>
struct DispatchKernel {
  static constexpr int kThreads = 128, kWidth = kVector<T>;
  int64_t choices, top_k, n;
  bool aligned;
  const T* x;
  const int32_t* slots;
  T* y;

  WT_DEVICE void operator()() const {
    for (int64_t c = BlockX(); c < choices; c += GridX()) {
      if (slots[c] < 0) continue;
      const T* const from = x + c / top_k * n;
      T* const to = y + slots[c] * n;
      ForEachPiece<kWidth>(n, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
        Store(to + i, Load<decltype(width)::value>(from + i));
      });
    }
  }
};

// One block per token: the sum of its slots' rows times their weights.
template <typename T>
struct CombineKernel {
  static constexpr int kThreads = 128, kWidth = kVector<T>;
  int64_t tokens, top_k, n;
  bool aligned;
  const T* x;
  const int32_t* slots;
  const float* weights;  // null: all are 1
  T* y;

  WT_DEVICE void operator()() const {
    for (int64_t t = BlockX(); t < tokens; t += GridX()) {
      ForEachPiece<kWidth>(n, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
        constexpr int kPiece = decltype(width)::value;
        Pack<float, kPiece> sum{};
        for (int64_t c = t * top_k; c < (t + 1) * top_k; ++c) {
          if (slots[c] < 0) continue;
          const float weight = weights == nullptr ? 1.0f : weights[c];
          const Pack<float, kPiece> v = Load<kPiece>(x + slots[c] * n + i);
          WT_UNROLL
          for (int j = 0; j < kPiece; ++j) sum.at[j] += weight * v.at[j];
        }
        Store(y + t * n + i, sum);
      });
    }
  }
};

// One block per choice: the gradients of its slot's row and of its weight.
template <typename T>
struct CombineBackwardKernel {
  static constexpr int kThreads = 128, kWidth = kVector<T>;
  int64_t choices, top_k, n;
  bool aligned;
  const T *dy, *x;
  const int32_t* slots;
  const float* weights;
  T* dx;
  float* dweights;

  WT_DEVICE void operator()() const {
    for (int64_t c = BlockX(); c < choices; c += GridX()) {
      const int64_t slot = slots[c];
      float dot = 0.0f;
      if (slot >= 0) {
        const T* const of_token = dy + c / top_k * n;
        const float weight = weights[c];
        ForEachPiece<kWidth>(n, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
          constexpr int kPiece = decltype(width)::value;
          Pack<float, kPiece> d = Load<kPiece>(of_token + i);
          const Pack<float, kPiece> v = Load<kPiece>(x + slot * n + i);
          WT_UNROLL
          for (int j = 0; j < kPiece; ++j) {
            dot += d.at[j] * v.at[j];
            d.at[j] *= weight;
          }
          Store(dx + slot * n + i, d);
        });
      }
      dot = ReduceBlock<kThreads>(dot, 0.0f, SharedMemory<float>(), Sum());
      if (Thread() == 0) dweights[c] = dot;
    }
  }
};

}  // namespace

int64_t ScratchBytes(const RouteTokens& op, const Traits&) { return op.tokens * op.top_k * 4; }

void Run(Queue& queue, const RouteTokens& op, const Operands& operands) {
  const int64_t choices = op.tokens * op.top_k;
  int32_t* slots = operands.Out<int32_t>(2, choices);
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    using Kernel = ChooseExpertsKernel<T>;
    queue.Launch(Kernel{op.tokens, op.experts, op.top_k, op.is_limited() ? op.groups : 0, op.top_k_groups,
                        operands.In<T>(0, op.tokens * op.experts), operands.Out(0, op.tokens * op.experts),
                        operands.Out(1, choices), slots},
                 {queue.BlocksFor(op.tokens, Kernel::kThreads)});
  });
  // Every expert's block reads all experts' numbers and overwrites its own entries, so they read from a copy.
  int32_t* chosen = queue.Scratch<int32_t>(choices);
  queue.CopyMemory(chosen, slots, choices * 4);
  queue.Launch(TakeSlotsKernel{choices, op.capacity, chosen, slots}, {op.experts},
               TakeSlotsKernel::kWarps * 4);
}

void Run(Queue& queue, const RouteTokensBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    using Kernel = RouteBackwardKernel<T>;
    queue.Launch(Kernel{op.tokens, op.experts, op.top_k, op.capacity, operands.In(0, op.tokens * op.top_k),
                        operands.In(1, op.tokens * op.experts), operands.In<int32_t>(2, op.tokens * op.top_k),
                        operands.Out<T>(0, op.tokens * op.experts)},
                 {queue.BlocksFor(op.tokens, Kernel::kThreads)});
  });
}

void Run(Queue& queue, const DispatchTokens& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t choices = op.tokens * op.top_k;
    const T* x = operands.In<T>(0, op.tokens * op.hidden);
    T* y = operands.Out<T>(0, op.rows * op.hidden);
    queue.Clear(y, op.rows * op.hidden * static_cast<int64_t>(sizeof(T)));
    queue.Launch(DispatchKernel<T>{choices, op.top_k, op.hidden, op.hidden % kVector<T> == 0 && Aligned(x, y),
                                   x, operands.In<int32_t>(1, choices), y},
                 {queue.BlocksFor(choices, 1, 16)});
  });
}

void Run(Queue& queue, const CombineTokens& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t choices = op.tokens * op.top_k;
    const T* x = operands.In<T>(0, op.rows * op.hidden);
    T* y = operands.Out<T>(0, op.tokens * op.hidden);
    queue.Launch(
        CombineKernel<T>{op.tokens, op.top_k, op.hidden, op.hidden % kVector<T> == 0 && Aligned(x, y), x,
                         operands.In<int32_t>(1, choices), op.weighted ? operands.In(2, choices) : nullptr,
                         y},
        {queue.BlocksFor(op.tokens, 1, 16)});
  });
}

void Run(Queue& queue, const CombineBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    using Kernel = CombineBackwardKernel<T>;
    const int64_t choices = op.tokens * op.top_k;
    const T* dy = operands.In<T>(0, op.tokens * op.hidden);
    const T* x = operands.In<T>(1, op.rows * op.hidden);
    T* dx = operands.Out<T>(0, op.rows * op.hidden);
    queue.Clear(dx, op.rows * op.hidden * static_cast<int64_t>(sizeof(T)));
    queue.Launch(
        Kernel{choices, op.top_k, op.hidden, op.hidden % Kernel::kWidth == 0 && Aligned(dy, x, dx), dy, x,
               operands.In<int32_t>(2, choices), operands.In(3, choices), dx, operands.Out(1, choices)},
        {queue.BlocksFor(choices, 1, 16)}, Kernel::kThreads / kWarp * 4);
  });
}

}  // namespace windtunnel::WT_KERNELS
