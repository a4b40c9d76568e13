// The operators of a step program. An operator is a kind with the shape that determines its cost; the buffers that it
// works on stand beside it in Op (plan/step_program.h), in the order that each kind's comment gives.
//
// Matrices are row-major. T is tokens (or samples) of a micro-batch: sequences x sequence length.
// "acc" operands are added to instead of overwritten when the operator's `accumulate` is set.
// `dtype` is the element type of every operand that no comment says otherwise about (activations, parameters and their
// gradients alike); arithmetic within an operator is fp32 whatever it is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/units.h"
#include "plan/attention_ops.h"
#include "plan/dtype.h"
#include "plan/expert_ops.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// C[m,n] = op(A) op(B) (+ bias[n] on every row) (+ C when accumulate); op(A) is [m,k], op(B) is [k,n].
// A is stored [m,k], or [k,m] when transpose_a; B is stored [k,n], or [n,k] when transpose_b.
// Of factors in fp8 or fp4 C has two bytes an element. Its sums stay in the tensor cores' own precision with fast accumulation, or are carried over
// to fp32 every 128 elements.
// reads: A, B, (bias); writes: C.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool bias = false;
  bool accumulate = false;
  DType dtype = DType::kFloat32;
  // Of factors in fp8 or fp4 only, which lie alike in both directions.
  bool is_forward = false, fast_accumulation = false;
  bool of_blocks = false;  // of 128 numbers and 128 x 128, each with a scale (Fp8Recipe::kBlock)
  // In what is modelled: one of `parts` alike that one operator makes, so many of which run at once, on streams of their own.
  int streams = 1, parts = 1;
};

// The largest magnitude of x[rows,columns], which scales it into fp8: of all of it, of each row or of each column. reads: x; writes: amax
// (fp32, one number, `rows` or `columns`).
struct Fp8Amax {
  int64_t rows = 0, columns = 0;
  enum class Of : uint8_t { kAll, kEachRow, kEachColumn } of = Of::kAll;
  DType dtype = DType::kFloat32;
  int64_t shared_by = 1;  // micro-batches, of which each bears its share of what is made once
  int64_t groups = 1;     // of equally many rows, each with a largest magnitude of its own: experts

  int64_t numbers() const { return of == Of::kAll ? groups : of == Of::kEachRow ? rows : groups * columns; }
};

// C[g] = op(A[g]) op(B[g]) (+ C[g] when accumulate) for every g of `groups` that follow each other without gaps, each as a Gemm.
// reads: A, B; writes: C.
struct GroupedGemm {
  int64_t groups = 0, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  DType dtype = DType::kFloat32;
  bool is_forward = false, fast_accumulation = false, of_blocks = false;  // as a Gemm's
};

// x[rows,columns] scaled into fp8 (nvfp4: fp4) as a factor of a product, by the largest magnitude of all of it (tensorwise; delayed: in
// earlier steps), of each row or each column (rowwise), of each 128 elements of a row or 128 x 128 of a matrix (block), of each 32 (mxfp8),
// or of each 16 and of all (nvfp4). The result is x as it lies, or transposed: the units that multiply fp8 sum over what is contiguous.
// From fp8 it is transposed only; `with_other` and nvfp4's second form, which read x, stand behind the factor that was kept of it (Fp8Factors).
// Rows' and blocks' magnitudes are found on the way. reads: x or that factor, (amax, unless the scale is a known number or found on the way);
// writes: y.
struct Fp8Cast {
  int64_t rows = 0, columns = 0;
  Fp8Recipe recipe = Fp8Recipe::kTensorwise;
  bool transposed = false;
  DType dtype = DType::kFloat32;  // of x
  int64_t shared_by = 1;          // micro-batches, as Fp8Amax
  int64_t groups = 1;             // of rows, as Fp8Amax: each is a factor of its own
  bool with_other = false;        // by the kernel that makes the other form, too, and so without reading
};

// The type of factors that a recipe scales.
constexpr DType FactorType(Fp8Recipe recipe) {
  if (recipe == Fp8Recipe::kNvfp4) return DType::kFloat4x2;
  return recipe == Fp8Recipe::kMxfp8 ? DType::kMxFloat8 : DType::kFloat8;
}

// What a factor of so many numbers takes: one byte each (nvfp4: half a byte), and the scales of microscaled blocks, a byte for 32 numbers
// (mxfp8) or 16 (nvfp4). (Of the other recipes scales are too few to count.)
constexpr int64_t FactorBytes(Fp8Recipe recipe, int64_t numbers) {
  if (recipe == Fp8Recipe::kMxfp8) return numbers + (numbers + 31) / 32;
  if (recipe == Fp8Recipe::kNvfp4) return (numbers + 1) / 2 + (numbers + 15) / 16;
  return numbers;
}
// The numbers in a factor of so many bytes, whose rows are whole blocks.
constexpr int64_t FactorNumbers(Fp8Recipe recipe, int64_t bytes) {
  if (recipe == Fp8Recipe::kMxfp8) return bytes * 32 / 33;
  if (recipe == Fp8Recipe::kNvfp4) return bytes * 16 / 9;
  return bytes;
}

// bias gradient: out[columns] (acc) = sum over rows of in[rows,columns]. reads: in; writes: out. Of experts, `groups` of these that follow
// each other, in in[groups,rows,columns] and out[groups,columns].
struct ColumnSum {
  int64_t rows = 0, columns = 0;
  bool accumulate = false;
  DType dtype = DType::kFloat32;
  int64_t groups = 0;  // 0: not of experts
  bool apart = false;  // the gradient of a bias that was added apart (AddBias)

  int64_t biases() const { return groups > 0 ? groups : 1; }
};

// out[elements] = sum over parts of in[parts,elements], in fp32, rounded once. reads: in; writes: out.
struct SumParts {
  int64_t parts = 0, elements = 0;
  DType dtype = DType::kFloat32;
};

// y[rows,columns] += bias[columns] in place: a row-parallel layer's bias, once the sum over ranks is there. reads: y, bias;
// writes: y. Of experts, `groups` of these that follow each other, in y[groups,rows,columns] and bias[groups,columns].
struct AddBias {
  int64_t rows = 0, columns = 0;
  DType dtype = DType::kFloat32;
  int64_t groups = 0;  // 0: not of experts
  // Not by the product: expert by expert and in fp32, as Megatron adds biases times the router's weights.
  bool apart = false;

  int64_t biases() const { return groups > 0 ? groups : 1; }
};

// y = norm(x) * gamma (+ beta: layer norm with bias). With `residual`: sum = x + branch, y = norm(sum).
// reads: x, (branch), gamma, (beta); writes: (sum), y, statistics.
// In what is modelled an RMS norm may write the normalised input in fp32, too, which its backward then reads.
// statistics: fp32 [rows,2] (mean, 1/deviation) for layer norm, [rows] (1/rms) for RMS norm. epsilon, here and below, is added to the
// variance, and no part of the cost.
struct NormForward {
  NormKind kind = NormKind::kLayerNorm;
  int64_t rows = 0, columns = 0;
  bool bias = true;
  bool residual = false;
  DType dtype = DType::kFloat32;
  double epsilon = 1e-5;
};

// Backward of the above. x is the normalised input (the sum, with residual). dx = d(norm) (+ dresidual).
// reads: dy, x, gamma, statistics, (dresidual: with residual); writes: dx, dgamma (acc), (dbeta (acc)).
// dx may be the same buffer as dresidual or dy.
struct NormBackward {
  NormKind kind = NormKind::kLayerNorm;
  int64_t rows = 0, columns = 0;
  bool bias = true;
  bool residual = false;
  bool accumulate = false;
  DType dtype = DType::kFloat32;
};

// to[rows, from `to_first` on `columns` of to_stride] = the same of from. reads: from; writes: to.
struct CopyColumns {
  int64_t rows = 0, columns = 0;
  int64_t from_first = 0, from_stride = 0, to_first = 0, to_stride = 0;
  DType dtype = DType::kFloat32;
};

// x[rows, sum of columns] <-> y[ranks, rows, sum of columns / ranks]: each of the blocks of columns (queries, keys, values) is divided
// evenly among ranks, for an all-to-all. `join` is the way back. reads: x (y); writes: y (x).
struct SplitColumns {
  int ranks = 1;
  int64_t rows = 0;
  std::vector<int64_t> columns;
  bool join = false;
  DType dtype = DType::kFloat32;
};
// y[inner, outer, length] = x[outer, inner, length]. reads: x; writes: y.
struct SwapBlocks {
  int64_t outer = 0, inner = 0, length = 0;
  DType dtype = DType::kFloat32;
};

// y = x with a share of its elements zero and the rest scaled up; the mask (uint8) says which are left. backward: the same of the
// gradient. Which share is no part of the cost. forward: reads x; writes y (may be x), mask. backward: reads dy, mask; writes dx (may be dy).
struct Dropout {
  int64_t elements = 0;
  bool backward = false;
  DType dtype = DType::kFloat32;
};

// out[rows,columns] = f(in), of in[rows,columns], or where the activation is gated of in[rows, 2*columns] (gate, then value): ActivationKind.
// forward: reads in; writes out. backward: reads dout, in; writes din (may be the buffer of dout unless gated).
// weighted (predicted only): each row of out times a number, fp32 [rows], which is read, too; backward writes its gradient, too.
struct ActivationForward {
  ActivationKind kind = ActivationKind::kGelu;
  int64_t rows = 0, columns = 0;
  DType dtype = DType::kFloat32;
  bool weighted = false;
};
struct ActivationBackward {
  ActivationKind kind = ActivationKind::kGelu;
  int64_t rows = 0, columns = 0;
  DType dtype = DType::kFloat32;
  bool weighted = false;
};

// Of token ids and targets: there is none, behind the end of the data.
inline constexpr int32_t kNoToken = -1;

// x[T,hidden] = table[ids] (+ positions[t mod seq]). reads: ids (int32 [T]), table[vocab,hidden],
// (positions[seq * context.ranks,hidden]); writes: x. Of context-parallel ranks `seq` is the rank's tokens of a sequence, and positions
// are those of whole sequences.
// vocab_parallel, here and below: the table is the tensor rank's part of a larger one, whose rows begin with its own at
// (position on the tensor axis) * vocab. Rows of x whose id is another rank's are zero, so that the ranks' x add up to the whole.
// ends, likewise: ids may be kNoToken, whose rows are zero and whose gradients go nowhere.
struct EmbeddingForward {
  int64_t tokens = 0, seq = 0, vocab = 0, hidden = 0;
  bool learned_positions = false;
  DType dtype = DType::kFloat32;
  bool vocab_parallel = false;
  TokenSplit context = {};
  bool ends = false;
};
// reads: ids, dx; writes: dtable (acc), (dpositions (acc)). Without accumulate, rows not hit become zero.
// table_accumulate and position accumulate differ with tied embeddings (the head has already written the table's).
struct EmbeddingBackward {
  int64_t tokens = 0, seq = 0, vocab = 0, hidden = 0;
  bool learned_positions = false;
  bool accumulate_table = false;
  bool accumulate_positions = false;
  DType dtype = DType::kFloat32;
  bool vocab_parallel = false;
  TokenSplit context = {};
  bool ends = false;
};

// Where the loss is scaled (plan/loss_scaling.h): three fp32 numbers, which are the scale, how many steps in a row had no overflow since
// it last changed, and how many steps were skipped so far.
inline constexpr int64_t kLossScaleNumbers = 3;

// Mean cross-entropy over rows; the gradient, times gradient_scale, overwrites the logits.
// reads: logits[rows,vocab], targets (int32 [rows]), (loss scale); writes: loss (fp32 scalar), logits (the gradient).
// Here and below: with `scaled` the loss scale's numbers are read last, and the gradient is times the scale; the loss is not. Where
// `counted` is less than 1, targets may be kNoToken: such rows have no loss and no gradient, and the mean is over that share of the rows,
// which is that of all ranks' rows that count. `fused` (in what is modelled): by the kernels that CrossEntropyKind::kFused says.
struct CrossEntropy {
  int64_t rows = 0, vocab = 0;
  double gradient_scale = 1.0;
  DType dtype = DType::kFloat32;
  bool scaled = false;
  double counted = 1.0;
  bool fused = false;
};

// Cross-entropy over logits[rows,vocab] that are a tensor rank's columns of larger ones, from (position on the tensor axis) * vocab
// on, as Megatron's vocab-parallel cross-entropy: three passes over the part, with an all-reduce after each of the first two, of
// `rows` fp32 each, so that no rank ever has a whole row.
//   maximum  reads: logits; writes: maximum[rows] of the part, to be maximised over ranks
//   sums     reads: logits, targets, maximum; writes: target[rows], the target's logit less the maximum (0 where it is another
//            rank's), and sum[rows] of the exponentials of the logits less the maximum, both to be summed over ranks
//   loss     reads: logits, targets, maximum, target, sum, (loss scale); writes: loss (fp32 scalar, mean over rows, the same on all ranks),
//            logits (the gradient, times gradient_scale)
struct VocabParallelMaximum {
  int64_t rows = 0, vocab = 0;
  DType dtype = DType::kFloat32;
  bool fused = false;  // as a CrossEntropy's, here and below
};
struct VocabParallelSums {
  int64_t rows = 0, vocab = 0;
  DType dtype = DType::kFloat32;
  double counted = 1.0;
  bool fused = false;
};
struct VocabParallelLoss {
  int64_t rows = 0, vocab = 0;
  double gradient_scale = 1.0;
  DType dtype = DType::kFloat32;
  bool scaled = false;
  double counted = 1.0;
  bool fused = false;
};

// Mean squared error over all elements. reads: prediction, target [rows,columns], (loss scale); writes: loss, dprediction.
// The target is fp32 (as the loader makes it), and so is the loss.
struct MeanSquaredError {
  int64_t rows = 0, columns = 0;
  double gradient_scale = 1.0;
  DType dtype = DType::kFloat32;
  bool scaled = false;
};

// out = in * scale (+ out when accumulate), element by element, converting types. reads: in; writes: out.
// `crosses` says that one side is in host memory and the other on the device (CPU offload).
struct Copy {
  int64_t elements = 0;
  DType from = DType::kFloat32, to = DType::kFloat32;
  double scale = 1.0;
  bool accumulate = false;
  enum class Crosses : uint8_t { kNothing, kToDevice, kToHost } crosses = Crosses::kNothing;
};

// x *= scale in place. reads: x; writes: x.
struct Scale {
  int64_t elements = 0;
  double scale = 1.0;
  DType dtype = DType::kFloat32;
};

// Whole tensors <-> the flat layout of `ranks` shards, of an FSDP 2 unit. Tensor i is cut into `ranks` parts of
// shard_elements[i] elements, the last of which may lack some or all (padding). The flat layout is rank after rank, of each
// rank its part of every tensor: element r * sum(shard_elements) + sum(shard_elements[0..i)) + j is element
// r * shard_elements[i] + j of tensor i.
// pack ("chunk_cat"): flat = tensors * scale, converted; padding becomes zero. reads: every tensor; writes: flat.
struct PackShards {
  int ranks = 1;
  std::vector<int64_t> shard_elements;
  DType from = DType::kFloat32, to = DType::kFloat32;
  double scale = 1.0;
};
// unpack ("copy-out"). reads: flat; writes: every tensor.
struct UnpackShards {
  int ranks = 1;
  std::vector<int64_t> shard_elements;
  DType dtype = DType::kFloat32;
};

// writes[i] = reads[i] for every i, of one type (torch._foreach_copy_). `elements` is their number where a rank has all of every
// tensor; of those cut into shards it has fewer.
struct CopyTensors {
  int64_t elements = 0;
  int64_t tensors = 0;
  DType dtype = DType::kFloat32;
};

// All elements become `value`. writes: x.
struct Fill {
  int64_t elements = 0;
  double value = 0.0;
  DType dtype = DType::kFloat32;
};

// Every gradient /= the loss scale; found_inf = 1 where an element of one of them is infinite or not a number, else 0, as
// torch._amp_foreach_non_finite_check_and_unscale_. reads: loss scale; writes: found_inf (fp32 scalar), every gradient.
struct UnscaleGradients {
  int64_t elements = 0;
  int64_t tensors = 0;
};

// The loss scale of the next step, as torch._amp_update_scale_: after a step that overflowed the scale is times backoff_factor, after
// growth_interval steps in a row without overflow times growth_factor. Unless `dynamic` it stays, and skipped steps are counted only.
// reads: found_inf; writes: loss scale.
struct UpdateLossScale {
  bool dynamic = true;
  double growth_factor = 2.0, backoff_factor = 0.5;
  int64_t growth_interval = 2000;
};

// norm = sqrt(sum of squares over all gradients); the sum itself when `squared`, to be summed over ranks that hold shards.
// A gradient that is the same on each of `replicas` ranks that the sum will go over counts a share on each. Empty: 1 for all.
// reads: every gradient; writes: norm (fp32 scalar).
struct GradientNorm {
  int64_t elements = 0;
  int64_t tensors = 0;
  bool squared = false;
  std::vector<int> replicas = {};  // by gradient
  DType dtype = DType::kFloat32;   // another in what is modelled only, here and below
};

// x = sqrt(x) of one fp32 scalar in place. reads: x; writes: x.
struct SquareRoot {};

// Every gradient *= min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_.
// reads: norm; writes: every gradient.
struct ClipGradients {
  int64_t elements = 0;
  int64_t tensors = 0;
  double max_norm = 0;
  DType dtype = DType::kFloat32;
};

// One update of every parameter, multi-tensor. reads: every gradient; writes: every parameter, then the first moments (or
// momenta) of every parameter, then the second moments. SGD without momentum has no state.
// The step number for Adam's bias correction is the executor's.
// With `guarded` found_inf and the loss scale's numbers are read behind the gradients: where found_inf is 1 nothing is written, and the
// step number is less by the steps that were skipped.
struct OptimizerUpdate {
  OptimizerSpec spec;
  int64_t elements = 0;
  int64_t tensors = 0;
  int state_tensors = 0;  // per parameter: 0, 1 or 2
  bool guarded = false;
  DType dtype = DType::kFloat32;  // of parameters and moments; another in what is modelled only
};

// `count` runs of `length` elements, whose beginnings are `stride` apart in the whole tensor and which follow each other without
// gaps in the part of a rank: the rank at `position` on the tensor axis has those from first + position * length on.
struct StridedRuns {
  int64_t first = 0, length = 0, count = 1, stride = 0;
};
// A rank's part of a tensor, in the order in which it lies; empty: the whole tensor. Blocks of rows (queries, keys, values) are a
// run each, columns are a run for each row.
using TensorPart = std::vector<StridedRuns>;
int64_t ElementsOf(const TensorPart& part);
// Calls f(element of the part, element of the whole tensor, elements) for each run, cut to elements [begin, end) of the part.
template <typename F>
void ForEachRun(const TensorPart& part, int position, int64_t begin, int64_t end, F f) {
  int64_t local = 0;
  for (const StridedRuns& runs : part) {
    for (int64_t i = 0; i < runs.count; ++i, local += runs.length) {
      const int64_t from = std::max(local, begin), to = std::min(local + runs.length, end);
      if (from < to) f(from, runs.first + position * runs.length + i * runs.stride + from - local, to - from);
    }
  }
}

// A parameter's first values: a pure function of (run.seed, stream, element index), so that any rank can make any part. With
// `part`, x is that part of the parameter. writes: x.
struct InitializeParameter {
  enum class Distribution { kNormal, kUniform, kOnes, kZeros } distribution = Distribution::kZeros;
  int64_t elements = 0;
  double scale = 0.0;   // standard deviation, or half width of the uniform
  uint64_t stream = 0;  // the parameter's position in registration order
  TensorPart part = {};
  int64_t expert_stride = 0;  // by how much the part begins further for each rank with other experts
};

// The data loader's next micro-batch of this rank into the step's input buffers.
// transformer: writes ids (int32 [T]), targets (int32 [T]), and `further` times targets one token further on, which behind the end of a
// sequence are kNoToken; MLP: writes inputs (fp32 [rows,in]), targets (fp32 [rows,out]).
struct LoadBatch {
  int64_t micro_batch = 0;
  int64_t rows = 0;         // sequences or samples
  int64_t columns = 0;      // tokens of a sequence, or input features
  int64_t targets = 0;      // MLP: output features
  TokenSplit context = {};  // of whose sequences the rank has `columns` tokens each
  int64_t further = 0;      // transformer: how many times targets come again, each time one token further on
};

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kTokenExchange,
  kShift,
  kBarrier
};

// What an all-reduce, reduce or reduce-scatter makes of the ranks' elements.
enum class Reduction : uint8_t { kSum, kMax };

// Of a rank's tokens, the shares that go to one rank of the group (its own, too; the busiest one), and to one node.
struct TokenReach {
  double rank = 0, node = 0;
  auto operator<=>(const TokenReach&) const = default;
};

// A collective of the group that its stream belongs to. `elements` counts the whole message: what is reduced or broadcast,
// what all ranks together gather or scatter.
// all-reduce: reads and writes x in place, writes scratch. broadcast: reads/writes x. barrier: nothing.
// reduce: reads x; writes the result on the root alone, where it may be x.
// gather: reads shard; writes whole on the root alone. scatter: reads whole on the root alone; writes shard. For both the root's
// shard may be its own part of the whole.
// all-gather: reads shard, writes whole; the shard may be this rank's part of the whole.
// all-to-all: reads in, writes out: part r of `in` becomes part (own rank) of rank r's `out`; both are `elements` long.
// token exchange (predicted only): reads tokens, writes those that arrived (or the other way round, added up on the way): a token goes once
// to each node and once to each rank that has experts of it, its way to another node's ranks by the one at the sender's place; `elements` is
// that of a rank's own tokens.
// shift: reads x, writes y: x goes to the rank `distance` ahead around the ring of the group, y comes from the one as far before; `elements`
// is that of one x.
// reduce-scatter: reads whole, writes shard, scratch; the shard may be this rank's part of the whole.
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kFloat32;
  int64_t elements = 0;
  int root = 0;  // HasRoot(kind): rank within the group
  Reduction reduction = Reduction::kSum;
  int distance = 1;             // of a shift; less than the group's size
  bool by_copy_engine = false;  // of a shift in what is modelled: no multiprocessor does it
  TokenReach reach = {};        // of a token exchange
};

// Point to point within the group of the stream; `peer` is a rank within the group. send: reads x; recv: writes x.
struct Send {
  DType dtype = DType::kFloat32;
  int64_t elements = 0;
  int peer = 0;
};
struct Receive {
  DType dtype = DType::kFloat32;
  int64_t elements = 0;
  int peer = 0;
};

// The host (the thread that issues operators) waits for the operators that this one depends on, which may be on any stream, the
// compute stream too. Takes no time of its own; on a device that computes in the host's thread nothing is left to wait for
// but communication. On a stream of kind kHost.
struct HostWait {};

using OpKind =
    std::variant<Gemm, GroupedGemm, RouteTokens, RouteTokensBackward, DispatchTokens, CombineTokens,
                 CombineBackward, Fp8Amax, Fp8Cast, ColumnSum, SumParts, AddBias, NormForward, NormBackward,
                 HeadNormForward, HeadNormBackward, AttentionForward, AttentionBackward,
                 ContextAttentionForward, ContextAttentionBackward, MergeAttention, CopyColumns, SplitColumns,
                 SwapBlocks, Dropout, Rope, JoinLatentHeads, ActivationForward, ActivationBackward,
                 EmbeddingForward, EmbeddingBackward, CrossEntropy, VocabParallelMaximum, VocabParallelSums,
                 VocabParallelLoss, MeanSquaredError, Copy, Scale, PackShards, UnpackShards, CopyTensors,
                 Fill, UnscaleGradients, UpdateLossScale, GradientNorm, SquareRoot, ClipGradients,
                 OptimizerUpdate, InitializeParameter, LoadBatch, Collective, Send, Receive, HostWait>;

// Groups of operators in reports: "gemm", "attention", "norm", "activation", "embedding", "loss", "copy", "optimizer",
// "data", "all_reduce", "broadcast", "barrier", …
std::string_view OperatorName(const OpKind& kind);

// The identity of an operator's cost: equal keys cost the same on one device. Human-readable and stable, since profiles
// are keyed by it: "gemm fp32 nt m=512 n=768 k=256 bias".
// Collectives and send/receive: "all_reduce fp32 bytes=1048576" (the group is the cost model's business).
std::string CostKey(const OpKind& kind);

// Floating-point operations (a multiply-add is two) and bytes that the operator must move at least.
Flops FlopsOf(const OpKind& kind);
Bytes TrafficOf(const OpKind& kind);

inline bool IsProduct(const OpKind& kind) {
  return std::holds_alternative<Gemm>(kind) || std::holds_alternative<GroupedGemm>(kind);
}
inline bool IsCommunication(const OpKind& kind) {
  return std::holds_alternative<Collective>(kind) || std::holds_alternative<Send>(kind) ||
         std::holds_alternative<Receive>(kind);
}

// Elements of scratch that `collective` needs on each of `group_size` ranks (plan/scratch.cc says what for).
int64_t CollectiveScratchElements(const Collective& collective, int group_size);

std::string_view Name(CollectiveKind kind);
// Whether one rank of the group is told apart: broadcast, reduce, gather, scatter.
bool HasRoot(CollectiveKind kind);
Bytes MessageBytes(const Collective& collective);
// Of what is sent or received, too; 0 where nothing is communicated.
Bytes MessageBytes(const OpKind& kind);

}  // namespace windtunnel
