// The operators of plan/ops.h in double precision, written for clarity: each forward function is its formula,
// each backward function the formula's derivative. reference_test.cc compares the derivatives with finite
// differences, and the tests of the cpu device compare its kernels with these functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "plan/op.h"

namespace windtunnel::reference {

using Values = std::vector<double>;

// C[m,n] = op(A) op(B).
Values Gemm(int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b, const Values& a,
            const Values& b);

// y of the norm over rows of x; beta may be empty.
Values Norm(NormKind kind, int64_t rows, int64_t columns, const Values& x, const Values& gamma,
            const Values& beta);
struct NormGradients {
  Values dx, dgamma, dbeta;
};
NormGradients NormBackward(NormKind kind, int64_t rows, int64_t columns, const Values& dy, const Values& x,
                           const Values& gamma);

struct AttentionShape {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  // The number of keys that a query sees, of which its own is the last; 0: its own and all before.
  int64_t window = 0;
  // Otherwise a query sees all keys of its sequence.
  bool causal = true;
  // Cross-attention (not causal): the number of keys and values, which lie beside the first `keys()` rows of
  // qkv; queries beside the first `seq`. The other places count for nothing. 0: seq.
  int64_t key_seq = 0;
  // What is added to the scaled score of (head, query, key); null: nothing.
  std::function<double(int64_t, int64_t, int64_t)> bias = nullptr;
  // What dropout multiplies the probability of (sample, head, query, key) by; null: nothing is dropped.
  std::function<double(int64_t, int64_t, int64_t, int64_t)> factor = nullptr;

  double Factor(int64_t b, int64_t head, int64_t query, int64_t key) const {
    return factor ? factor(b, head, query, key) : 1.0;
  }
  // The keys that query `query` sees: from FirstKey to before EndOfKeys.
  int64_t FirstKey(int64_t query) const { return window == 0 ? 0 : std::max<int64_t>(0, query + 1 - window); }
  int64_t EndOfKeys(int64_t query) const { return causal ? query + 1 : keys(); }
  int64_t keys() const { return key_seq > 0 ? key_seq : seq; }
  int64_t rows() const { return std::max(seq, keys()); }  // of a sequence in qkv
  int64_t packed() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t qkv_elements() const { return batch * rows() * packed(); }
  int64_t out_elements() const { return batch * seq * heads * head_dim; }
};
struct AttentionResult {
  Values out, probabilities;  // [batch, heads, seq, keys]
  Values log_sum_exp;         // [batch, heads, seq]
};
AttentionResult Attention(const AttentionShape& shape, const Values& qkv);
// `dscores`, if not null, gets the gradients of the biased scores [batch, heads, seq, keys].
Values AttentionBackward(const AttentionShape& shape, const Values& dout, const Values& qkv,
                         Values* dscores = nullptr);

// Rotary positions on the query and key heads of qkv; the values pass through.
Values Rope(const AttentionShape& shape, const Values& qkv);
Values RopeBackward(const AttentionShape& shape, const Values& dqkv);

// `in` is [rows, columns], or [rows, 2 columns] for SwiGLU.
Values Activation(ActivationKind kind, int64_t rows, int64_t columns, const Values& in);
Values ActivationBackward(ActivationKind kind, int64_t rows, int64_t columns, const Values& dout,
                          const Values& in);

struct LossResult {
  double loss = 0;
  Values gradient;
};
LossResult CrossEntropy(int64_t rows, int64_t vocab, const Values& logits,
                        const std::vector<int32_t>& targets);
LossResult MeanSquaredError(const Values& prediction, const Values& target);

// One update of one parameter; m and v are the optimizer's states (plan/ops.h).
void OptimizerUpdate(const OptimizerSpec& spec, int64_t step, const Values& gradient, Values& parameter,
                     Values& m, Values& v);

}  // namespace windtunnel::reference
