// The cases of OperatorCases, by family.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "scenarios/words.h"
#include "tests/runtime/cuda/case_list.h"

namespace windtunnel::test {

Outcome OnCpu(const OperatorCase& operator_case) {
  static HostBench cpu(MakeCpuDevice());
  return RunOn(cpu, operator_case);
}

namespace {

struct Matrix {
  int64_t rows, columns;
};
// Rows of whole 16-byte pieces in every type; of an odd number of elements; of less than a piece; more rows
// than blocks.
std::vector<Matrix> Matrices(bool large) {
  std::vector<Matrix> all = {{3, 64}, {5, 1032}, {37, 33}, {2, 3}, {70, 8}};
  if (large) all.insert(all.end(), {{1024, 1600}, {512, 5120}, {1000, 1031}});
  return all;
}

// What is packed on one device is packed so on another, bit for bit.
void AddPacked(Cases& c, int64_t n) {
  for (const DType dtype : {DType::kNf4, DType::kNf4Double}) {
    const int64_t run = n / 3 + 1, elements = ElementsFor(run, dtype), bytes = SizeOf(dtype).count();
    OperatorCase& quantize = c.Add("quantize", Quantize{run, dtype});
    quantize.Read(kFloat, run).Write(DType::kUInt8, elements * bytes);
    const Buffer packed = OnCpu(quantize).writes.front();
    c.Add("dequantize", Dequantize{run, 0, dtype, c.dtype}).ReadValues(packed).Write(c.dtype, run);
    Buffer runs = packed;
    for (int64_t i = 1; run * i < n; ++i)
      runs.bytes.insert(runs.bytes.end(), packed.bytes.begin(), packed.bytes.end());
    c.Add("dequantize runs", Dequantize{n, run, dtype, c.dtype}).ReadValues(runs).Write(c.dtype, n);
    c.Add("copy packed", Copy{elements, dtype, dtype})
        .ReadValues(packed)
        .Write(DType::kUInt8, elements * bytes);
  }
}

void AddElementwise(Cases& c) {
  for (int64_t n : {int64_t{1}, int64_t{1000}, int64_t{9001}, int64_t{c.large ? 1'000'001 : 17}}) {
    for (DType to : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      c.Add("copy", Copy{n, c.dtype, to}).Read(c.dtype, n).Write(to, n);
      c.Add("copy scaled", Copy{n, c.dtype, to, 0.3}).Read(c.dtype, n).Write(to, n);
      c.Add("copy accumulating", Copy{n, c.dtype, to, 0.3, true}).Read(c.dtype, n).Update(to, n);
      c.Add("copy off 16 bytes", Copy{n, c.dtype, to, 0.3}).Read(c.dtype, n).Write(to, n).offset = 1;
    }
    const auto to_host = [n](DType moved) {
      Copy copy{n, moved, moved};
      copy.crosses = Copy::Crosses::kToHost;
      return copy;
    };
    c.Add("copy to the host", to_host(c.dtype)).Read(c.dtype, n).Write(c.dtype, n);
    c.Add("copy integers", to_host(DType::kInt32)).ReadIndices(n, n).Write(DType::kInt32, n);
    c.Add("copy a mask", to_host(DType::kUInt8))
        .ReadValues({DType::kUInt8, std::vector<uint8_t>(static_cast<size_t>(n), 1), true})
        .Write(DType::kUInt8, n);
    for (const int64_t parts : {int64_t{1}, int64_t{3}, int64_t{8}})
      c.Add("sum of parts", SumParts{parts, n, c.dtype}).Read(c.dtype, parts * n).Write(c.dtype, n);
    AddPacked(c, n);
    c.Add("scale", Scale{n, 0.7, c.dtype}).Read(c.dtype, n).WriteToRead(0);
    c.Add("fill", Fill{n, 1.5, c.dtype}).Write(c.dtype, n);
    c.Add("fill with zero", Fill{n, 0.0, c.dtype}).Write(c.dtype, n);
    c.Add("fill integers", Fill{n, 7.0, DType::kInt32}).Write(DType::kInt32, n);
    c.Add("fill off 16 bytes", Fill{n, 1.5, c.dtype}).Write(c.dtype, n).offset = 1;
  }
  for (const auto& [rows, columns] : Matrices(c.large)) {
    const int64_t n = rows * columns;
    c.Add("add bias", AddBias{rows, columns, c.dtype}).Read(c.dtype, n).Read(c.dtype, columns).WriteToRead(0);
    c.Add("add experts' biases", AddBias{rows, columns, c.dtype, 3})
        .Read(c.dtype, 3 * n)
        .Read(c.dtype, 3 * columns)
        .WriteToRead(0);
    c.Add("column sums of experts", ColumnSum{rows, columns, true, c.dtype, 3})
        .Read(c.dtype, 3 * n)
        .Update(c.dtype, 3 * columns);
    for (bool accumulate : {false, true}) {
      c.Add("column sum", ColumnSum{rows, columns, accumulate, c.dtype})
          .Read(c.dtype, n)
          .Update(c.dtype, columns);
    }
    c.Add("column sum off 16 bytes", ColumnSum{rows, columns, false, c.dtype})
        .Read(c.dtype, n)
        .Write(c.dtype, columns)
        .offset = 1;
  }
}

void AddActivations(Cases& c) {
  for (const auto& [rows, columns] : Matrices(c.large)) {
    for (const auto& [word, kind] : Words<ActivationKind>::table) {
      const int64_t n = rows * columns, in = IsGated(kind) ? 2 * n : n;
      c.Add("activation", ActivationForward{kind, rows, columns, c.dtype})
          .Read(c.dtype, in, 2.0)
          .Write(c.dtype, n);
      c.Add("activation backward", ActivationBackward{kind, rows, columns, c.dtype})
          .Read(c.dtype, n)
          .Read(c.dtype, in, 2.0)
          .Write(c.dtype, in);
      if (IsGated(kind)) continue;
      c.Add("activation backward in place", ActivationBackward{kind, rows, columns, c.dtype})
          .Read(c.dtype, n)
          .Read(c.dtype, in, 2.0)
          .WriteToRead(0);
    }
  }
}

// In addition to the other matrices: rows for every number of threads that share one, and one row that is too
// long for their registers.
std::vector<Matrix> RowsOfNorms(bool large) {
  std::vector<Matrix> all = Matrices(large);
  all.insert(all.end(), {{19, 768}, {9, 1000}, {5, 1600}, {3, 4096}, {3, 8192}, {1, 16392}});
  return all;
}

void AddNorms(Cases& c) {
  for (const auto& [rows, columns] : RowsOfNorms(c.large)) {
    for (NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
      const int64_t n = rows * columns, statistics = kind == NormKind::kLayerNorm ? 2 * rows : rows;
      for (bool bias : {false, true}) {
        const bool beta = bias && kind == NormKind::kLayerNorm;
        for (bool residual : {false, true}) {
          auto& forward =
              c.Add("norm", NormForward{kind, rows, columns, bias, residual, c.dtype}).Read(c.dtype, n, 3.0);
          if (residual) forward.Read(c.dtype, n);
          forward.Read(c.dtype, columns);
          if (beta) forward.Read(c.dtype, columns);
          if (residual) forward.Write(c.dtype, n);
          forward.Write(c.dtype, n).Write(kFloat, statistics);
          // These are about the statistics that the forward pass computes of unit normal rows; any numbers
          // will do.
          const bool accumulate = residual;
          for (const bool frozen : {false, true}) {
            auto& backward = c.Add("norm backward", NormBackward{kind, rows, columns, bias, residual,
                                                                 accumulate && !frozen, c.dtype, frozen})
                                 .Read(c.dtype, n)
                                 .Read(c.dtype, n)
                                 .Read(c.dtype, columns)
                                 .Read(kFloat, statistics, 0.5);
            if (residual) backward.Read(c.dtype, n).WriteToRead(4);
            else backward.WriteToRead(0);
            if (frozen) continue;
            backward.Update(c.dtype, columns);
            if (beta) backward.Update(c.dtype, columns);
          }
        }
      }
    }
  }
}

// Makes the last id but one kNoToken.
void EndBeforeLast(Buffer& ids) {
  reinterpret_cast<int32_t*>(ids.bytes.data())[std::max<int64_t>(ids.elements() - 2, 0)] = kNoToken;
}

void AddEmbeddings(Cases& c) {
  struct Shape {
    int64_t sequences, seq, vocab, hidden;
  };
  std::vector<Shape> shapes = {{3, 50, 40, 40}, {2, 200, 1000, 1040}, {1, 7, 5, 33}};
  if (c.large) shapes.push_back({4, 1024, 5000, 1600});
  for (const Shape& s : shapes) {
    const int64_t tokens = s.sequences * s.seq;
    for (int kind = 0; kind < 5; ++kind) {
      const bool positions = kind >= 1 && kind < 4, parallel = kind == 2, split = kind == 3, ends = kind == 4;
      const TokenSplit context = {split ? 2 : 1, split};
      const KernelContext where = {.tensor = {1, parallel ? 3 : 1}, .context = {split ? 1 : 0}};
      KernelContext place = where;
      if (!parallel) place.tensor = {};
      const int64_t vocab = parallel ? 3 * s.vocab : s.vocab;
      auto& forward = c.Add("embedding",
                            EmbeddingForward{tokens, s.seq, s.vocab, s.hidden, positions, c.dtype, parallel,
                                             context, ends},
                            place)
                          .ReadIndices(tokens, vocab)
                          .Read(c.dtype, s.vocab * s.hidden);
      if (ends) EndBeforeLast(forward.buffers.front());
      if (positions) forward.Read(c.dtype, s.seq * context.ranks * s.hidden);
      forward.Write(c.dtype, tokens * s.hidden);
      for (bool accumulate : {false, true}) {
        auto& backward = c.Add("embedding backward",
                               EmbeddingBackward{tokens, s.seq, s.vocab, s.hidden, positions, accumulate,
                                                 accumulate, c.dtype, parallel, context, ends},
                               place)
                             .ReadIndices(tokens, vocab)
                             .Read(c.dtype, tokens * s.hidden)
                             .Update(c.dtype, s.vocab * s.hidden);
        if (ends) EndBeforeLast(backward.buffers.front());
        if (positions) backward.Update(c.dtype, s.seq * context.ranks * s.hidden);
      }
    }
  }
}

void AddLosses(Cases& c) {
  struct Shape {
    int64_t rows, vocab;
  };
  // The last shape's rows are so long that two of them do not fit into a multiprocessor's shared memory.
  std::vector<Shape> shapes = {{5, 4096}, {9, 5003}, {3, 10}, {12, 1}, {2, 60001}};
  if (c.large) shapes.push_back({256, 50257});
  for (const Shape& s : shapes) {
    const int64_t n = s.rows * s.vocab;
    for (int64_t offset : {0, 1}) {
      auto& loss = c.Add("cross entropy", CrossEntropy{s.rows, s.vocab, 0.5, c.dtype})
                       .Read(c.dtype, n, 3.0)
                       .ReadIndices(s.rows, s.vocab)
                       .Write(kFloat, 1)
                       .WriteToRead(0);
      loss.offset = offset;
    }
    c.Add("scaled cross entropy", CrossEntropy{s.rows, s.vocab, 0.5, c.dtype, /*scaled=*/true})
        .Read(c.dtype, n, 3.0)
        .ReadIndices(s.rows, s.vocab)
        .Read(kFloat, kLossScaleNumbers)
        .Write(kFloat, 1)
        .WriteToRead(0);
    CrossEntropy some{s.rows, s.vocab, 0.5, c.dtype};
    some.counted = 0.75;
    some.skips = true;
    auto& ends = c.Add("cross entropy of some", some)
                     .Read(c.dtype, n, 3.0)
                     .ReadIndices(s.rows, s.vocab)
                     .Write(kFloat, 1)
                     .WriteToRead(0);
    EndBeforeLast(ends.buffers[1]);
    const KernelContext place = {.tensor = {1, 2}};
    c.Add("vocab parallel maximum", VocabParallelMaximum{s.rows, s.vocab, c.dtype}, place)
        .Read(c.dtype, n, 3.0)
        .Write(kFloat, s.rows);
    for (const double counted : {1.0, 0.75}) {
      const bool skips = counted < 1;
      auto& part_sums =
          c.Add("vocab parallel sums", VocabParallelSums{s.rows, s.vocab, c.dtype, false, skips}, place)
              .Read(c.dtype, n)
              .ReadIndices(s.rows, 2 * s.vocab)
              .Read(kFloat, s.rows)
              .Write(kFloat, s.rows)
              .Write(kFloat, s.rows);
      if (skips) EndBeforeLast(part_sums.buffers[1]);
      VocabParallelLoss op{s.rows, s.vocab, 0.5, c.dtype};
      op.counted = counted;
      auto& loss = c.Add("vocab parallel loss", op, place)
                       .Read(c.dtype, n)
                       .ReadIndices(s.rows, 2 * s.vocab)
                       .Read(kFloat, s.rows)
                       .Read(kFloat, s.rows)
                       .Read(kFloat, s.rows);
      // The sums are of exponentials: positive.
      auto* sums = reinterpret_cast<float*>(loss.buffers.back().bytes.data());
      for (int64_t i = 0; i < s.rows; ++i) sums[i] = 3.0f + sums[i] * sums[i];
      if (counted < 1) EndBeforeLast(loss.buffers[1]);
      loss.Write(kFloat, 1).WriteToRead(0);
    }
    c.Add("mean squared error", MeanSquaredError{s.rows, s.vocab, 0.5, c.dtype})
        .Read(c.dtype, n)
        .Read(kFloat, n)
        .Write(kFloat, 1)
        .Write(c.dtype, n);
  }
}

// Rows that begin within pairs of random numbers; rows and columns divided among tensor ranks, tokens among
// context ranks; samples of an MLP.
void AddDropout(Cases& c) {
  struct Sizes {
    int64_t batch, seq, columns;
    TokenSplit context = {};
    bool splits_rows = false, splits_columns = false;
  };
  std::vector<Sizes> all = {{2, 6, 64, {3, true}},
                            {3, 4, 33, {3, false}, true},
                            {2, 5, 40, {}, false, true},
                            {37, 1, 7, {}, false, true},
                            {2, 2, 1032, {}, true}};
  if (c.large) all.push_back({16, 1024, 1600});
  for (const Sizes& s : all) {
    for (const bool in_parts : {false, true}) {
      const KernelContext place = {.seed = 7,
                                   .tensor = {1, 2},
                                   .context = {1, s.context.ranks},
                                   .replica = {.rank = 1, .ranks = 3, .in_parts = in_parts},
                                   .batch_step = 5};
      const int64_t elements = s.batch * s.seq / (s.splits_rows ? 2 : 1) * s.columns;
      Dropout op{elements,  false,         c.dtype,         DropoutSiteOf(0.3, "mlp", 1), s.columns, s.seq,
                 s.context, s.splits_rows, s.splits_columns};
      OperatorCase forward{.name = "dropout", .kind = op, .context = place};
      forward.Read(c.dtype, elements).Write(c.dtype, elements).Write(DType::kUInt8, elements);
      const Outcome outcome = OnCpu(forward);
      c.cases.push_back(forward);
      op.backward = true;
      c.Add("dropout backward", op, place)
          .Read(c.dtype, elements)
          .ReadValues(outcome.writes[1])
          .WriteToRead(0);
      forward.offset = 1;  // off 16 bytes
      c.cases.push_back(std::move(forward));
    }
  }
}

void AddRope(Cases& c) {
  struct Shape {
    int64_t batch, seq, heads, kv_heads, head_dim, rotated = 0;
  };
  std::vector<Shape> shapes = {{2, 70, 3, 1, 64},    {1, 9, 2, 2, 10},    {1, 5, 4, 2, 128},
                               {2, 6, 3, 1, 64, 32}, {1, 9, 2, 2, 10, 6}, {1, 4, 2, 1, 12, 8}};
  if (c.large) shapes.push_back({1, 2048, 32, 8, 128});
  for (const Shape& s : shapes) {
    for (int kind = 0; kind < 3; ++kind) {
      const bool split = kind == 2 && s.seq % 2 == 0;
      const int64_t n = s.batch * s.seq * (s.heads + 2 * s.kv_heads) * s.head_dim;
      c.Add("rope",
            Rope{.batch = s.batch,
                 .seq = s.seq,
                 .heads = s.heads,
                 .kv_heads = s.kv_heads,
                 .head_dim = s.head_dim,
                 .backward = kind == 1,
                 .dtype = c.dtype,
                 .context = {split ? 4 : 1, split},
                 .rotated = s.rotated},
            {.context = {split ? 3 : 0}})
          .Read(c.dtype, n)
          .WriteToRead(0);
    }
  }
}

void AddHeadNorms(Cases& c) {
  struct Shape {
    int64_t tokens, heads, kv_heads, head_dim;
    bool whole = false;
  };
  std::vector<Shape> shapes = {
      {70, 3, 1, 64}, {9, 2, 2, 10}, {5, 4, 2, 256}, {70, 3, 1, 64, true}, {9, 2, 2, 7, true}};
  if (c.large) {
    shapes.push_back({4096, 32, 8, 128});
    shapes.push_back({4096, 32, 32, 128, true});
  }
  for (const Shape& s : shapes) {
    const int64_t n = s.tokens * (s.heads + 2 * s.kv_heads) * s.head_dim;
    HeadNormForward forward{s.tokens, s.heads, s.kv_heads, s.head_dim, c.dtype};
    forward.whole = s.whole;
    const NormedHeads heads = HeadsOf(forward);
    const int64_t statistics = s.tokens * heads.rows();
    c.Add("head norm", forward)
        .Read(c.dtype, n, 3.0)
        .Read(c.dtype, heads.query_width)
        .Read(c.dtype, heads.key_width)
        .Write(c.dtype, n)
        .Write(kFloat, statistics);
    for (const auto& [accumulate, frozen] : {std::pair(false, false), {true, false}, {false, true}}) {
      auto& backward = c.Add("head norm backward", HeadNormBackward{s.tokens, s.heads, s.kv_heads, s.head_dim,
                                                                    accumulate, c.dtype, frozen, s.whole})
                           .Read(c.dtype, n)
                           .Read(c.dtype, n)
                           .Read(c.dtype, heads.query_width)
                           .Read(c.dtype, heads.key_width)
                           .Read(kFloat, statistics, 0.5);
      if (accumulate) backward.WriteToRead(0);
      else backward.Write(c.dtype, n);
      if (!frozen) backward.Update(c.dtype, heads.query_width).Update(c.dtype, heads.key_width);
    }
  }
}

void AddRearrangements(Cases& c) {
  for (int64_t columns : {24, 40, 35}) {
    const int64_t rows = c.large ? 3000 : 13;
    c.Add("copy columns", CopyColumns{rows, columns, 3, columns + 5, 8, columns + 9, c.dtype})
        .Read(c.dtype, rows * (columns + 5))
        .Update(c.dtype, rows * (columns + 9));
    c.Add("copy whole columns", CopyColumns{rows, 16, 16, 64, 8, 24, c.dtype})
        .Read(c.dtype, rows * 64)
        .Update(c.dtype, rows * 24);
    c.Add("swap blocks", SwapBlocks{5, rows, columns, c.dtype})
        .Read(c.dtype, 5 * rows * columns)
        .Write(c.dtype, 5 * rows * columns);
    for (const auto chunks : {SwapBlocks::Chunks::kFromZigzag, SwapBlocks::Chunks::kToZigzag})
      c.Add("chunks in zigzag", SwapBlocks{4, rows, 2 * columns, c.dtype, chunks})
          .Read(c.dtype, 4 * rows * 2 * columns)
          .Write(c.dtype, 4 * rows * 2 * columns);
    for (bool join : {false, true}) {
      const std::vector<int64_t> blocks = {2 * columns, 16, 48};
      const int64_t n = rows * (2 * columns + 64);
      c.Add("split columns", SplitColumns{2, rows, blocks, join, c.dtype}).Read(c.dtype, n).Write(c.dtype, n);
    }
  }
  // More tensors than one launch takes, of lengths that do not divide evenly; the last shards are short or
  // empty.
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 130; ++i) lengths.push_back(1 + (i * 37) % 91 + (i == 7 ? 20'000 : 0));
  auto& copies = c.Add("copy tensors", CopyTensors{0, static_cast<int64_t>(lengths.size()), c.dtype});
  for (int64_t length : lengths) copies.Read(c.dtype, length);
  for (int64_t length : lengths) copies.Write(c.dtype, length);
  const int ranks = 4;
  std::vector<int64_t> shards;
  int64_t flat = 0;
  for (int64_t length : lengths) {
    shards.push_back((length + ranks - 1) / ranks);
    flat += ranks * shards.back();
  }
  for (DType to : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    auto& pack = c.Add("pack shards", PackShards{ranks, shards, c.dtype, to, 0.25});
    for (int64_t length : lengths) pack.Read(c.dtype, length);
    pack.Write(to, flat);
  }
  auto& unpack = c.Add("unpack shards", UnpackShards{ranks, shards, c.dtype}).Read(c.dtype, flat);
  for (int64_t length : lengths) unpack.Write(c.dtype, length);
  // Bytes of tensors of any types, among them some that begin at no multiple of 4.
  const std::vector<int64_t> bytes = {64, 36, 6, 3600};
  auto& unpack_bytes = c.Add("unpack bytes", UnpackShards{ranks, bytes, DType::kUInt8});
  unpack_bytes.ReadIndices(ranks * (64 + 36 + 6 + 3600) / 4, 1 << 30);
  unpack_bytes.buffers.back().dtype = DType::kUInt8;
  for (int64_t of_rank : bytes) unpack_bytes.Write(DType::kUInt8, ranks * of_rank);
}

void AddExperts(Cases& c) {
  struct Shape {
    int64_t tokens, experts, top_k, capacity, hidden;
  };
  std::vector<Shape> shapes = {{300, 8, 2, 60, 40}, {70, 4, 1, 30, 33}, {33, 16, 4, 100, 64}};
  if (c.large) shapes.push_back({2048, 16, 4, 600, 1024});
  for (const Shape& s : shapes) {
    const int64_t choices = s.tokens * s.top_k, rows = s.experts * s.capacity;
    c.Add("route tokens", RouteTokens{s.tokens, s.experts, s.top_k, s.capacity, c.dtype})
        .Read(c.dtype, s.tokens * s.experts)
        .Write(kFloat, s.tokens * s.experts)
        .Write(kFloat, choices)
        .Write(DType::kInt32, choices);
    c.Add("route tokens among groups", RouteTokens{s.tokens, s.experts, s.top_k, s.capacity, c.dtype,
                                                   s.experts / 2, std::max<int64_t>(s.top_k / 2, 1)})
        .Read(c.dtype, s.tokens * s.experts)
        .Write(kFloat, s.tokens * s.experts)
        .Write(kFloat, choices)
        .Write(DType::kInt32, choices);
    // Slots: each choice of a token is another expert, and the next token begins three experts further on. A
    // choice without room has the slot -1 - expert.
    std::vector<int32_t> slots;
    std::vector<int64_t> taken(static_cast<size_t>(s.experts));
    for (int64_t i = 0; i < choices; ++i) {
      const int64_t expert = (i / s.top_k * 3 + i % s.top_k) % s.experts;
      int64_t& place = taken[static_cast<size_t>(expert)];
      slots.push_back(static_cast<int32_t>(place < s.capacity ? expert * s.capacity + place++ : -1 - expert));
    }
    c.Add("route tokens backward", RouteTokensBackward{s.tokens, s.experts, s.top_k, s.capacity, c.dtype})
        .Read(kFloat, choices)
        .Read(kFloat, s.tokens * s.experts)
        .ReadIntegers(slots)
        .Write(c.dtype, s.tokens * s.experts);
    const TokenRows shape = {s.tokens, s.hidden, s.top_k, rows, c.dtype};
    c.Add("dispatch tokens", DispatchTokens{shape})
        .Read(c.dtype, s.tokens * s.hidden)
        .ReadIntegers(slots)
        .Write(c.dtype, rows * s.hidden);
    for (bool weighted : {false, true}) {
      auto& combine = c.Add("combine tokens", CombineTokens{shape, weighted})
                          .Read(c.dtype, rows * s.hidden)
                          .ReadIntegers(slots);
      if (weighted) combine.Read(kFloat, choices);
      combine.Write(c.dtype, s.tokens * s.hidden);
    }
    c.Add("combine backward", CombineBackward{shape})
        .Read(c.dtype, s.tokens * s.hidden)
        .Read(c.dtype, rows * s.hidden)
        .ReadIntegers(slots)
        .Read(kFloat, choices)
        .Write(c.dtype, rows * s.hidden)
        .Write(kFloat, choices);
  }
}

void AddInitialization(Cases& c) {
  using Distribution = InitializeParameter::Distribution;
  for (Distribution distribution :
       {Distribution::kNormal, Distribution::kUniform, Distribution::kOnes, Distribution::kZeros}) {
    const int64_t n = c.large ? 3'000'000 : 5000;
    c.Add("initialize", InitializeParameter{distribution, n, 0.02, 7}, {.seed = 11}).Write(kFloat, n);
    const TensorPart part = {{100, 30, 4, 200}, {5000, 64, 1, 0}};
    c.Add("initialize a part", InitializeParameter{distribution, ElementsOf(part), 0.02, 7, part, 9000},
          {.seed = 11, .tensor = {1, 2}, .expert = {2}})
        .Write(kFloat, ElementsOf(part));
  }
}

// The cuda device's products are computed by cuBLASLt, so these cases are for real devices only.
void AddGemms(Cases& c) {
  struct Shape {
    int64_t m, n, k;
  };
  std::vector<Shape> shapes = {{64, 48, 32}, {8, 1, 16}, {120, 200, 72}};
  if (c.large) shapes.insert(shapes.end(), {{2048, 4800, 1600}, {1031, 517, 333}});
  for (const Shape& s : shapes) {
    for (int layout = 0; layout < 4; ++layout) {
      const bool transpose_a = layout >= 2, transpose_b = layout % 2 == 1, bias = layout == 1;
      for (bool accumulate : {false, true}) {
        auto& gemm = c.Add("gemm", Gemm{s.m, s.n, s.k, transpose_a, transpose_b, bias, accumulate, c.dtype})
                         .Read(c.dtype, s.m * s.k)
                         .Read(c.dtype, s.k * s.n);
        if (bias) gemm.Read(c.dtype, s.n);
        gemm.Update(c.dtype, s.m * s.n);
        if (accumulate && !bias) {  // the optimizer's
          Gemm scaled{s.m, s.n, s.k, transpose_a, transpose_b, bias, accumulate, c.dtype};
          scaled.alpha = 2.0315f;
          scaled.beta = -4.7750f;
          c.Add("gemm", scaled).Read(c.dtype, s.m * s.k).Read(c.dtype, s.k * s.n).Update(c.dtype, s.m * s.n);
        }
        c.Add("grouped gemm",
              GroupedGemm{3, s.m / 4 + 1, s.n, s.k, transpose_a, transpose_b, accumulate, c.dtype})
            .Read(c.dtype, 3 * (s.m / 4 + 1) * s.k)
            .Read(c.dtype, 3 * s.k * s.n)
            .Update(c.dtype, 3 * (s.m / 4 + 1) * s.n);
      }
    }
  }
}

}  // namespace

std::vector<OperatorCase> OperatorCases(DType dtype, bool large) {
  Cases c(dtype, large);
  AddElementwise(c);
  AddActivations(c);
  AddNorms(c);
  AddEmbeddings(c);
  AddLosses(c);
  AddRope(c);
  AddDropout(c);
  AddHeadNorms(c);
  AddRearrangements(c);
  AddExperts(c);
  AddAttention(c);
  AddContextAttention(c);
  AddCrossAttention(c);
  AddRelativePositions(c);
  AddStateSpace(c);
  AddDeltaNets(c);
  if (dtype == DType::kFloat32) {
    AddOptimizers(c);
    AddInitialization(c);
  }
  return std::move(c.cases);
}

std::vector<OperatorCase> GemmCases(DType dtype, bool large) {
  Cases c(dtype, large);
  AddGemms(c);
  return std::move(c.cases);
}

}  // namespace windtunnel::test
