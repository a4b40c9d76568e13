// Collectives of every backend that is built, two ranks on this machine, each pinned to a core:
//
//   bazel run //bench:collective_bench
//
// Times are those of the slowest rank; the bytes are the message's, so bytes_per_second is nccl-tests' algbw.
// bench/collective_table.cc prints the same for any number of ranks in nccl-tests' look.
#include <benchmark/benchmark.h>

#include <string>

#include "bench/rank_group.h"

namespace windtunnel {
namespace {

constexpr int kRanks = 2;

void Collectives(benchmark::State& state, RankGroup& group, CollectiveKind kind) {
  const CollectiveCase what{kind, state.range(0) / 4};
  for (auto iteration : state) {
    Result<double> seconds = group.Time(what, /*warmup=*/1, /*iterations=*/5);
    if (!seconds) {
      state.SkipWithError(seconds.error().message.c_str());
      break;
    }
    state.SetIterationTime(*seconds);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void Register(RankGroup& group, const std::string& backend) {
  for (CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    const std::string name =
        std::string(Name(kind)) + "/" + backend + "/ranks:" + std::to_string(kRanks) + "/bytes";
    benchmark::RegisterBenchmark(name.c_str(),
                                 [&group, kind](benchmark::State& state) { Collectives(state, group, kind); })
        ->RangeMultiplier(8)
        ->Range(8 << 10, 32 << 20)
        ->UseManualTime()
        ->MinTime(0.1)
        ->Unit(benchmark::kMicrosecond);
  }
}

int Main(int argc, char** argv) {
  auto group = RankGroup::Fork(kRanks);
  if (!group) {
    fmt::print(stderr, "{}\n", group.error().message);
    return 1;
  }
  Register(**group, "gloo");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace windtunnel

int main(int argc, char** argv) { return windtunnel::Main(argc, argv); }
