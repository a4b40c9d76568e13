// Compares every operator on a GPU with the cpu device: in sizes that reach every path of a kernel, small
// enough for compute-sanitizer (--gtest_filter=*Small*), and in those of real models.
#include <gtest/gtest.h>

#include "plan/segment_source.h"
#include "runtime/cuda/device.h"
#include "runtime/device_queues.h"
#include "tests/runtime/cuda/operator_case.h"

namespace windtunnel {
namespace {

#define ASSERT_OK(expression)                                                  \
  do {                                                                         \
    if (auto status = (expression); !status) FAIL() << status.error().message; \
  } while (false)

// Launches every operator through a CUDA graph of its own.
class InGraphs : public Device {
 public:
  explicit InGraphs(Device& device) : device_(device) {}

  DeviceQueues* queues() override { return device_.queues(); }
  Status Launch(const OpKind& kind, std::span<const TensorRef> reads, std::span<const TensorRef> writes,
                const KernelContext& context) override {
    DeviceQueues& queues = *device_.queues();
    WT_RETURN_IF_ERROR(queues.BeginCapture(context.queue));
    const Status launched = device_.Launch(kind, reads, writes, context);
    const auto graph = queues.EndCapture();
    WT_RETURN_IF_ERROR(launched);
    if (!graph) return tl::unexpected(graph.error());
    WT_RETURN_IF_ERROR(queues.LaunchGraph(context.queue, *graph));
    return queues.DiscardGraph(*graph);
  }
  SegmentSource& memory() override { return device_.memory(); }
  std::map<std::string, std::string> Libraries() const override { return device_.Libraries(); }

 private:
  Device& device_;
};

class CudaBench : public test::Bench {
 public:
  explicit CudaBench(std::unique_ptr<Device> device) : device_(std::move(device)), in_graphs_(*device_) {}
  ~CudaBench() override { Clear(); }

  void LaunchInGraphs(bool in_graphs) { launches_in_graphs_ = in_graphs; }
  Device& device() override { return launches_in_graphs_ ? in_graphs_ : *device_; }
  void* Allocate(int64_t bytes) override {
    constexpr int64_t kPage = 2 << 20;
    const Bytes rounded((bytes + kPage - 1) / kPage * kPage);
    const auto address = device_->memory().Reserve(rounded);
    if (!address) throw std::runtime_error(address.error().message);
    regions_.push_back({*address, rounded});
    return reinterpret_cast<void*>(*address);
  }
  void Clear() override {
    for (const auto& [address, bytes] : regions_) device_->memory().Release(address, bytes);
    regions_.clear();
  }
  void Upload(void* to, const std::vector<uint8_t>& bytes) override {
    Do(queues().Copy(DeviceQueues::kCompute, to, bytes.data(), Bytes(static_cast<int64_t>(bytes.size()))));
    Finish();
  }
  void Download(const void* from, std::vector<uint8_t>& bytes) override {
    Do(queues().Copy(DeviceQueues::kCompute, bytes.data(), from, Bytes(static_cast<int64_t>(bytes.size()))));
    Finish();
  }

 private:
  DeviceQueues& queues() { return *device_->queues(); }
  static void Do(const Status& status) {
    if (!status) throw std::runtime_error(status.error().message);
  }
  void Finish() {
    const auto event = queues().Record(DeviceQueues::kCompute, DeviceQueues::Timing::kNone);
    if (!event) throw std::runtime_error(event.error().message);
    Do(queues().Await(*event));
  }

  struct Region {
    uint64_t address;
    Bytes bytes;
  };
  std::unique_ptr<Device> device_;
  InGraphs in_graphs_;
  bool launches_in_graphs_ = false;
  std::vector<Region> regions_;
};

struct Sizes {
  DType dtype;
  bool large;
};

class CudaOperator : public testing::TestWithParam<Sizes> {
 protected:
  void SetUp() override {
    if (CudaDevices().empty()) GTEST_SKIP() << "skipped: no CUDA device";
    auto device = MakeCudaDevice(0);
    ASSERT_TRUE(device) << device.error().message;
    bench_ = std::make_unique<CudaBench>(std::move(*device));
  }

  void ExpectTheCpuDevices(const std::vector<test::OperatorCase>& cases) {
    test::HostBench cpu(MakeCpuDevice());
    for (const test::OperatorCase& c : cases) {
      SCOPED_TRACE(c.name + ": " + CostKey(c.kind));
      const test::Outcome expected = RunOn(cpu, c), got = RunOn(*bench_, c);
      ASSERT_EQ(expected.error, "");
      ASSERT_EQ(got.error, "");
      ASSERT_OK(bench_->device().Fault());
      for (size_t i = 0; i < got.writes.size(); ++i) {
        const test::Buffer& buffer = got.writes[i];
        if (!buffer.compared) continue;
        EXPECT_LT(RelativeError(buffer, expected.writes[i]), test::ToleranceOf(buffer)) << "write " << i;
      }
    }
  }

  std::unique_ptr<CudaBench> bench_;
};
INSTANTIATE_TEST_SUITE_P(Types, CudaOperator,
                         testing::Values(Sizes{DType::kFloat32, false}, Sizes{DType::kBFloat16, false},
                                         Sizes{DType::kFloat16, false}, Sizes{DType::kFloat32, true},
                                         Sizes{DType::kBFloat16, true}, Sizes{DType::kFloat16, true}),
                         [](const auto& info) {
                           return (info.param.large ? "Large_" : "Small_") +
                                  std::string(Name(info.param.dtype));
                         });

TEST_P(CudaOperator, IsTheCpuDevices) {
  ExpectTheCpuDevices(test::OperatorCases(GetParam().dtype, GetParam().large));
}

TEST_P(CudaOperator, ProductIsTheCpuDevices) {
  ExpectTheCpuDevices(test::GemmCases(GetParam().dtype, GetParam().large));
}

// No result depends on the order in which blocks happen to run.
TEST_P(CudaOperator, RepeatsItsBits) {
  for (const test::OperatorCase& c : test::OperatorCases(GetParam().dtype, GetParam().large)) {
    SCOPED_TRACE(c.name + ": " + CostKey(c.kind));
    if (!c.repeats_bits) continue;
    const test::Outcome once = RunOn(*bench_, c), again = RunOn(*bench_, c);
    for (size_t i = 0; i < once.writes.size(); ++i) {
      if (!once.writes[i].compared) continue;
      EXPECT_EQ(once.writes[i].bytes, again.writes[i].bytes) << "write " << i;
    }
  }
}

// The captured launch comes after one without a graph, as in the runtime.
TEST_P(CudaOperator, IsTheSameInAGraph) {
  std::vector<test::OperatorCase> cases = test::OperatorCases(GetParam().dtype, GetParam().large);
  for (test::OperatorCase& product : test::GemmCases(GetParam().dtype, GetParam().large))
    cases.push_back(std::move(product));
  for (const test::OperatorCase& c : cases) {
    SCOPED_TRACE(c.name + ": " + CostKey(c.kind));
    const test::Outcome alone = RunOn(*bench_, c);
    bench_->LaunchInGraphs(true);
    const test::Outcome in_graph = RunOn(*bench_, c);
    bench_->LaunchInGraphs(false);
    ASSERT_EQ(in_graph.error, "");
    for (size_t i = 0; i < alone.writes.size(); ++i) {
      const test::Buffer& buffer = alone.writes[i];
      if (!buffer.compared) continue;
      if (c.repeats_bits) {
        EXPECT_EQ(buffer.bytes, in_graph.writes[i].bytes) << "write " << i;
      } else {
        EXPECT_LT(RelativeError(in_graph.writes[i], buffer), test::ToleranceOf(buffer.dtype))
            << "write " << i;
      }
    }
  }
}

// If cuDNN is installed, it computes attention: the device does not silently use its own kernels.
class CudnnAttention : public CudaOperator {
 protected:
  template <typename Attention>
  void ExpectCudnn() {
    if (!CudaLibraries().contains("cuDNN")) GTEST_SKIP() << "skipped: no cuDNN";
    for (const test::OperatorCase& c : test::OperatorCases(GetParam().dtype, GetParam().large)) {
      if (!std::holds_alternative<Attention>(c.kind)) continue;
      EXPECT_EQ(RunOn(*bench_, c).error, "");
    }
    EXPECT_TRUE(bench_->device().Libraries().contains("cuDNN"));
  }
};
INSTANTIATE_TEST_SUITE_P(Types, CudnnAttention,
                         testing::Values(Sizes{DType::kBFloat16, false}, Sizes{DType::kFloat16, false}));

TEST_P(CudnnAttention, IsUsedForward) { ExpectCudnn<AttentionForward>(); }
TEST_P(CudnnAttention, IsUsedBackward) { ExpectCudnn<AttentionBackward>(); }

class CudaFault : public CudaOperator {};
INSTANTIATE_TEST_SUITE_P(Types, CudaFault, testing::Values(Sizes{DType::kFloat32, false}));

TEST_P(CudaFault, NamesATokenIdOutsideTheVocabulary) {
  test::OperatorCase c{.name = "embedding",
                       .kind = EmbeddingForward{.tokens = 3, .seq = 3, .vocab = 10, .hidden = 8}};
  c.ReadIntegers({1, 17, 2}).Read(DType::kFloat32, 80).Write(DType::kFloat32, 24);
  EXPECT_EQ(RunOn(*bench_, c).error, "");
  const Status fault = bench_->device().Fault();
  ASSERT_FALSE(fault);
  EXPECT_EQ(fault.error().message,
            "token id 17 at position 1 of the micro-batch, expected 0 to 9: the data do not fit model.vocab");
}

}  // namespace
}  // namespace windtunnel
