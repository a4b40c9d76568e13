// Collectives in the format of nccl-tests, with its flags:
//
//   ./bazelw run //bench:collective_table -- -o all_reduce -r 2 -b 8 -e 64M -f 2 -n 20 -w 5 --backend mpi
//
// algbw is size / time. busbw multiplies it by the traffic that the algorithm needs at least, so that it can
// be compared with a link's bandwidth for any number of ranks: 2 (n - 1) / n for all-reduce, (n - 1) / n for
// all-gather and reduce-scatter, 1 for broadcast (nccl-tests, doc/PERFORMANCE.md). GB are 10^9 bytes.
#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "bench/rank_group.h"
#include "plan/op.h"

namespace windtunnel {
namespace {

struct Flags {
  std::string operation = "all_reduce";
  int ranks = 2;
  int64_t begin = 8, end = int64_t{64} << 20;  // bytes
  int64_t factor = 2;
  int iterations = 20, warmup = 5;
  Backend backend = Backend::kGloo;
};

constexpr char kUsage[] =
    "usage: collective_table [-o all_reduce|all_gather|reduce_scatter|broadcast] [-r ranks] [-b min-bytes] "
    "[-e max-bytes]\n"
    "                        [-f step-factor] [-n iterations] [-w warm-up iterations] [--backend gloo|mpi]   "
    "  (bytes take K, M, G)\n";

std::optional<int64_t> ParseBytes(const std::string& text) {
  char* end = nullptr;
  const int64_t value = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || value < 0) return std::nullopt;
  const std::string unit = end;
  if (unit.empty()) return value;
  if (unit == "K") return value << 10;
  if (unit == "M") return value << 20;
  if (unit == "G") return value << 30;
  return std::nullopt;
}

std::optional<Flags> ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) return std::nullopt;
    const std::string text = argv[i + 1];
    const std::optional<int64_t> value = ParseBytes(text);
    if (flag == "-o") flags.operation = text;
    else if (flag == "--backend" && (text == "gloo" || text == "mpi"))
      flags.backend = text == "mpi" ? Backend::kMpi : Backend::kGloo;
    else if (!value) return std::nullopt;
    else if (flag == "-r") flags.ranks = static_cast<int>(*value);
    else if (flag == "-b") flags.begin = *value;
    else if (flag == "-e") flags.end = *value;
    else if (flag == "-f") flags.factor = *value;
    else if (flag == "-n") flags.iterations = static_cast<int>(*value);
    else if (flag == "-w") flags.warmup = static_cast<int>(*value);
    else return std::nullopt;
  }
  const bool sound = flags.ranks >= 2 && flags.ranks <= 1024 && flags.factor >= 2 && flags.iterations >= 1 &&
                     flags.begin >= 4;
  if (!sound) return std::nullopt;
  return flags;
}

std::optional<CollectiveKind> KindOf(const std::string& operation) {
  for (CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                              CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast})
    if (Name(kind) == operation) return kind;
  return std::nullopt;
}

double BusFactor(CollectiveKind kind, int ranks) {
  const double n = ranks;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
      return (n - 1) / n;
    default:
      return 1;
  }
}

Result<int64_t> PrintTable(RankGroup& group, CollectiveKind kind, const Flags& flags) {
  const bool sums = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
  fmt::print("# backend {} ranks {} minBytes {} maxBytes {} step: {}(factor) warmup iters: {} iters: {}\n#\n",
             VersionOf(flags.backend), flags.ranks, flags.begin, flags.end, flags.factor, flags.warmup,
             flags.iterations);
  fmt::print("#{:>11}  {:>12}  {:>8}  {:>6}  {:>9}  {:>7}  {:>7}  {:>6}\n", "size", "count", "type", "redop",
             "time", "algbw", "busbw", "#wrong");
  fmt::print("#{:>11}  {:>12}  {:>8}  {:>6}  {:>9}  {:>7}  {:>7}  {:>6}\n", "(B)", "(elements)", "", "",
             "(us)", "(GB/s)", "(GB/s)", "");
  double busbw_sum = 0;
  int64_t rows = 0, wrong_sum = 0;
  for (int64_t bytes = flags.begin; bytes <= flags.end; bytes *= flags.factor) {
    const CollectiveCase what{kind, bytes / 4};
    WT_ASSIGN_OR_RETURN(const double seconds, group.Time(what, flags.warmup, flags.iterations));
    WT_ASSIGN_OR_RETURN(const int64_t wrong, group.CountWrong(what));
    const double algbw = static_cast<double>(bytes) / seconds / 1e9,
                 busbw = algbw * BusFactor(kind, flags.ranks);
    fmt::print("{:>12}  {:>12}  {:>8}  {:>6}  {:>9.2f}  {:>7.2f}  {:>7.2f}  {:>6}\n", bytes, bytes / 4,
               "float", sums ? "sum" : "none", seconds * 1e6, algbw, busbw, wrong);
    std::fflush(stdout);
    busbw_sum += busbw;
    wrong_sum += wrong;
    ++rows;
  }
  fmt::print("# Out of bounds values : {} {}\n", wrong_sum, wrong_sum == 0 ? "OK" : "FAILED");
  fmt::print("# Avg bus bandwidth    : {:.4f} GB/s\n#\n",
             rows > 0 ? busbw_sum / static_cast<double>(rows) : 0.0);
  return wrong_sum;
}

int Main(int argc, char** argv) {
  const std::optional<Flags> flags = ParseFlags(argc, argv);
  const std::optional<CollectiveKind> kind = flags ? KindOf(flags->operation) : std::nullopt;
  if (!kind) {
    fmt::print(stderr, "{}", kUsage);
    return 2;
  }
  const auto measure = [&]() -> Result<int64_t> {
    WT_ASSIGN_OR_RETURN(const auto group, RankGroup::Fork(flags->ranks, flags->backend));
    WT_RETURN_IF_ERROR(group->Connect());
    return PrintTable(*group, *kind, *flags);
  };
  const Result<int64_t> wrong = measure();
  if (!wrong) fmt::print(stderr, "{}\n", wrong.error().message);
  return wrong && *wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace windtunnel

int main(int argc, char** argv) { return windtunnel::Main(argc, argv); }
