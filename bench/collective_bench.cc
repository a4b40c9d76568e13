// Collectives of every backend that is built, with two ranks on this machine, each pinned to a core:
//
//   ./bazelw run //bench:collective_bench
//
// Times are the slowest rank's. Bytes are the message's, so bytes_per_second is nccl-tests' algbw.
// bench/collective_table.cc prints the same for any number of ranks in the format of nccl-tests.
#include <benchmark/benchmark.h>

#include <string>

#include "bench/rank_group.h"
#include "plan/op.h"

namespace windtunnel {
namespace {

constexpr int kRanks = 2;
constexpr struct {
  Backend backend;
  const char* name;
} kBackends[] = {{Backend::kGloo, "gloo"}, {Backend::kMpi, "mpi"}};

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

// Forks all groups before the first one starts threads.
Status Connect(std::vector<std::unique_ptr<RankGroup>>& groups) {
  for (const auto& backend : kBackends) {
    WT_ASSIGN_OR_RETURN(auto group, RankGroup::Fork(kRanks, backend.backend));
    groups.push_back(std::move(group));
  }
  for (const auto& group : groups) WT_RETURN_IF_ERROR(group->Connect());
  return Ok();
}

int Main(int argc, char** argv) {
  std::vector<std::unique_ptr<RankGroup>> groups;
  const Status connected = Connect(groups);
  if (!connected) {
    fmt::print(stderr, "{}\n", connected.error().message);
    return 1;
  }
  for (size_t i = 0; i < groups.size(); ++i) Register(*groups[i], kBackends[i].name);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace windtunnel

int main(int argc, char** argv) { return windtunnel::Main(argc, argv); }
