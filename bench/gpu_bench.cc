// Measurements of a GPU and NCCL alone, with Google Benchmark: GEMMs, attention and launches on one rank,
// collectives on several.
//
//   bench/gpu_bench --benchmark_format=json                  # GEMMs, attention and launches
//   bench/gpu_bench --ranks=2 --benchmark_format=json        # all-reduce, all-gather, reduce-scatter among processes
//
// Names:
//   gemm/MODEL/LAYER/PASS              over 8,192 tokens in bf16
//   gemm/k/K                           8,192 x 8,192, which shows a tile's cost apart from its steps along k
//   attention/HEADSxHEAD_DIM/SEQ/PASS  over 16,384 tokens in bf16, causal (FLOPs of the visible pairs)
//   norm/COLUMNS/PASS and others       memory-bound operators over 16,384 tokens (operands' bytes by time)
//   launch/graph/KERNELS/idle          host time to launch a graph of KERNELS empty kernels, device idle
//   launch/graph/KERNELS/behind        the same while the device is busy
//   collective/NAME/BYTES              BYTES of the whole message, in bf16
// Operands rotate through 512 MiB, which is more than any L2 cache. Times are those between events of the
// device. Every rank runs the same benchmarks equally often, and rank 0 reports.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/cuda/device.h"
#include "runtime/device_queues.h"
#include "runtime/nccl/communicator.h"
#include "runtime/store.h"

namespace windtunnel {
namespace {

constexpr int64_t kTokens = 8192;
constexpr Bytes kRotation = MiB(512);
constexpr auto kCompute = DeviceQueues::kCompute;

struct Bench {
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> group;
  std::unique_ptr<Store> store;
  int rank = 0, ranks = 1;
};
Bench bench;

Result<double> SecondsOf(const std::function<Status()>& issue) {
  DeviceQueues& queues = *bench.device->queues();
  WT_RETURN_IF_ERROR(queues.Restart());
  WT_RETURN_IF_ERROR(queues.Spin(kCompute, Microseconds(200)));
  WT_ASSIGN_OR_RETURN(const auto begin, queues.Record(kCompute, DeviceQueues::Timing::kTimed));
  WT_RETURN_IF_ERROR(issue());
  WT_ASSIGN_OR_RETURN(const auto end, queues.Record(kCompute, DeviceQueues::Timing::kTimed));
  WT_RETURN_IF_ERROR(queues.Await(end));
  WT_ASSIGN_OR_RETURN(const auto from, queues.TimeOf(begin));
  WT_ASSIGN_OR_RETURN(const auto to, queues.TimeOf(end));
  return std::chrono::duration<double>(to - from).count();
}

void Fail(benchmark::State& state, const Error& error) { state.SkipWithError(error.message.c_str()); }

// One segment of device memory, for the lifetime of this object. It is filled with small numbers, since zeros
// would save power.
class Memory {
 public:
  explicit Memory(Bytes bytes) : bytes_(bytes) {
    if (auto address = bench.device->memory().Reserve(bytes)) address_ = *address;
    if (address_ != 0) (void)bench.device->queues()->Fill(kCompute, at(0), 0x3C, bytes);
  }
  ~Memory() {
    if (address_ != 0) bench.device->memory().Release(address_, bytes_);
  }
  void* at(int64_t offset) const { return reinterpret_cast<void*>(address_ + static_cast<uint64_t>(offset)); }
  bool valid() const { return address_ != 0; }

 private:
  Bytes bytes_;
  uint64_t address_ = 0;
};

struct Operand {
  int64_t elements = 0;
  DType dtype = DType::kBFloat16;
  int64_t bytes() const { return (SizeOf(dtype) * elements).RoundedUpTo(Bytes(256)).count(); }
};

// Repeats `kind` with operands as plan/ops.h documents.
void Repeat(benchmark::State& state, const OpKind& kind, const std::vector<Operand>& reads,
            const std::vector<Operand>& writes) {
  constexpr int kEach = 10;
  int64_t set = 0;
  for (const auto* operands : {&reads, &writes})
    for (const Operand& operand : *operands) set += operand.bytes();
  const int64_t sets = std::max<int64_t>(kRotation.count() / set, 2);
  Memory memory(Bytes(set * sets));
  if (!memory.valid()) return state.SkipWithError("out of device memory");
  int64_t turn = 0;
  const auto next_set = [&] {
    int64_t at = set * (turn++ % sets);
    std::array<std::vector<TensorRef>, 2> located;
    for (int side = 0; side < 2; ++side) {
      for (const Operand& operand : side == 0 ? reads : writes) {
        located[side].push_back({memory.at(at), operand.elements});
        at += operand.bytes();
      }
    }
    return located;
  };
  // Token 0 as every target, so that targets are valid tokens.
  for (int64_t i = 0; i < sets; ++i) {
    const auto [in, out] = next_set();
    for (size_t k = 0; k < reads.size(); ++k)
      if (reads[k].dtype == DType::kInt32)
        (void)bench.device->queues()->Fill(kCompute, in[k].data, 0, Bytes(reads[k].bytes()));
  }
  const auto repeat = [&]() -> Status {
    for (int i = 0; i < kEach; ++i) {
      const auto [in, out] = next_set();
      WT_RETURN_IF_ERROR(bench.device->Launch(kind, in, out, {}));
    }
    return Ok();
  };
  if (auto warm = SecondsOf(repeat); !warm) return Fail(state, warm.error());
  for (auto _ : state) {
    auto seconds = SecondsOf(repeat);
    if (!seconds) return Fail(state, seconds.error());
    state.SetIterationTime(*seconds / kEach);
  }
  const auto rate = [](double each) {
    return benchmark::Counter(each, benchmark::Counter::kIsIterationInvariantRate);
  };
  if (std::holds_alternative<Gemm>(kind) || std::holds_alternative<AttentionForward>(kind) ||
      std::holds_alternative<AttentionBackward>(kind)) {
    state.counters["TFLOP/s"] = rate(FlopsOf(kind).count() * 1e-12);
  } else {
    state.counters["GB/s"] = rate(static_cast<double>(set) * 1e-9);
  }
}

void Register(const std::string& name, const OpKind& kind, const std::vector<Operand>& reads,
              const std::vector<Operand>& writes) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) { Repeat(state, kind, reads, writes); })
      ->UseManualTime()
      ->MinTime(0.1)
      ->Unit(benchmark::kMicrosecond);
}

void RegisterProduct(const std::string& name, const Gemm& op) {
  Register(name, op, {{op.m * op.k}, {op.k * op.n}}, {{op.m * op.n}});
}

void RegisterLayer(const std::string& name, int64_t in, int64_t out) {
  const struct {
    const char* pass;
    Gemm op;
  } passes[] = {
      {"forward", {.m = kTokens, .n = out, .k = in, .transpose_b = true, .dtype = DType::kBFloat16}},
      {"input_gradient", {.m = kTokens, .n = in, .k = out, .dtype = DType::kBFloat16}},
      {"weight_gradient", {.m = out, .n = in, .k = kTokens, .transpose_a = true, .dtype = DType::kBFloat16}},
  };
  for (const auto& [pass, op] : passes) RegisterProduct(fmt::format("gemm/{}/{}", name, pass), op);
}

// cuDNN's kernels (forward, backward), and Windtunnel's own without dropout and with it. Their forward without
// dropout is that of a window of one key less than there are, since cuDNN takes whole sequences.
void RegisterAttention() {
  constexpr int64_t kAttentionTokens = 16384;
  const struct { int64_t heads, kv_heads, head_dim; } models[] = {{16, 16, 64}, {32, 8, 128}};
  for (const auto& [heads, kv_heads, head_dim] : models) {
    for (int64_t seq = 512; seq <= 16384; seq *= 2) {
      const int64_t batch = kAttentionTokens / seq;
      const Operand qkv{kAttentionTokens * (heads + 2 * kv_heads) * head_dim},
          out{kAttentionTokens * heads * head_dim}, sums{kAttentionTokens * heads, DType::kFloat32},
          forward_tiles{AttentionWorkspaceElements(seq, false), DType::kFloat32},
          backward_tiles{AttentionWorkspaceElements(seq, true), DType::kFloat32};
      const std::string name = fmt::format("attention/{}x{}/{}", heads, head_dim, seq);
      const struct {
        const char* kernels;
        bool deterministic;
        int64_t window;
        DropoutSite dropout;
      } variants[] = {{"", false, 0, {}},
                      {"_own", true, seq - 1, {}},
                      {"_dropout", true, 0, DropoutSiteOf(0.1, "attention", 0)}};
      for (const auto& [kernels, deterministic, window, dropout] : variants) {
        Register(name + "/forward" + kernels,
                 AttentionForward{batch, seq, heads, kv_heads, head_dim, AttentionKind::kFlash,
                                  DType::kBFloat16, 0, window, dropout},
                 {qkv}, {out, sums, forward_tiles});
        Register(name + "/backward" + kernels,
                 AttentionBackward{batch, seq, heads, kv_heads, head_dim, AttentionKind::kFlash,
                                   DType::kBFloat16, deterministic, 0, window, dropout},
                 {out, qkv, out, sums}, {qkv, backward_tiles});
      }
    }
  }
}

// Memory-bound operators of a step of GPT-2 and of a Llama-style model. "GB/s" counts each operand once.
void RegisterMemoryBound() {
  constexpr int64_t kRows = 16384;
  constexpr auto kBf16 = DType::kBFloat16;
  const auto of = [](int64_t columns) { return Operand{kRows * columns}; };
  const auto parameter = [](int64_t columns) { return Operand{columns}; };
  for (const int64_t n : {int64_t{768}, int64_t{1600}, int64_t{2048}, int64_t{4096}}) {
    const NormKind kind = n >= 2048 ? NormKind::kRmsNorm : NormKind::kLayerNorm;
    const bool bias = kind == NormKind::kLayerNorm;
    const Operand statistics{(bias ? 2 : 1) * kRows, DType::kFloat32};
    const std::vector<Operand> parameters(bias ? 2 : 1, parameter(n));
    std::vector<Operand> in = {of(n), of(n)}, gradients = {of(n)};
    in.insert(in.end(), parameters.begin(), parameters.end());
    gradients.insert(gradients.end(), parameters.begin(), parameters.end());
    Register(fmt::format("norm/{}/forward", n), NormForward{kind, kRows, n, bias, true, kBf16}, in,
             {of(n), of(n), statistics});
    Register(fmt::format("norm/{}/backward", n), NormBackward{kind, kRows, n, bias, true, false, kBf16},
             {of(n), of(n), parameter(n), statistics, of(n)}, gradients);
  }
  for (const int64_t n : {int64_t{3072}, int64_t{6400}}) {
    Register(fmt::format("gelu/{}/forward", n), ActivationForward{ActivationKind::kGelu, kRows, n, kBf16},
             {of(n)}, {of(n)});
    Register(fmt::format("gelu/{}/backward", n), ActivationBackward{ActivationKind::kGelu, kRows, n, kBf16},
             {of(n), of(n)}, {of(n)});
    Register(fmt::format("bias_gradient/{}", n), ColumnSum{kRows, n, false, kBf16}, {of(n)}, {parameter(n)});
  }
  Register("swiglu/8192/forward", ActivationForward{ActivationKind::kSwiglu, kRows, 8192, kBf16}, {of(16384)},
           {of(8192)});
  Register("swiglu/8192/backward", ActivationBackward{ActivationKind::kSwiglu, kRows, 8192, kBf16},
           {of(8192), of(16384)}, {of(16384)});
  Register("bias_gradient/768", ColumnSum{kRows, 768, false, kBf16}, {of(768)}, {parameter(768)});
  for (const int64_t vocab : {int64_t{32000}, int64_t{50257}, int64_t{50304}, int64_t{128256}}) {
    constexpr int64_t kLossRows = 8192;
    const Operand logits{kLossRows * vocab};
    Register(fmt::format("cross_entropy/{}", vocab), CrossEntropy{kLossRows, vocab, 1.0, kBf16},
             {logits, {kLossRows, DType::kInt32}}, {{1, DType::kFloat32}, logits});
  }
}

void RegisterProducts() {
  const struct {
    const char* name;
    int64_t hidden, ffn;
  } models[] = {{"gpt2-124m", 768, 3072},
                {"gpt2-355m", 1024, 4096},
                {"gpt2-774m", 1280, 5120},
                {"gpt2-1.5b", 1600, 6400},
                {"llama-1b", 2048, 8192}};
  for (const auto& [name, hidden, ffn] : models) {
    RegisterLayer(fmt::format("{}/qkv", name), hidden, 3 * hidden);
    RegisterLayer(fmt::format("{}/proj", name), hidden, hidden);
    RegisterLayer(fmt::format("{}/up", name), hidden, ffn);
    RegisterLayer(fmt::format("{}/down", name), ffn, hidden);
  }
  RegisterLayer("gpt2-1.5b/head", 1600, 50304);
  RegisterLayer("square", 8192, 8192);
  for (int64_t k = 256; k <= 16384; k *= 2) {
    RegisterProduct(fmt::format("gemm/k/{}", k),
                    {.m = 8192, .n = 8192, .k = k, .transpose_b = true, .dtype = DType::kBFloat16});
  }
  benchmark::RegisterBenchmark("launch/nothing", [](benchmark::State& state) {
    DeviceQueues& queues = *bench.device->queues();
    int64_t issued = 0;
    for (auto _ : state) {
      if (auto status = queues.LaunchNothing(kCompute); !status) return Fail(state, status.error());
      if (++issued % 512 == 0) {  // the driver's queue is limited
        state.PauseTiming();
        if (auto status = queues.Restart(); !status) return Fail(state, status.error());
        state.ResumeTiming();
      }
    }
  })->Unit(benchmark::kMicrosecond);
}

// Launches one graph repeatedly. Before each launch the device is idle, or has work for `busy`.
void LaunchGraphs(benchmark::State& state, int kernels, Duration busy) {
  DeviceQueues& queues = *bench.device->queues();
  const auto capture = [&]() -> Result<DeviceQueues::Graph> {
    // A kernel's first launch loads it, which is not allowed within a capture.
    WT_RETURN_IF_ERROR(queues.LaunchNothing(kCompute));
    WT_RETURN_IF_ERROR(queues.Restart());
    WT_RETURN_IF_ERROR(queues.BeginCapture(kCompute));
    for (int i = 0; i < kernels; ++i) WT_RETURN_IF_ERROR(queues.LaunchNothing(kCompute));
    return queues.EndCapture();
  };
  const auto graph = capture();
  if (!graph) return Fail(state, graph.error());
  const auto launch = [&]() -> Result<double> {
    WT_RETURN_IF_ERROR(queues.Restart());
    if (busy > Duration()) WT_RETURN_IF_ERROR(queues.Spin(kCompute, busy));
    const auto begin = std::chrono::steady_clock::now();
    WT_RETURN_IF_ERROR(queues.LaunchGraph(kCompute, *graph));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (int i = 0; i < 3; ++i)
    if (auto warm = launch(); !warm) return Fail(state, warm.error());
  for (auto _ : state) {
    auto seconds = launch();
    if (!seconds) return Fail(state, seconds.error());
    state.SetIterationTime(*seconds);
  }
  (void)queues.Restart();
  (void)queues.DiscardGraph(*graph);
}

void RegisterGraphs() {
  for (const int kernels : {1, 16, 64, 128, 148, 192, 256, 320, 444, 640, 1024}) {
    for (const bool behind : {false, true}) {
      benchmark::RegisterBenchmark(
          fmt::format("launch/graph/{}/{}", kernels, behind ? "behind" : "idle").c_str(),
          [=](benchmark::State& state) {
            LaunchGraphs(state, kernels, behind ? Milliseconds(5) : Duration());
          })
          ->UseManualTime()
          ->Iterations(50)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

void Communicate(benchmark::State& state, CollectiveKind kind, int64_t bytes) {
  const int64_t elements = bytes / 2,
                scratch_elements = CollectiveScratchElements({kind, DType::kBFloat16, elements}, bench.ranks);
  const Collective op{kind, DType::kBFloat16, elements};
  Memory memory(Bytes(2 * bytes + scratch_elements * 2 + 4096));
  if (!memory.valid()) return state.SkipWithError("out of device memory");
  const TensorRef x{memory.at(0), elements}, y{memory.at(bytes), elements},
      scratch{memory.at(2 * bytes), scratch_elements};
  std::vector<TensorRef> reads = {x}, writes = {kind == CollectiveKind::kAllReduce ? x : y, scratch};
  const auto run = [&]() -> Result<double> {
    WT_RETURN_IF_ERROR(bench.group->Wait(
        bench.group->Submit(Collective{CollectiveKind::kBarrier, DType::kFloat32, 0}, {}, {}, "barrier")));
    const uint64_t ticket = bench.group->Submit(op, reads, writes, "bench");
    WT_RETURN_IF_ERROR(bench.group->Wait(ticket));
    const auto times = bench.group->TimesOf(ticket);
    return std::chrono::duration<double>(times.end - times.start).count();
  };
  for (int i = 0; i < 3; ++i)
    if (auto warm = run(); !warm) return Fail(state, warm.error());
  for (auto _ : state) {
    auto seconds = run();
    if (!seconds) return Fail(state, seconds.error());
    state.SetIterationTime(*seconds);
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}

void RegisterCollectives() {
  for (CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    for (int64_t bytes = 1 << 10; bytes <= 1 << 28; bytes *= 4) {
      benchmark::RegisterBenchmark(
          fmt::format("collective/{}/{}", Name(kind), bytes).c_str(),
          [kind, bytes](benchmark::State& state) { Communicate(state, kind, bytes); })
          ->UseManualTime()
          ->Iterations(bytes > (1 << 24) ? 5 : 20)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

Status SetUp(int port) {
  WT_RETURN_IF_ERROR(CheckCudaDevice());
  const int devices = static_cast<int>(CudaDevices().size());
  if (bench.ranks > devices) ShareDeviceUnderNccl(bench.rank, /*one_machine=*/true);
  WT_ASSIGN_OR_RETURN(bench.device, MakeCudaDevice(bench.rank % devices));
  if (bench.ranks == 1) return Ok();
  WT_ASSIGN_OR_RETURN(bench.store, ConnectStore("127.0.0.1", port, "gpu_bench", std::chrono::seconds(60)));
  WT_ASSIGN_OR_RETURN(bench.group,
                      MakeNcclCommunicator(*bench.store, *bench.device,
                                           {.name = "bench", .rank = bench.rank, .size = bench.ranks}));
  return Ok();
}

// Called before anything starts threads.
std::vector<pid_t> ForkRanks() {
  std::vector<pid_t> children;
  const pid_t parent = getpid();
  for (int rank = 1; rank < bench.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      bench.rank = rank;
      const int nowhere = open("/dev/null", O_WRONLY);
      dup2(nowhere, STDOUT_FILENO);
      return {};
    }
    children.push_back(child);
  }
  return children;
}

int Main(int argc, char** argv) {
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    constexpr std::string_view kRanks = "--ranks=";
    if (std::string_view(argv[i]).starts_with(kRanks)) {
      bench.ranks = std::max(1, std::atoi(argv[i] + kRanks.size()));
    } else {
      rest.push_back(argv[i]);
    }
  }
  // The port is chosen before the ranks fork, since they find rank 0's store there.
  const int port = 29400 + static_cast<int>(getpid() % 1000);
  const std::vector<pid_t> children = bench.ranks > 1 ? ForkRanks() : std::vector<pid_t>();
  // Only rank 0 writes an output file.
  if (bench.rank > 0)
    std::erase_if(rest, [](std::string_view flag) { return flag.starts_with("--benchmark_out"); });
  std::unique_ptr<StoreServer> server;
  if (bench.rank == 0 && bench.ranks > 1) {
    auto served = ServeStore("127.0.0.1", port, "gpu_bench");
    if (!served) {
      std::fprintf(stderr, "gpu_bench: %s\n", served.error().message.c_str());
      return 1;
    }
    server = std::move(*served);
  }
  if (auto status = SetUp(port); !status) {
    if (bench.rank == 0) std::fprintf(stderr, "gpu_bench: %s\n", status.error().message.c_str());
    return 1;
  }
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (bench.ranks > 1) {
    RegisterCollectives();
  } else {
    RegisterProducts();
    RegisterAttention();
    RegisterMemoryBound();
    RegisterGraphs();
  }
  benchmark::RunSpecifiedBenchmarks();
  bench.group.reset();
  bench.device.reset();
  int failed = 0;
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed |= status;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace windtunnel

int main(int argc, char** argv) { return windtunnel::Main(argc, argv); }
