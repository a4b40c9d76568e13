#include "runtime/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"

namespace windtunnel::cpu {
namespace {

int64_t ExpertOf(int32_t slot, int64_t capacity) { return slot < 0 ? -1 - int64_t{slot} : slot / capacity; }

// The softmax over the logits of the experts `among` of one token; zero elsewhere.
template <typename T>
void SoftmaxAmong(const T* logits, const int32_t* among, int64_t count, int64_t experts,
                  float* probabilities) {
  std::fill_n(probabilities, experts, 0.0f);
  float most = ToFloat(logits[among[0]]), sum = 0.0f;
  for (int64_t i = 1; i < count; ++i) most = std::max(most, ToFloat(logits[among[i]]));
  for (int64_t i = 0; i < count; ++i)
    sum += probabilities[among[i]] = std::exp(ToFloat(logits[among[i]]) - most);
  for (int64_t i = 0; i < count; ++i) probabilities[among[i]] /= sum;
}

// Writes to `among` the experts of the top_k_groups groups with the largest best scores (ties: the first
// group) and returns how many there are. `order` has room for the groups.
template <typename Score>
int64_t ExpertsOfBestGroups(const RouteTokens& op, Score score, int32_t* order, int32_t* among) {
  const int64_t each = op.experts / op.groups;
  const auto best = [&](int32_t group) {
    float most = score(static_cast<int32_t>(group * each));
    for (int64_t e = 1; e < each; ++e) most = std::max(most, score(static_cast<int32_t>(group * each + e)));
    return most;
  };
  std::iota(order, order + op.groups, 0);
  std::partial_sort(order, order + op.top_k_groups, order + op.groups, [best](int32_t a, int32_t b) {
    const float x = best(a), y = best(b);
    return x != y ? x > y : a < b;
  });
  for (int64_t g = 0; g < op.top_k_groups; ++g)
    std::iota(among + g * each, among + (g + 1) * each, static_cast<int32_t>(order[g] * each));
  return op.top_k_groups * each;
}

template <typename T>
void RouteAll(Scratch& scratch, const RouteTokens& op, const T* logits, float* probabilities, float* weights,
              int32_t* slots) {
  int32_t* order = scratch.Integers(2 * op.experts + op.groups);
  int32_t* taken = order + op.experts;
  int32_t* order_of_groups = taken + op.experts;
  std::fill_n(taken, op.experts, 0);
  for (int64_t t = 0; t < op.tokens; ++t) {
    const T* of_token = logits + t * op.experts;
    // A NaN logit comes last. They occur before dynamic loss scaling has found its scale.
    const auto score = [of_token](int32_t expert) {
      const float logit = ToFloat(of_token[expert]);
      return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
    };
    int64_t candidates = op.experts;
    if (op.is_limited()) candidates = ExpertsOfBestGroups(op, score, order_of_groups, order);
    else std::iota(order, order + op.experts, 0);
    std::partial_sort(order, order + op.top_k, order + candidates, [score](int32_t a, int32_t b) {
      const float x = score(a), y = score(b);
      return x != y ? x > y : a < b;
    });
    float* of_experts = probabilities + t * op.experts;
    if (op.top_k > 1) {
      SoftmaxAmong(of_token, order, op.top_k, op.experts, of_experts);
    } else {  // over all experts, including those of other groups
      std::iota(order + 1, order + op.experts, 0);
      for (int64_t e = 1; e < op.experts; ++e) order[e] += order[e] >= order[0];
      SoftmaxAmong(of_token, order, op.experts, op.experts, of_experts);
    }
    for (int64_t k = 0; k < op.top_k; ++k) {
      const int32_t expert = order[k];
      weights[t * op.top_k + k] = of_experts[expert];
      const bool has_room = taken[expert] < op.capacity;
      slots[t * op.top_k + k] =
          has_room ? static_cast<int32_t>(expert * op.capacity + taken[expert]++) : -1 - expert;
    }
  }
}

// Gradient of the softmax: p (g - sum p g), where g are the gradients of the chosen experts' weights; dropped
// ones have none.
template <typename T>
void RouteAllBackward(const RouteTokensBackward& op, const float* dweights, const float* probabilities,
                      const int32_t* slots, T* dlogits) {
  for (int64_t t = 0; t < op.tokens; ++t) {
    const float* p = probabilities + t * op.experts;
    float sum = 0.0f;
    for (int64_t k = t * op.top_k; k < (t + 1) * op.top_k; ++k)
      sum += p[ExpertOf(slots[k], op.capacity)] * dweights[k];
    T* out = dlogits + t * op.experts;
    for (int64_t e = 0; e < op.experts; ++e) {
      float gradient = 0.0f;
      for (int64_t k = t * op.top_k; k < (t + 1) * op.top_k; ++k) {
        if (ExpertOf(slots[k], op.capacity) == e) gradient = dweights[k];
      }
      out[e] = FromFloat<T>(p[e] * (gradient - sum));
    }
  }
}

template <typename T>
WT_CPU_KERNEL void AddScaled(int64_t n, float scale, const T* in, float* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] += scale * ToFloat(in[i]);
}

template <typename T>
WT_CPU_KERNEL void ScaleRow(int64_t n, float scale, const T* in, T* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = FromFloat<T>(scale * ToFloat(in[i]));
}

template <typename T>
WT_CPU_KERNEL float Dot(int64_t n, const T* a, const T* b) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += ToFloat(a[i]) * ToFloat(b[i]);
  return sum;
}

}  // namespace

Status Run(Scratch& scratch, const RouteTokens& op, const Operands& operands) {
  if (op.capacity == 0) {
    return Unsupported(
        "model.experts.capacity_factor: 0 (no capacity) is predicted only; live runs need room that is "
        "known");
  }
  WithElement(op.dtype, [&](auto element) {
    RouteAll(scratch, op, operands.In<decltype(element)>(0, op.tokens * op.experts),
             operands.Out(0, op.tokens * op.experts), operands.Out(1, op.tokens * op.top_k),
             operands.OutIntegers(2, op.tokens * op.top_k));
  });
  return Ok();
}

Status Run(const RouteTokensBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    RouteAllBackward(op, operands.In(0, op.tokens * op.top_k), operands.In(1, op.tokens * op.experts),
                     operands.InIntegers(2, op.tokens * op.top_k),
                     operands.Out<decltype(element)>(0, op.tokens * op.experts));
  });
  return Ok();
}

Status Run(const DispatchTokens& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const T* x = operands.In<T>(0, op.tokens * op.hidden);
    const int32_t* slots = operands.InIntegers(1, op.tokens * op.top_k);
    T* y = operands.Out<T>(0, op.rows * op.hidden);
    std::fill_n(y, op.rows * op.hidden, T());
    for (int64_t i = 0; i < op.tokens * op.top_k; ++i) {
      if (slots[i] >= 0) std::copy_n(x + i / op.top_k * op.hidden, op.hidden, y + slots[i] * op.hidden);
    }
  });
  return Ok();
}

Status Run(Scratch& scratch, const CombineTokens& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const T* x = operands.In<T>(0, op.rows * op.hidden);
    const int32_t* slots = operands.InIntegers(1, op.tokens * op.top_k);
    const float* weights = op.weighted ? operands.In(2, op.tokens * op.top_k) : nullptr;
    T* y = operands.Out<T>(0, op.tokens * op.hidden);
    float* place = scratch.Floats(ElementsBeside<T>(op.hidden));
    for (int64_t t = 0; t < op.tokens; ++t) {
      Sums<T> sums(op.hidden, y + t * op.hidden, place);
      sums.Start(false);
      for (int64_t i = t * op.top_k; i < (t + 1) * op.top_k; ++i) {
        if (slots[i] >= 0)
          AddScaled(op.hidden, weights == nullptr ? 1.0f : weights[i], x + slots[i] * op.hidden, sums.data());
      }
      sums.Store();
    }
  });
  return Ok();
}

Status Run(const CombineBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const T* dy = operands.In<T>(0, op.tokens * op.hidden);
    const T* x = operands.In<T>(1, op.rows * op.hidden);
    const int32_t* slots = operands.InIntegers(2, op.tokens * op.top_k);
    const float* weights = operands.In(3, op.tokens * op.top_k);
    T* dx = operands.Out<T>(0, op.rows * op.hidden);
    float* dweights = operands.Out(1, op.tokens * op.top_k);
    std::fill_n(dx, op.rows * op.hidden, T());
    for (int64_t i = 0; i < op.tokens * op.top_k; ++i) {
      dweights[i] = 0.0f;
      if (slots[i] < 0) continue;
      const T* of_token = dy + i / op.top_k * op.hidden;
      ScaleRow(op.hidden, weights[i], of_token, dx + slots[i] * op.hidden);
      dweights[i] = Dot(op.hidden, of_token, x + slots[i] * op.hidden);
    }
  });
  return Ok();
}

}  // namespace windtunnel::cpu
