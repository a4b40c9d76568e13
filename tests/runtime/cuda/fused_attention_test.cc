// What cuDNN is asked for, without a device: it recognises the graphs of attention and compiles their kernels
// for an H200 of which it has only a description. A GPU is needed to check that those kernels are right
// (device_operator_test).
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/cuda/cudnn_attention.h"
#include "runtime/cuda/cudnn_fused_attention.h"

namespace windtunnel::cuda {
namespace {

// Device properties in cuDNN's JSON.
constexpr std::string_view kA100 = R"({
  "deviceName": "NVIDIA A100-SXM4-80GB", "cudaDeviceId": 0, "deviceVer": 800, "driverVer": 13000, "pciDeviceId": 0,
  "multiProcessorCount": 108,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "warpSize": 32, "maxCtasPerSM": 32,
  "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "regsPerBlock": 65536, "maxRegistersPerSM": 65536,
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 166912, "reservedSharedMemoryPerBlock": 1024,
  "smClockRateKHz": 1410000, "memClockRateKHz": 1593000, "l2CacheSize": 41943040, "totalGlobalMem": 84987740160,
  "isTccDriver": 0, "supportCoopLaunch": 1})";
constexpr std::string_view kH200 = R"({
  "deviceName": "NVIDIA H200", "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000, "pciDeviceId": 0, "multiProcessorCount": 132,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "warpSize": 32, "maxCtasPerSM": 32,
  "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "regsPerBlock": 65536, "maxRegistersPerSM": 65536,
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
  "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "l2CacheSize": 62914560, "totalGlobalMem": 150754820096,
  "isTccDriver": 0, "supportCoopLaunch": 1})";

// The last execution: the tensors, and the address of each. A variant pack cannot be read back, so its
// attributes are noted when they are set.
struct Noted {
  decltype(CudnnApi::set_attribute) set = nullptr;
  std::vector<int64_t> tensors;
  std::vector<void*> places;
};
Noted& LastPack() {
  static Noted noted;
  return noted;
}
cudnnStatus_t NoteAndSet(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) {
    const auto* tensors = static_cast<const int64_t*>(values);
    LastPack().tensors.assign(tensors, tensors + count);
  }
  if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) {
    const auto* places = static_cast<void* const*>(values);
    LastPack().places.assign(places, places + count);
  }
  return LastPack().set(descriptor, name, type, count, values);
}
cudnnStatus_t ExecuteNothing(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_SUCCESS;
}
// The tensor's address in the last execution; zero if it had none.
int64_t PlaceOf(GraphTensor tensor) {
  for (size_t i = 0; i < LastPack().tensors.size(); ++i)
    if (LastPack().tensors[i] == tensor) return reinterpret_cast<intptr_t>(LastPack().places[i]);
  return 0;
}
TensorRef At(int64_t address) { return {reinterpret_cast<void*>(address), 1}; }

struct Filled {
  void* memory = nullptr;
  size_t bytes = 0;
};
Filled& LastFilled() {
  static Filled filled;
  return filled;
}
cudaError_t RecordFill(void* memory, size_t bytes, cudaStream_t) {
  LastFilled() = {memory, bytes};
  return cudaSuccess;
}

class FusedAttentionTest : public testing::Test {
 protected:
  void SetUp() override {
    // This must come before cuDNN asks for libcuda.so.1, which is this library's name.
    ASSERT_NE(dlopen("tests/runtime/cuda/libfake_driver.so", RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
    LastFilled() = {};
    auto api = OpenCudnn(SearchPlaces::OfThisProcess());
    if (!api) GTEST_SKIP() << "skipped: " << api.error().message;
    api_ = std::move(*api);
    LastPack() = {.set = api_.set_attribute, .tensors = {}, .places = {}};
    if (api_.version() < 90800)
      GTEST_SKIP() << "skipped: cuDNN " << api_.version_text << " knows devices only, no descriptions";
    Describe(kH200);
  }

  void Describe(std::string_view device) {
    properties_.emplace(api_, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    properties_->Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                     static_cast<int64_t>(device.size()), device.data());
    const Status described = properties_->Finalize();
    ASSERT_TRUE(described) << described.error().message;
  }

  GraphTarget target() const { return {.properties = &*properties_}; }
  // `version`, if not null, replaces the library's own.
  std::unique_ptr<FusedAttention> Make(size_t (*version)() = nullptr) {
    CudnnApi api = api_;
    if (version != nullptr) api.version = version;
    api.execute = ExecuteNothing;
    api.set_attribute = NoteAndSet;
    return MakeCudnnFusedAttention(api, target(), RecordFill);
  }

  CudnnApi api_;
  std::optional<CudnnDescriptor> properties_;
};

// Problems of GPT-2, BERT large, Llama 1B and 8B, of the shortest and the longest sequences that are shipped,
// and of sequences that fill no tile.
TEST_F(FusedAttentionTest, HasKernelsForModelsThatAreShipped) {
  for (const std::string_view device : {kH200, kA100}) {
    Describe(device);
    for (const AttentionProblem& problem :
         {AttentionProblem{16, 1024, 12, 12, 64},
          AttentionProblem{8, 512, 16, 16, 64, DType::kBFloat16, /*causal=*/false},
          AttentionProblem{1, 4096, 32, 8, 64}, AttentionProblem{2, 8192, 32, 8, 128},
          AttentionProblem{4, 1000, 16, 16, 64, DType::kFloat16}}) {
      SCOPED_TRACE(fmt::format("{} x {} tokens, {} and {} heads of {} on {}", problem.batch, problem.seq,
                               problem.heads, problem.kv_heads, problem.head_dim, device.substr(0, 40)));
      const auto forward = PlanAttentionForward(api_, problem, target());
      EXPECT_TRUE(forward) << forward.error().message;
      const auto backward = PlanAttentionBackward(api_, problem, target());
      EXPECT_TRUE(backward) << backward.error().message;
    }
  }
}

// Backward of heads of 256 needs more shared memory than an A100 has.
TEST_F(FusedAttentionTest, SaysWhereThereIsNoKernel) {
  Describe(kA100);
  const auto plan = PlanAttentionBackward(api_, {1, 256, 2, 2, 256}, target());
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(plan.error().message, testing::HasSubstr("has no kernel for this graph"));
}

TEST_F(FusedAttentionTest, LeavesToOwnKernelsWhatIsNotForIt) {
  const auto fused = Make();
  std::array<std::byte, 64> memory{};
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 15) / 16 * 16);
  const TensorRef good{aligned, 1}, odd{aligned + 2, 1};
  const auto takes = [&](const OpKind& kind, const TensorRef& operand) {
    return fused->ScratchBytes(kind, {&operand, 1}, {}).value().has_value();
  };
  const AttentionForward forward{2, 256, 4, 4, 64, AttentionKind::kFlash, DType::kBFloat16};
  const AttentionBackward backward{2, 256, 4, 4, 64, AttentionKind::kFlash, DType::kBFloat16};
  EXPECT_TRUE(takes(forward, good));
  EXPECT_TRUE(takes(backward, good));
  EXPECT_FALSE(takes(forward, odd));
  EXPECT_FALSE(takes(AddBias{}, good));
  AttentionForward other = forward;
  other.kind = AttentionKind::kEager;
  EXPECT_FALSE(takes(other, good));
  other = forward;
  other.dtype = DType::kFloat32;
  EXPECT_FALSE(takes(other, good));
  for (const int64_t head_dim : {60, 264}) {
    other = forward;
    other.head_dim = head_dim;
    EXPECT_FALSE(takes(other, good)) << head_dim;
  }
  AttentionBackward repeats = backward, not_whole_tiles = backward;
  repeats.deterministic = true;
  EXPECT_FALSE(takes(repeats, good));
  not_whole_tiles.seq = 200;
  EXPECT_FALSE(takes(not_whole_tiles, good));
}

// Any other failure than a missing kernel does not end a run either, which goes on with own kernels. But it
// is reported, once.
TEST_F(FusedAttentionTest, SaysWhatElseGoesWrong) {
  CudnnApi api = api_;
  api.finalize = [](cudnnBackendDescriptor_t) { return CUDNN_STATUS_INTERNAL_ERROR; };
  const auto fused = MakeCudnnFusedAttention(api, target(), RecordFill);
  const AttentionForward op{2, 256, 4, 4, 64, AttentionKind::kFlash, DType::kBFloat16};
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    const auto bytes = fused->ScratchBytes(op, {}, {});
    ASSERT_TRUE(bytes);
    EXPECT_FALSE(*bytes);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("cudnnBackendFinalize"), std::string::npos) << said;
  EXPECT_NE(said.find("; own kernels compute attention instead\n"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
}

TEST_F(FusedAttentionTest, LeavesToOwnKernelsWhatCudnnCallsUnsupported) {
  CudnnApi api = api_;
  api.finalize = [](cudnnBackendDescriptor_t) { return CUDNN_STATUS_NOT_SUPPORTED_SHAPE; };
  const auto fused = MakeCudnnFusedAttention(api, target(), RecordFill);
  const AttentionForward op{2, 256, 4, 4, 64, AttentionKind::kFlash, DType::kBFloat16};
  const auto bytes = fused->ScratchBytes(op, {}, {});
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_FALSE(*bytes);
}

// The layout is [batch, seq, (heads + 2 kv_heads) head_dim]: keys follow queries, values follow keys.
TEST_F(FusedAttentionTest, FindsItsOperands) {
  const auto fused = Make();
  const AttentionForward op{2, 256, 8, 2, 64, AttentionKind::kFlash, DType::kBFloat16};
  constexpr int64_t kQkv = 0x10000, kOut = 0x20000, kSums = 0x30000;
  constexpr int64_t kKeys = 8 * 64 * 2, kValues = kKeys + 2 * 64 * 2;
  const std::array<TensorRef, 1> reads = {At(kQkv)};
  const std::array<TensorRef, 2> writes = {At(kOut), At(kSums)};
  ASSERT_TRUE(fused->ScratchBytes(op, reads, writes).value());
  const Status launched = fused->Launch(op, reads, writes, nullptr, nullptr);
  ASSERT_TRUE(launched) << launched.error().message;
  const auto plan = PlanAttentionForward(api_, {2, 256, 8, 2, 64}, target());
  ASSERT_TRUE(plan);
  EXPECT_EQ(LastPack().tensors.size(), 7u);
  EXPECT_EQ(PlaceOf(plan->tensors.queries), int64_t{kQkv});
  EXPECT_EQ(PlaceOf(plan->tensors.keys), int64_t{kQkv} + kKeys);
  EXPECT_EQ(PlaceOf(plan->tensors.values), int64_t{kQkv} + kValues);
  EXPECT_EQ(PlaceOf(plan->tensors.out), int64_t{kOut});
  EXPECT_EQ(PlaceOf(plan->tensors.log_sum_exp), int64_t{kSums});
}

// Nothing hides keys, so the score of hidden ones is no operand: six forward, and thirteen backward.
TEST_F(FusedAttentionTest, HasNoScoreOfHiddenKeysIfAllAreSeen) {
  const auto fused = Make();
  AttentionForward forward{2, 256, 8, 2, 64, AttentionKind::kFlash, DType::kBFloat16};
  AttentionBackward backward{2, 256, 8, 2, 64, AttentionKind::kFlash, DType::kBFloat16};
  forward.causal = backward.causal = false;
  const std::array<TensorRef, 4> reads = {At(0x10000), At(0x20000), At(0x30000), At(0x40000)};
  const std::array<TensorRef, 2> writes = {At(0x50000), At(0x60000)};
  ASSERT_TRUE(fused->ScratchBytes(forward, reads, writes).value());
  const Status ran = fused->Launch(forward, reads, writes, nullptr, nullptr);
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_EQ(LastPack().tensors.size(), 6u);
  ASSERT_TRUE(fused->ScratchBytes(backward, reads, writes).value());
  const Status back = fused->Launch(backward, reads, writes, reinterpret_cast<void*>(0x1000000), nullptr);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(LastPack().tensors.size(), 13u);
}

TEST_F(FusedAttentionTest, FindsItsOperandsAndScratchInBackward) {
  const auto fused = Make();
  const AttentionBackward op{2, 256, 8, 2, 64, AttentionKind::kFlash, DType::kBFloat16};
  constexpr int64_t kDout = 0x10000, kQkv = 0x20000, kOut = 0x30000, kSums = 0x40000, kDqkv = 0x50000,
                    kScratch = 0x1000000;
  constexpr int64_t kKeys = 8 * 64 * 2, kValues = kKeys + 2 * 64 * 2;
  constexpr int64_t kProducts = 2 * 256 * 8 * 4, kQuerySums = 2 * 256 * 8 * 64 * 4;
  const std::array<TensorRef, 4> reads = {At(kDout), At(kQkv), At(kOut), At(kSums)};
  const std::array<TensorRef, 1> writes = {At(kDqkv)};
  const std::optional<int64_t> bytes = fused->ScratchBytes(op, reads, writes).value();
  ASSERT_TRUE(bytes);
  const Status launched = fused->Launch(op, reads, writes, reinterpret_cast<void*>(kScratch), nullptr);
  ASSERT_TRUE(launched) << launched.error().message;
  const auto plan = PlanAttentionBackward(api_, {2, 256, 8, 2, 64}, target());
  ASSERT_TRUE(plan);
  EXPECT_EQ(LastPack().tensors.size(), 14u);
  EXPECT_EQ(PlaceOf(plan->tensors.dout), int64_t{kDout});
  EXPECT_EQ(PlaceOf(plan->tensors.keys), int64_t{kQkv} + kKeys);
  EXPECT_EQ(PlaceOf(plan->tensors.out), int64_t{kOut});
  EXPECT_EQ(PlaceOf(plan->tensors.log_sum_exp), int64_t{kSums});
  EXPECT_EQ(PlaceOf(plan->tensors.dqueries), int64_t{kDqkv});
  EXPECT_EQ(PlaceOf(plan->tensors.dkeys), int64_t{kDqkv} + kKeys);
  EXPECT_EQ(PlaceOf(plan->tensors.dvalues), int64_t{kDqkv} + kValues);
  // Workspace, products and sums follow one another in the scratch memory.
  EXPECT_GE(PlaceOf(plan->tensors.products), int64_t{kScratch} + plan->plan.workspace_bytes());
  EXPECT_GE(PlaceOf(plan->tensors.query_sums), PlaceOf(plan->tensors.products) + kProducts);
  EXPECT_LE(PlaceOf(plan->tensors.query_sums) + kQuerySums, int64_t{kScratch} + *bytes);
  EXPECT_EQ(LastFilled().memory, nullptr);
}

// cuDNN before 9.6 adds the sums to whatever is in their memory.
TEST_F(FusedAttentionTest, ClearsTheSumsForOlderVersions) {
  const auto fused = Make([] { return size_t{90500}; });
  const AttentionBackward op{2, 256, 8, 2, 64, AttentionKind::kFlash, DType::kBFloat16};
  const std::array<TensorRef, 4> reads = {At(0x10000), At(0x20000), At(0x30000), At(0x40000)};
  const std::array<TensorRef, 1> writes = {At(0x50000)};
  ASSERT_TRUE(fused->ScratchBytes(op, reads, writes).value());
  const Status launched = fused->Launch(op, reads, writes, reinterpret_cast<void*>(0x1000000), nullptr);
  ASSERT_TRUE(launched) << launched.error().message;
  const auto plan = PlanAttentionBackward(api_, {2, 256, 8, 2, 64}, target());
  ASSERT_TRUE(plan);
  EXPECT_EQ(reinterpret_cast<intptr_t>(LastFilled().memory), PlaceOf(plan->tensors.query_sums));
  EXPECT_GE(LastFilled().bytes, size_t{2 * 256 * 8 * 64 * 4});
}

}  // namespace
}  // namespace windtunnel::cuda
