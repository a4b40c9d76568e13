// Training with Muon: the update against its definition, one device's losses and weights in every strategy that
// it works with, and peaks to the byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <eigen3/Eigen/Core>
#include <memory>

#include "base/random.h"
#include "plan/data_parallel.h"
#include "plan/muon.h"
#include "plan/plan.h"
#include "runtime/cpu/element.h"
#include "runtime/device.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

using Eigen::MatrixXd;
using enum DataParallelKind;

Scenario WithMuon(Scenario s) {
  s.optimizer = {.kind = OptimizerKind::kMuon, .lr = 1e-3, .weight_decay = 0.1, .momentum = 0.95};
  return s;
}

Scenario WithExperts(Scenario s, int64_t ranks) {
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 1, .capacity_factor = 4};
  s.parallel.expert.size = ranks;
  return s;
}

// The iterations multiply small singular values by up to 3.4445^5 = 485, and with them what rounding to bf16
// adds there. So gradients that differ in their last bits give directions that differ by some per cent, in
// which the model is as good.
constexpr double kLossTolerance = 1e-3, kWeightTolerance = 0.02;

class MuonParity : public testing::TestWithParam<ParityCase> {};

TEST_P(MuonParity, LossesAndWeights) {
  const Scenario& s = GetParam().scenario;
  const auto plan = CompilePlan(s), alone = CompilePlan(OnOneDevice(s));
  ASSERT_TRUE(plan) << plan.error().message;
  const Trained ranks = Train(*plan, kParitySteps), one = Train(*alone, kParitySteps);
  ASSERT_FALSE(HasFailure());
  for (int step = 0; step < kParitySteps; ++step)
    EXPECT_NEAR(ranks.losses[step], one.losses[step], kLossTolerance * one.losses[step]) << "step " << step;
  for (size_t i = 0; i < ranks.weights.size(); ++i) {
    EXPECT_LT(NormWiseDifference(ranks.weights[i], one.weights[i]), kWeightTolerance)
        << "parameter " << i << ", as " << alone->roles[0].parameters[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, MuonParity,
    testing::Values(ParityCase{"Ddp", WithMuon(TinyGpt(2))}, ParityCase{"Llama", WithMuon(TinyLlama(2))},
                    ParityCase{"Ring", WithMuon(Context(Kind(TinyGpt(), kDdp), ContextKind::kRing))},
                    ParityCase{"DataParallel", WithMuon(Dp(TinyGpt(2)))},
                    ParityCase{"Experts", WithMuon(WithExperts(TinyLlama(2), 2))},
                    ParityCase{"Staged", WithMuon(Staged(TinyGpt(), "1f1b"))},
                    ParityCase{"Halves", WithMuon(Staged(TinyLlama(), "zb_h1"))},
                    ParityCase{"Adapted", WithMuon(Adapted(TinyLlama(2)))},
                    ParityCase{"Recomputed", WithMuon(Recomputed(TinyGpt(2), Recompute::kFull))}),
    NameOf);

TEST(Muon, PeaksAreExact) {
  for (const Scenario& s : {TinyGpt(), TinyLlama(2), Tensor(TinyGpt(), true), Staged(TinyGpt(), "1f1b"),
                            Adapted(TinyGpt(), {LoraTarget::kDown})})
    ExpectExactPeaks(*CompilePlan(WithMuon(s)));
}

// A network whose middle layers are matrices with more rows than columns, as many, and fewer.
Scenario HiddenLayers() {
  Scenario s = TinyMlp();
  s.model.widths = {12, 24, 40, 40, 20, 12};
  s.batch.micro = 256;
  return s;
}

std::vector<std::vector<float>> WeightsAfterOneStep(Scenario s, const OptimizerSpec& optimizer) {
  s.optimizer = optimizer;
  return Train(*CompilePlan(s), 1).weights;
}

MatrixXd Rounded(const MatrixXd& x) {
  return x.unaryExpr([](double value) {
    return double{cpu::ToFloat(cpu::FromFloat<cpu::BFloat16>(static_cast<float>(value)))};
  });
}

// The largest eigenvalue of a symmetric matrix without negative ones, by power iteration.
double LargestEigenvalue(const MatrixXd& symmetric) {
  Eigen::VectorXd x(symmetric.rows());
  for (Eigen::Index i = 0; i < x.size(); ++i) x(i) = 1 + 0.01 * static_cast<double>(i % 7);
  double value = 0;
  for (int i = 0; i < 3000; ++i) {
    const Eigen::VectorXd next = symmetric * x;
    value = next.norm() / x.norm();
    if (value == 0) break;
    x = next / next.norm();
  }
  return value;
}

// The least and the largest singular value.
std::pair<double, double> SingularRange(const MatrixXd& matrix) {
  const bool is_wide = matrix.rows() <= matrix.cols();
  const MatrixXd gram =
      is_wide ? MatrixXd(matrix * matrix.transpose()) : MatrixXd(matrix.transpose() * matrix);
  const double most = LargestEigenvalue(gram);
  const MatrixXd rest = most * MatrixXd::Identity(gram.rows(), gram.cols()) - gram;
  return {std::sqrt(std::max(most - LargestEigenvalue(rest), 0.0)), std::sqrt(most)};
}

// The iterations, with every matrix rounded to bf16.
MatrixXd Iterated(const MatrixXd& gradient, int64_t steps) {
  MatrixXd x = Rounded(gradient / std::max(gradient.norm(), 1e-7));
  const bool is_tall = x.rows() > x.cols();
  if (is_tall) x.transposeInPlace();
  for (int64_t i = 0; i < steps; ++i) {
    const MatrixXd g = Rounded(x * x.transpose());
    const MatrixXd u = Rounded(-4.7750 * g + 2.0315 * g * g);
    x = Rounded(3.4445 * x + u * x);
  }
  if (is_tall) x.transposeInPlace();
  return x;
}

// Runs a program's operators on buffers of the host.
class Bench {
 public:
  explicit Bench(const Role& role) : role_(role) {
    for (const Buffer& buffer : role.buffers) memory_.emplace_back(buffer.bytes.count());
  }
  TensorRef Ref(const Slice& slice) {
    const int64_t size = SizeOf(role_.buffers[slice.buffer].dtype).count();
    return {memory_[slice.buffer].data() + slice.offset * size, slice.elements};
  }
  void Run(const Op& op) {
    std::vector<TensorRef> reads, writes;
    for (const Slice& slice : op.reads) reads.push_back(Ref(slice));
    for (const Slice& slice : op.writes) writes.push_back(Ref(slice));
    ASSERT_TRUE(device_->Launch(op.kind, reads, writes, {}));
  }

 private:
  const Role& role_;
  std::unique_ptr<Device> device_ = MakeCpuDevice();
  std::vector<std::vector<uint8_t>> memory_;
};

template <typename T>
MatrixXd MatrixAt(const TensorRef& tensor, int64_t rows, int64_t columns) {
  MatrixXd matrix(rows, columns);
  for (int64_t i = 0; i < rows * columns; ++i)
    matrix(i / columns, i % columns) = cpu::ToFloat(static_cast<const T*>(tensor.data)[i]);
  return matrix;
}

TEST(Muon, IteratesOnTheDirection) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{24, 40}, {40, 40}, {40, 24}, {1, 40}, {40, 1}}) {
    const int64_t elements = rows * columns;
    Role role;
    role.streams = {Stream{StreamKind::kCompute, "compute", -1}};
    const auto make = [&](const char* name) { return NewBuffer(role, name, elements, Category::kWorkspace); };
    const MuonMatrix matrix{"w", rows, columns, make("w"), make("w.grad"), make("w.momentum")};
    ProgramBuilder b(role, "update");
    const OptimizerSpec spec{.kind = OptimizerKind::kMuon, .lr = 1, .momentum = 0.95};
    AddMuonUpdate(b, spec, matrix, nullptr, /*keeps_fp32=*/false);
    const Program program = b.Finish();
    Bench bench(role);
    RandomStream random(/*seed=*/3, /*stream=*/static_cast<uint64_t>(elements));
    for (int64_t i = 0; i < elements; ++i)
      bench.Ref(matrix.gradient).f32()[i] = static_cast<float>(random.Normal());
    bench.Run(program.ops.front());
    const MatrixXd x = MatrixAt<cpu::BFloat16>(bench.Ref(program.ops.front().writes[1]), rows, columns);
    for (size_t i = 1; i < program.ops.size(); ++i) bench.Run(program.ops[i]);
    const double rate = AdjustmentOf(spec.adjust_lr, rows, columns);
    const MatrixXd moved = -MatrixAt<float>(bench.Ref(matrix.values), rows, columns) / rate;
    const MatrixXd expected = Iterated(x, spec.ns_steps);
    EXPECT_LT((moved - expected).norm() / expected.norm(), 0.02) << rows << " x " << columns;
    const auto [least, most] = SingularRange(moved);
    EXPECT_LT(most, 1.25) << rows << " x " << columns;
    EXPECT_GT(least, rows == columns ? 0.1 : 0.6) << rows << " x " << columns;
  }
}

// How much a weight lost in a step, as a matrix of the rows [first, first + rows).
MatrixXd Lost(const std::vector<float>& before, const std::vector<float>& after, int64_t first, int64_t rows,
              int64_t columns) {
  MatrixXd lost(rows, columns);
  for (int64_t i = 0; i < rows * columns; ++i) {
    const size_t at = static_cast<size_t>(first * columns + i);
    lost(i / columns, i % columns) = double{before[at]} - after[at];
  }
  return lost;
}

// Expects that a step moves each matrix of the model by the iterated direction of its gradient, which a step of
// gradient descent shows. Returns the number of matrices.
int ExpectIteratedDirections(const Scenario& s, RateAdjustment adjustment) {
  const OptimizerSpec none{.kind = OptimizerKind::kSgd, .lr = 0},
      descent{.kind = OptimizerKind::kSgd, .lr = 1},
      muon{.kind = OptimizerKind::kMuon, .lr = 0.5, .momentum = 0.95, .adjust_lr = adjustment};
  const auto before = WeightsAfterOneStep(s, none), descended = WeightsAfterOneStep(s, descent),
             after = WeightsAfterOneStep(s, muon);
  const Plan plan = *CompilePlan(WithMuon(s));
  int matrices = 0;
  for (const Parameter& parameter : plan.roles[0].parameters) {
    const int64_t columns = parameter.shape.back(), i = parameter.ordinal;
    int64_t first = 0;
    for (const int64_t rows : parameter.matrices) {
      const MatrixXd gradient = Lost(before[i], descended[i], first, rows, columns);
      const MatrixXd moved =
          Lost(before[i], after[i], first, rows, columns) / (0.5 * AdjustmentOf(adjustment, rows, columns));
      const MatrixXd expected = Iterated(gradient, muon.ns_steps);
      const double cosine = (moved.array() * expected.array()).sum() / moved.norm() / expected.norm();
      EXPECT_GT(cosine, 0.95) << parameter.name << " from row " << first;
      EXPECT_NEAR(moved.norm() / expected.norm(), 1, 0.05) << parameter.name << " from row " << first;
      EXPECT_LT(SingularRange(moved).second, 1.3) << parameter.name;
      first += rows;
      ++matrices;
    }
  }
  return matrices;
}

TEST(Muon, MovesMatricesByTheIteratedDirectionOfTheGradient) {
  for (const RateAdjustment adjustment : {RateAdjustment::kOriginal, RateAdjustment::kMatchRmsAdamW}) {
    EXPECT_EQ(ExpectIteratedDirections(HiddenLayers(), adjustment), 3)
        << "neither the first layer nor the last";
    // Queries, keys, values and the projection; gate, up and down.
    EXPECT_EQ(ExpectIteratedDirections(TinyLlama(), adjustment), 7 * TinyLlama().model.layers);
  }
}

TEST(Muon, QueriesKeysAndValuesAreMatricesOfTheirOwn) {
  Scenario s = TinyLlama();
  s.model.kv_heads = s.model.heads / 2;
  const auto matrices_of = [](const Scenario& of, const std::string& name) {
    const Plan plan = *CompilePlan(WithMuon(of));
    for (const Parameter& parameter : plan.roles[0].parameters)
      if (parameter.name == name) return parameter.matrices;
    ADD_FAILURE() << name;
    return std::vector<int64_t>();
  };
  const int64_t queries = s.model.heads * s.model.head_dim, keys = queries / 2;
  EXPECT_EQ(matrices_of(s, "blocks.0.attn.qkv.weight"), (std::vector<int64_t>{queries, keys, keys}));
  EXPECT_EQ(matrices_of(s, "blocks.0.mlp.gate_up.weight"), (std::vector<int64_t>{s.model.ffn, s.model.ffn}));
  EXPECT_EQ(matrices_of(s, "blocks.0.mlp.down.weight"), std::vector<int64_t>{s.model.hidden});
  for (const char* name : {"wte.weight", "blocks.0.norm1.weight"}) EXPECT_TRUE(matrices_of(s, name).empty());
  const Scenario split = Tensor(s, false);
  EXPECT_EQ(matrices_of(split, "blocks.0.attn.qkv.weight"),
            (std::vector<int64_t>{queries / 2, keys / 2, keys / 2}))
      << "each tensor rank its own part";
}

TEST(Muon, ExpertsAreMatricesOfTheirOwn) {
  const Scenario s = WithMuon(WithExperts(TinyLlama(2), 2));
  const Plan plan = *CompilePlan(s);
  for (const Parameter& parameter : plan.roles[0].parameters) {
    // Two experts on each rank, each with a gate.
    if (parameter.name == "blocks.0.mlp.experts.up.weight") {
      EXPECT_EQ(parameter.matrices, std::vector<int64_t>(4, s.model.ffn));
    }
    if (parameter.name == "blocks.0.mlp.experts.down.weight") {
      EXPECT_EQ(parameter.matrices, std::vector<int64_t>(2, s.model.hidden));
    }
  }
}

// Momentum alone for matrices, two moments for the rest.
TEST(Muon, KeepsOneStateOfMatrices) {
  const Plan plan = *CompilePlan(WithMuon(TinyGpt()));
  int64_t matrices = 0, others = 0, states = 0;
  for (const Parameter& parameter : plan.roles[0].parameters)
    (parameter.matrices.empty() ? others : matrices) += parameter.elements;
  for (const OptimizerState& state : plan.roles[0].optimizer_states) states += state.state.elements;
  EXPECT_GT(matrices, 0);
  EXPECT_EQ(states, matrices + 2 * others);
}

}  // namespace
}  // namespace windtunnel
