// The kinds of operators of a step program, each with the shape that determines its cost; the buffers that an
// operator works on stand beside it in Op (plan/step_program.h), in the order that each kind's comment gives.
//
// Matrices are row-major. T is tokens (or samples) of a micro-batch: sequences x sequence length.
// "acc" operands are added to instead of overwritten when the operator's `accumulate` is set.
// `dtype` is the element type of every operand (activations, parameters and their gradients) unless a comment
// says otherwise; arithmetic within an operator is always fp32.
// A factor is an operand of a GEMM in fp8 or fp4 (plan/fp8.h). Predicted only: the runtime does not do it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/ceil_divide.h"
#include "base/units.h"
#include "plan/attention_ops.h"
#include "plan/delta_net_ops.h"
#include "plan/dtype.h"
#include "plan/expert_ops.h"
#include "plan/optimizer_ops.h"
#include "plan/state_space_ops.h"
#include "scenarios/operator_kinds.h"

namespace windtunnel {

// C[m,n] = alpha op(A) op(B) (+ bias[n] on every row) (+ beta C when accumulate); op(A) is [m,k], op(B) is
// [k,n].
// A is stored [m,k], or [k,m] when transpose_a; B is stored [k,n], or [n,k] when transpose_b.
// With factors C has two bytes an element. Its sums stay in the tensor cores' own precision with fast
// accumulation; else they are carried over to fp32 every 128 elements.
// reads: A, B, (bias); writes: C.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool bias = false;
  bool accumulate = false;
  DType dtype = DType::kFloat32;
  // Set only for factors: forward's and backward's GEMMs have the same layout there.
  bool is_forward = false, fast_accumulation = false;
  bool of_blocks = false;  // scales are per block of 128 numbers and of 128 x 128 (Fp8Recipe::kBlock)
  // Predicted only: one of `parts` equal GEMMs of one operator, `streams` of which run concurrently.
  int streams = 1, parts = 1;
  // Of the optimizer (plan/muon.h) or of compressed gradients (plan/powersgd.h): neither forward nor
  // backward. Only these have other factors than 1.
  bool of_optimizer = false;
  float alpha = 1, beta = 1;
};

// The largest magnitude of x[rows,columns], by which it is scaled into fp8: one for the whole tensor, for
// each row or for each column. reads: x; writes: amax (fp32: one number, `rows` or `columns`).
struct Fp8Amax {
  int64_t rows = 0, columns = 0;
  enum class Of : uint8_t { kAll, kEachRow, kEachColumn } of = Of::kAll;
  DType dtype = DType::kFloat32;
  int64_t shared_by = 1;  // micro-batches that share one execution; each is charged its share of the cost
  int64_t groups = 1;     // groups of equally many rows (experts), each with its own largest magnitude
  bool together = false;  // predicted only: one kernel for all groups

  int64_t numbers() const { return of == Of::kAll ? groups : of == Of::kEachRow ? rows : groups * columns; }
};

// C[g] = op(A[g]) op(B[g]) (+ C[g] when accumulate) for each of `groups` contiguous groups g, each as a Gemm.
// reads: A, B; writes: C.
struct GroupedGemm {
  int64_t groups = 0, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  DType dtype = DType::kFloat32;
  bool is_forward = false, fast_accumulation = false, of_blocks = false;  // as a Gemm's
};

// Scales x[rows,columns] into fp8 (nvfp4: fp4) as a factor. Each scale follows from the largest magnitude of
// the whole tensor (tensorwise; delayed: in earlier steps), of each row or column (rowwise), of each 128
// elements of a row or 128 x 128 of a matrix (block), of each 32 elements (mxfp8), or of each 16 and of the
// whole tensor (nvfp4). The result is x as it lies, or transposed: fp8 tensor cores sum over the contiguous
// dimension. If x is in fp8 already, it is only transposed. `with_other` and nvfp4's second form really read
// x; as their operand the factor that was kept of x stands in for it (Fp8Factors). The magnitudes of rows and
// blocks are found in the same pass. reads: x or that factor, (amax, unless the scale is a known number or
// found in the same pass); writes: y.
struct Fp8Cast {
  int64_t rows = 0, columns = 0;
  Fp8Recipe recipe = Fp8Recipe::kTensorwise;
  bool transposed = false;
  DType dtype = DType::kFloat32;  // of x
  int64_t shared_by = 1;          // micro-batches, as Fp8Amax
  int64_t groups = 1;             // of rows, as Fp8Amax: each is a separate factor
  bool with_other = false;        // the kernel that makes the other form makes this one, too: no extra read
  bool together = false;          // as Fp8Amax
};

// The type of the factors that a recipe makes.
constexpr DType FactorType(Fp8Recipe recipe) {
  if (recipe == Fp8Recipe::kNvfp4) return DType::kFloat4x2;
  return recipe == Fp8Recipe::kMxfp8 ? DType::kMxFloat8 : DType::kFloat8;
}

// The size of a factor of `numbers` numbers: a byte each (nvfp4: half a byte), plus the scales of microscaled
// blocks: a byte per 32 numbers (mxfp8) or per 16 (nvfp4). (Other recipes have too few scales to count.)
constexpr int64_t FactorBytes(Fp8Recipe recipe, int64_t numbers) {
  if (recipe == Fp8Recipe::kMxfp8) return numbers + (numbers + 31) / 32;
  if (recipe == Fp8Recipe::kNvfp4) return (numbers + 1) / 2 + (numbers + 15) / 16;
  return numbers;
}
// The numbers in a factor of `bytes` bytes whose rows consist of whole blocks.
constexpr int64_t FactorNumbers(Fp8Recipe recipe, int64_t bytes) {
  if (recipe == Fp8Recipe::kMxfp8) return bytes * 32 / 33;
  if (recipe == Fp8Recipe::kNvfp4) return bytes * 16 / 9;
  return bytes;
}

// bias gradient: out[columns] (acc) = sum over rows of in[rows,columns]. reads: in; writes: out. For experts,
// `groups` of these: in[groups,rows,columns] and out[groups,columns].
struct ColumnSum {
  int64_t rows = 0, columns = 0;
  bool accumulate = false;
  DType dtype = DType::kFloat32;
  int64_t groups = 0;  // 0: not of experts
  bool apart = false;  // the bias was added separately (AddBias::apart)

  int64_t biases() const { return groups > 0 ? groups : 1; }
};

// out[elements] = sum over parts of in[parts,elements], in fp32, rounded once. reads: in; writes: out.
struct SumParts {
  int64_t parts = 0, elements = 0;
  DType dtype = DType::kFloat32;
};

// y[rows,columns] += bias[columns] in place: a row-parallel layer's bias, after the sum over ranks. reads: y,
// bias; writes: y. For experts, `groups` of these: y[groups,rows,columns] and bias[groups,columns].
struct AddBias {
  int64_t rows = 0, columns = 0;
  DType dtype = DType::kFloat32;
  int64_t groups = 0;  // 0: not of experts
  // Separate from the GEMM, expert by expert and in fp32, as Megatron adds biases times the router's weights.
  bool apart = false;

  int64_t biases() const { return groups > 0 ? groups : 1; }
};

// y = norm(x) * gamma (+ beta: layer norm with bias). With `residual`: sum = x + branch, y = norm(sum).
// reads: x, (branch), gamma, (beta); writes: (sum), y, statistics.
// Predicted only: an RMS norm may also write the normalised input in fp32, which its backward then reads.
// statistics: fp32 [rows,2] (mean, 1/deviation) for layer norm, [rows] (1/rms) for RMS norm. epsilon, here
// and below, is added to the variance; it does not affect the cost.
struct NormForward {
  NormKind kind = NormKind::kLayerNorm;
  int64_t rows = 0, columns = 0;
  bool bias = true;
  bool residual = false;
  DType dtype = DType::kFloat32;
  double epsilon = 1e-5;
};

// RMS norm has no beta.
constexpr bool HasBeta(NormKind kind, bool bias) { return kind == NormKind::kLayerNorm && bias; }
// Elements of a norm's statistics.
constexpr int64_t StatisticsElements(NormKind kind, int64_t rows) {
  return kind == NormKind::kLayerNorm ? 2 * rows : rows;
}

// Backward of NormForward. x is the normalised input (the sum, with residual). dx = d(norm) (+ dresidual).
// reads: dy, x, gamma, statistics, (dresidual: with residual); writes: dx, dgamma (acc), (dbeta (acc)).
// dx may be the same buffer as dresidual or dy. `frozen`: dgamma and dbeta are neither computed nor written.
struct NormBackward {
  NormKind kind = NormKind::kLayerNorm;
  int64_t rows = 0, columns = 0;
  bool bias = true;
  bool residual = false;
  bool accumulate = false;
  DType dtype = DType::kFloat32;
  bool frozen = false;
};

// to[r, to_first + c] = from[r, from_first + c] for `columns` columns c of rows that are to_stride and
// from_stride elements long. reads: from; writes: to.
struct CopyColumns {
  int64_t rows = 0, columns = 0;
  int64_t from_first = 0, from_stride = 0, to_first = 0, to_stride = 0;
  DType dtype = DType::kFloat32;
};

// x[rows, sum of columns] <-> y[ranks, rows, sum of columns / ranks]: divides each block of columns (queries,
// keys, values) evenly among ranks, for an all-to-all. `join` is the inverse. reads: x (y); writes: y (x).
struct SplitColumns {
  int ranks = 1;
  int64_t rows = 0;
  std::vector<int64_t> columns;
  bool join = false;
  DType dtype = DType::kFloat32;
};
// y[inner, outer, length] = x[outer, inner, length]. reads: x; writes: y.
// Of context ranks (outer) and sequences (inner) that are split in zigzag (TokenSplit), kFromZigzag also puts
// the chunks of each sequence in their order: the first half of rank r's `length` elements is chunk r of 2 x
// outer, the second half is chunk r from the end. kToZigzag (outer: sequences, inner: ranks) is the inverse.
struct SwapBlocks {
  int64_t outer = 0, inner = 0, length = 0;
  DType dtype = DType::kFloat32;
  enum class Chunks : uint8_t { kStay, kFromZigzag, kToZigzag } chunks = Chunks::kStay;
};

// y[rows,columns] = x with some elements set to zero and the rest scaled up (DropoutSite); the mask (uint8)
// says which are kept. backward: the same for the gradient. Rows are the tokens [batch, seq] of a
// context-parallel rank, or the tensor rank's equal part of them (splits_rows); or, for an MLP, samples (seq
// 1). With splits_columns the columns are the tensor rank's equal part of the whole layer's.
// forward: reads x; writes y (may be x), mask. backward: reads dy, mask; writes dx (may be dy).
struct Dropout {
  int64_t elements = 0;
  bool backward = false;
  DType dtype = DType::kFloat32;
  DropoutSite site = {};
  int64_t columns = 0, seq = 1;
  TokenSplit context = {};
  bool splits_rows = false, splits_columns = false;
};

// out[rows,columns] = f(in) (ActivationKind); in[rows,columns], or if gated [rows, 2*columns] (gate, value).
// forward: reads in; writes out. backward: reads dout, in; writes din (may be the buffer of dout unless
// gated).
// weighted (predicted only): each row of out is multiplied by a weight, fp32 [rows], which is read, too;
// backward also writes the weights' gradient.
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

// y[rows,columns] = x sigmoid(gate), with gate[rows,columns], or with `by_row` gate[rows]. reads: x, gate;
// writes: y.
struct GateForward {
  int64_t rows = 0, columns = 0;
  bool by_row = false;
  DType dtype = DType::kFloat32;
};
// reads: dy, x, gate; writes: dx, dgate. dx may be the buffer of dy.
struct GateBackward {
  int64_t rows = 0, columns = 0;
  bool by_row = false;
  DType dtype = DType::kFloat32;
};

// As a token id or target: none, because the position is beyond the end of the data.
inline constexpr int32_t kNoToken = -1;

// x[T,hidden] = table[ids] (+ positions[t mod seq]). reads: ids (int32 [T]), table[vocab,hidden],
// (positions[seq * context.ranks,hidden]); writes: x. With context parallelism `seq` counts the rank's tokens
// of a sequence, and positions are those of whole sequences.
// vocab_parallel, here and below: the table is the tensor rank's part of a larger one, beginning at row
// (position on the tensor axis) * vocab. Rows of x whose id belongs to another rank are zero, so that the sum
// of x over ranks is the whole embedding.
// ends, here and below: ids may be kNoToken, whose rows of x are zero and whose gradients are discarded.
struct EmbeddingForward {
  int64_t tokens = 0, seq = 0, vocab = 0, hidden = 0;
  bool learned_positions = false;
  DType dtype = DType::kFloat32;
  bool vocab_parallel = false;
  TokenSplit context = {};
  bool ends = false;
};
// reads: ids, dx; writes: dtable (acc), (dpositions (acc)). Without accumulate, rows that no id selects
// become zero. accumulate_table and accumulate_positions differ with tied embeddings (the head has already
// written dtable).
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

// Mean cross-entropy over rows; the gradient, times gradient_scale, overwrites the logits.
// reads: logits[rows,vocab], targets (int32 [rows]), (loss scale); writes: loss (fp32 scalar), logits (the
// gradient).
// Here and below: with `scaled` the loss scale's numbers are read last, and the gradient (not the loss) is
// multiplied by the scale. The sum of the rows' losses is divided by rows * counted; `counted` is the share
// over all ranks' rows. If `skips`, targets may be kNoToken: such rows have no loss and no gradient.
// `fused` (predicted only): computed by the kernels of CrossEntropyKind::kFused.
struct CrossEntropy {
  int64_t rows = 0, vocab = 0;
  double gradient_scale = 1.0;
  DType dtype = DType::kFloat32;
  bool scaled = false;
  double counted = 1.0;
  bool fused = false;
  bool skips = false;
};

// Cross-entropy over logits[rows,vocab] that are a tensor rank's columns of the whole logits, beginning at
// column (position on the tensor axis) * vocab, as in Megatron's vocab-parallel cross-entropy. Three passes,
// with all-reduces of `rows` fp32 after each of the first two, so that no rank ever has a whole row.
//   maximum  reads: logits; writes: maximum[rows] of the part, to be all-reduced (kMax)
//   sums     reads: logits, targets, maximum; writes: target[rows], the target's logit less the maximum (0 if
//            it belongs to another rank), and sum[rows] of the exponentials of the logits less the maximum,
//            both to be all-reduced (kSum)
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
  bool fused = false;
  bool skips = false;
};
struct VocabParallelLoss {
  int64_t rows = 0, vocab = 0;
  double gradient_scale = 1.0;
  DType dtype = DType::kFloat32;
  bool scaled = false;
  double counted = 1.0;
  bool fused = false;
};

// Mean squared error over all elements. reads: prediction, target [rows,columns], (loss scale); writes: loss,
// dprediction.
// The target is fp32 (as the loader makes it), and so is the loss.
struct MeanSquaredError {
  int64_t rows = 0, columns = 0;
  double gradient_scale = 1.0;
  DType dtype = DType::kFloat32;
  bool scaled = false;
};

// out = in * scale (+ out when accumulate), element by element, converting types. reads: in; writes: out.
// `crosses`: one side is in host memory and the other on the device (CPU offload).
struct Copy {
  int64_t elements = 0;
  DType from = DType::kFloat32, to = DType::kFloat32;
  double scale = 1.0;
  bool accumulate = false;
  enum class Crosses : uint8_t { kNothing, kToDevice, kToHost } crosses = Crosses::kNothing;

  // Whether it only moves elements, of whatever type, between the two memories.
  bool moves_only() const {
    return crosses != Crosses::kNothing && from == to && scale == 1.0 && !accumulate;
  }
};

// Packs `numbers` numbers into elements of type `to` (IsPacked). reads: x, fp32; writes: packed.
struct Quantize {
  int64_t numbers = 0;
  DType to = DType::kNf4;
};
// Unpacks `numbers` numbers, and converts them to `to`. They come in runs of `run` (the last may be shorter;
// 0: in one), each in elements of type `from` of its own: the shards of a weight. reads: packed; writes: y.
struct Dequantize {
  int64_t numbers = 0;
  int64_t run = 0;
  DType from = DType::kNf4, to = DType::kFloat32;

  int64_t numbers_of_run() const { return run > 0 ? run : numbers; }
  int64_t runs() const { return numbers == 0 ? 0 : CeilDivide(numbers, numbers_of_run()); }
};

// x *= scale in place. reads: x; writes: x.
struct Scale {
  int64_t elements = 0;
  double scale = 1.0;
  DType dtype = DType::kFloat32;
};

// Converts between whole tensors and the flat layout of an FSDP 2 unit in `ranks` shards. Tensor i is cut
// into `ranks` parts of shard_elements[i] elements; the last ones may be padded partly or wholly. The flat
// layout has rank after rank, and for each rank its part of every tensor: element r * sum(shard_elements) +
// sum(shard_elements[0..i)) + j is element r * shard_elements[i] + j of tensor i.
// pack ("chunk_cat"): flat = tensors * scale, converted; padding becomes zero. reads: every tensor; writes:
// flat.
struct PackShards {
  int ranks = 1;
  std::vector<int64_t> shard_elements;
  DType from = DType::kFloat32, to = DType::kFloat32;
  double scale = 1.0;
};
// unpack ("copy-out"). reads: flat; writes: every tensor. With dtype kUInt8, elements are bytes of tensors of
// any types, which have room for all ranks' parts.
struct UnpackShards {
  int ranks = 1;
  std::vector<int64_t> shard_elements;
  DType dtype = DType::kFloat32;
};

// writes[i] = reads[i] for every i, of one type (torch._foreach_copy_). `elements` is the total number of
// elements of whole tensors; where tensors are sharded a rank copies fewer.
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

// `count` runs of `length` elements, which begin `stride` apart in the whole tensor and are contiguous in the
// rank's part. The first run of the rank at `position` on the tensor axis is at first + position * length.
struct StridedRuns {
  int64_t first = 0, length = 0, count = 1, stride = 0;
};
// A rank's part of a tensor, in memory order; empty: the whole tensor. Each block of rows (queries, keys,
// values) is one run; a split by columns is one run per row.
using TensorPart = std::vector<StridedRuns>;
int64_t ElementsOf(const TensorPart& part);
// Calls f(element of the part, element of the whole tensor, elements) for each run, cut to elements [begin,
// end) of the part.
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

// A parameter's initial values: a pure function of (run.seed, stream, element index), so that any rank can
// make any part. With `part`, x is that part of the parameter. writes: x.
struct InitializeParameter {
  // kDecay and kStepSize: of a Mamba-2 layer (mamba_ssm/modules/mamba2.py). The logarithm of a uniform number
  // in [1, 16]; and what softplus makes a step of, whose logarithm is uniform in [log 0.001, log 0.1].
  enum class Distribution { kNormal, kUniform, kOnes, kZeros, kDecay, kStepSize };
  Distribution distribution = Distribution::kZeros;
  int64_t elements = 0;
  double scale = 0.0;   // standard deviation, or half width of the uniform
  uint64_t stream = 0;  // the parameter's position in registration order
  TensorPart part = {};
  int64_t expert_stride = 0;  // the part begins this much later for each further rank with other experts
};

// Loads the rank's next micro-batch into the step's input buffers.
// transformer: writes ids (int32 [T]), targets (int32 [T]), then `further` more targets, each one token
// further on than the one before, with kNoToken beyond the end of a sequence; with `source` > 0 also the ids
// of the source sequences (int32 [rows * source]), which the others continue. MLP: writes inputs (fp32
// [rows,in]), targets (fp32 [rows,out]).
struct LoadBatch {
  int64_t micro_batch = 0;
  int64_t rows = 0;         // sequences or samples
  int64_t columns = 0;      // tokens of a sequence, or input features
  int64_t targets = 0;      // MLP: output features
  TokenSplit context = {};  // how sequences are split; the rank has `columns` tokens of each
  int64_t further = 0;      // transformer: the number of further targets (multi-token prediction)
  int64_t source = 0;       // transformer with an encoder: tokens of a source sequence
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

// How an all-reduce, reduce or reduce-scatter combines the ranks' elements.
enum class Reduction : uint8_t { kSum, kMax };

// The shares of a rank's tokens that go to one rank of the group (the busiest, maybe itself) and to one node.
struct TokenReach {
  double rank = 0, node = 0;
  auto operator<=>(const TokenReach&) const = default;
};

// A collective of the group that its stream belongs to. `elements` counts the whole message: the tensor that
// is reduced or broadcast, or all that is gathered or scattered over all ranks.
// all-reduce: reads and writes x in place, writes scratch. broadcast: reads/writes x. barrier: nothing.
// reduce: reads x; writes the result on the root alone, where it may be x.
// gather: reads shard; writes whole on the root alone. scatter: reads whole on the root alone; writes shard.
// For both the root's shard may be its own part of the whole.
// all-gather: reads shard, writes whole; the shard may be this rank's part of the whole.
// all-to-all: reads in, writes out: part r of `in` becomes part (own rank) of rank r's `out`; both are
// `elements` long.
// token exchange (predicted only): reads tokens, writes those that arrived (or the reverse, summed on the
// way). A token is sent once to each node, and there once to each rank, that has experts of it; it enters
// another node through the rank at the sender's place there. `elements` counts a rank's own tokens.
// shift: reads x, writes y: x goes to the rank `distance` ahead around the ring of the group, y comes from
// the rank `distance` behind. `elements` counts one x.
// reduce-scatter: reads whole, writes shard, scratch; the shard may be this rank's part of the whole.
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kFloat32;
  int64_t elements = 0;
  int root = 0;  // HasRoot(kind): rank within the group
  Reduction reduction = Reduction::kSum;
  int distance = 1;             // of a shift; less than the group's size
  bool by_copy_engine = false;  // of a shift, predicted only: done by copy engines, so it occupies no SM
  TokenReach reach = {};        // of a token exchange
};

// Point to point within the group of the stream; `peer` is a rank within the group. send: reads x; recv:
// writes x.
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

// The host (the thread that issues operators) waits for the operators that this one depends on, which may be
// on any stream, including the compute stream. Takes no time of its own. If kernels run in the host's thread
// (a CPU), it waits for communication only. On a stream of kind kHost.
struct HostWait {};

}  // namespace windtunnel
