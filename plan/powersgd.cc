#include "plan/powersgd.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scenarios/derived.h"

namespace windtunnel {
namespace {

// The first Q's random numbers: streams that no parameter's initial values have.
constexpr uint64_t kFirstStream = uint64_t{1} << 32;

// `elements` elements of a slice, from `*offset` on, which moves behind them.
Slice Next(const Slice& whole, int64_t elements, int64_t* offset) {
  const Slice part{whole.buffer, whole.offset + *offset, elements};
  *offset += elements;
  return part;
}

}  // namespace

bool CompressesAsPytorch(const Scenario& scenario) {
  return scenario.parallel.data.powersgd && IsPytorch(scenario.framework);
}

int64_t CompressedRank(const PowerSgdSpec& spec, const Parameter& parameter) {
  const int64_t rows = parameter.shape.front(), columns = parameter.elements / rows;
  const int64_t rank = std::min({rows, columns, spec.rank});
  const auto compressed = static_cast<double>((rows + columns) * rank);
  return compressed * spec.min_compression_rate < static_cast<double>(parameter.elements) ? rank : 0;
}

CompressedBucket::CompressedBucket(Role& role, const PowerSgdSpec& spec, CollectiveStream& collectives,
                                   std::string name, Slice whole, const std::vector<int>& parameters,
                                   const std::vector<Slice>& slots, bool as_pytorch)
    : role_(role),
      collectives_(collectives),
      name_(std::move(name)),
      dtype_(role.buffers[whole.buffer].dtype),
      as_pytorch_(as_pytorch) {
  int64_t compressed = 0, left = 0, right = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = role.parameters[parameters[i]];
    const int64_t rank = CompressedRank(spec, parameter);
    if (rank == 0) {
      rest_parameters_.push_back(parameters[i]);
      rest_slots_.push_back(slots[i]);
      continue;
    }
    WT_CHECK(rest_parameters_.empty());
    const int64_t rows = parameter.shape.front();
    Matrix matrix{.parameter = parameters[i],
                  .name = parameter.name,
                  .rows = rows,
                  .columns = parameter.elements / rows,
                  .rank = rank,
                  .gradient = slots[i]};
    compressed += parameter.elements;
    left += matrix.rows * rank;
    right += matrix.columns * rank;
    matrices_.push_back(std::move(matrix));
  }
  gradients_ = Slice{whole.buffer, whole.offset, compressed};
  rest_ = Slice{whole.buffer, whole.offset + compressed, whole.elements - compressed};
  if (matrices_.empty()) return;
  left_ = NewBuffer(role, name_ + " P", left, Category::kCommunication, dtype_);
  right_ = NewBuffer(role, name_ + " Q", right, Category::kCommunication, dtype_);
  if (spec.error_feedback)
    error_ = NewBuffer(role, name_ + " error", compressed, Category::kCommunication, dtype_);
  int64_t in_left = 0, in_right = 0;
  for (Matrix& matrix : matrices_) {
    matrix.left = Next(left_, matrix.rows * matrix.rank, &in_left);
    matrix.right = Next(right_, matrix.columns * matrix.rank, &in_right);
  }
}

void CompressedBucket::Allocate(ProgramBuilder& b) {
  if (matrices_.empty()) return;
  b.Alloc(left_.buffer);
  b.Alloc(right_.buffer);
  for (const Matrix& matrix : matrices_) {
    InitializeParameter values{.distribution = InitializeParameter::Distribution::kNormal,
                               .elements = matrix.right.elements,
                               .scale = 1,
                               .stream = kFirstStream + role_.parameters[matrix.parameter].random_stream};
    // In fp32, as all initial values are made.
    if (dtype_ == DType::kFloat32) {
      b.Add(values, matrix.name + ".Q", {}, {matrix.right});
      continue;
    }
    const Slice made = b.Temporary(matrix.name + ".Q", values.elements, Category::kWorkspace);
    b.Add(values, matrix.name + ".Q", {}, {made});
    b.Add(Copy{.elements = values.elements, .to = dtype_}, matrix.name + ".Q", {made}, {matrix.right});
  }
  if (error_.buffer < 0) return;
  b.Alloc(error_.buffer);
  b.Add(Fill{error_.elements, 0.0, dtype_}, name_ + " error", {}, {error_});
}

// Neither a forward's product nor a backward's.
Gemm CompressedBucket::Product(int64_t m, int64_t n, int64_t k) const {
  Gemm product{m, n, k};
  product.dtype = dtype_;
  product.of_optimizer = true;
  return product;
}

std::vector<int> CompressedBucket::Compressed() const {
  std::vector<int> parameters;
  for (const Matrix& matrix : matrices_) parameters.push_back(matrix.parameter);
  return parameters;
}

void CompressedBucket::ReduceRest(ProgramBuilder& b) {
  if (rest_.elements == 0) return;
  const auto copy = [&](const Slice& from, const Slice& to, std::vector<OpIndex> after) {
    b.Add(Copy{.elements = to.elements, .from = dtype_, .to = dtype_}, name_, {from}, {to}, std::move(after));
  };
  Slice sent = rest_;
  if (as_pytorch_) {
    sent = b.Temporary(name_ + " uncompressed", rest_.elements, Category::kCommunication, dtype_);
    copy(rest_, sent, {});
  }
  reduced_ = collectives_.AllReduce(b, sent, name_, {b.LastCompute()});
  b.Carries(reduced_, rest_parameters_);
  if (!as_pytorch_) return;
  int64_t offset = 0;
  for (const Slice& slot : rest_slots_) copy(Next(sent, slot.elements, &offset), slot, {reduced_});
  reduced_ = -1;
}

void CompressedBucket::ReduceLeft(ProgramBuilder& b) {
  if (error_.buffer >= 0) {
    const int64_t n = error_.elements;
    b.Add(Copy{.elements = n, .from = dtype_, .to = dtype_, .accumulate = true}, name_ + " error", {error_},
          {gradients_});
    b.Add(Copy{.elements = n, .from = dtype_, .to = dtype_}, name_ + " error", {gradients_}, {error_});
  }
  for (const Matrix& m : matrices_) {
    b.Add(Orthonormalize{m.columns, m.rank, dtype_}, m.name + ".Q", {m.right}, {m.right});
    b.Add(Product(m.rows, m.rank, m.columns), m.name + ".P", {m.gradient, m.right}, {m.left});
  }
  ReduceRest(b);
  if (matrices_.empty()) return;
  reduced_ = collectives_.AllReduce(b, left_, name_ + " P", {b.LastCompute()});
  b.Carries(reduced_, Compressed());
}

void CompressedBucket::ReduceRight(ProgramBuilder& b) {
  if (matrices_.empty()) return;
  b.WaitBeforeNextCompute(reduced_);
  for (const Matrix& m : matrices_) {
    b.Add(Orthonormalize{m.rows, m.rank, dtype_}, m.name + ".P", {m.left}, {m.left});
    Gemm product = Product(m.columns, m.rank, m.rows);
    product.transpose_a = true;
    b.Add(product, m.name + ".Q", {m.gradient, m.left}, {m.right});
  }
  reduced_ = collectives_.AllReduce(b, right_, name_ + " Q", {b.LastCompute()});
  b.Carries(reduced_, Compressed());
}

void CompressedBucket::Decompress(ProgramBuilder& b) {
  b.WaitBeforeNextCompute(std::exchange(reduced_, -1));
  for (const Matrix& m : matrices_) {
    Gemm product = Product(m.rows, m.columns, m.rank);
    product.transpose_b = true;
    b.Add(product, m.name, {m.left, m.right}, {m.gradient});
  }
  if (error_.buffer < 0) return;
  const OpIndex lost = b.Add(Copy{.elements = error_.elements,
                                  .from = dtype_,
                                  .to = dtype_,
                                  .scale = -1.0 / static_cast<double>(collectives_.ranks()),
                                  .accumulate = true},
                             name_ + " error", {gradients_}, {error_});
  // PyTorch's has the gradients before, these errors and the last step's at once.
  if (as_pytorch_)
    b.WorkedInBy(lost, b.Temporary(name_ + " errors", 2 * error_.elements, Category::kCommunication, dtype_));
}

}  // namespace windtunnel
