// The schedules by name, and the arguments that each accepts.
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "plan/schedules/generators.h"
#include "scenarios/known_schedules.h"

namespace windtunnel {
namespace {

using Make = Schedule (*)(int ranks, int virtual_stages, int64_t micro_batches);

struct Generator {
  const char* name;
  Status (*check)(int ranks, int64_t micro_batches);
  Make make;
  Make make_paired = nullptr;  // null: there is no paired variant
};

Status AcceptAny(int, int64_t) { return Ok(); }

// torch's single-stage schedules require this.
Status NeedAsManyAsRanks(int ranks, int64_t micro_batches) {
  if (micro_batches >= ranks) return Ok();
  return InvalidInput("needs at least as many micro-batches as pipeline ranks, {}, but there are {}", ranks,
                      micro_batches);
}

Status NeedTwoPerRank(int ranks, int64_t micro_batches) {
  if (micro_batches >= 2 * ranks) return Ok();
  return InvalidInput("needs at least two micro-batches per pipeline rank, {}, but there are {}", 2 * ranks,
                      micro_batches);
}

int64_t Rounds(int ranks, int64_t micro_batches) { return std::max<int64_t>(1, micro_batches / ranks); }

// torch's rule: micro-batches run in rounds of equal size, which is at least the number of ranks.
Status NeedEqualRounds(int ranks, int64_t micro_batches) {
  const int64_t rounds = Rounds(ranks, micro_batches);
  if (micro_batches % rounds == 0) return Ok();
  const int64_t fewer = micro_batches / rounds * rounds;
  return InvalidInput(
      "runs micro-batches in rounds of equal size, floor(micro-batches / ranks) = {} of them, so {} "
      "micro-batches need to be a "
      "multiple of {}: {} and every multiple of the {} ranks will do",
      rounds, micro_batches, rounds, fewer, ranks);
}

constexpr Generator kGenerators[] = {
    {"none", AcceptAny, [](int p, int, int64_t m) { return schedules::None(p, m); }},
    {"gpipe", NeedAsManyAsRanks, [](int p, int, int64_t m) { return schedules::GPipe(p, m); }},
    {"1f1b", NeedAsManyAsRanks, [](int p, int, int64_t m) { return schedules::OneForwardOneBackward(p, m); }},
    {"interleaved", NeedEqualRounds,
     [](int p, int v, int64_t m) { return schedules::Interleaved(p, v, m, m / Rounds(p, m)); },
     [](int p, int v, int64_t m) { return schedules::Interleaved(p, v, m, m / Rounds(p, m), true); }},
    {"looped_bfs", AcceptAny, [](int p, int v, int64_t m) { return schedules::LoopedBreadthFirst(p, v, m); }},
    {"zb_h1", AcceptAny, [](int p, int, int64_t m) { return schedules::ZeroBubbleH1(p, m); }},
    {"zb_v", AcceptAny, [](int p, int, int64_t m) { return schedules::ZeroBubbleV(p, m); }},
    {"dualpipe_v", NeedTwoPerRank, [](int p, int, int64_t m) { return schedules::DualPipeV(p, m); },
     [](int p, int, int64_t m) { return schedules::DualPipeV(p, m, true); }},
};

Status CheckVirtualStages(const std::string& name, int virtual_stages) {
  switch (FindSchedule(name)->stages) {
    case StagesPerRank::kOne:
      if (virtual_stages == 1) return Ok();
      return InvalidInput("has one stage per rank, but virtual_stages is {}", virtual_stages);
    case StagesPerRank::kTwo:
      if (virtual_stages == 2) return Ok();
      return InvalidInput("has exactly two stages per rank, but virtual_stages is {}", virtual_stages);
    case StagesPerRank::kTwoOrMore:
      if (virtual_stages >= 2) return Ok();
      return InvalidInput("has two or more stages per rank, but virtual_stages is {}", virtual_stages);
  }
  return Ok();
}

// Finds the generator and checks that it accepts these arguments.
Result<const Generator*> FindGenerator(const std::string& name, int ranks, int virtual_stages,
                                       int64_t micro_batches) {
  const auto generator = std::find_if(std::begin(kGenerators), std::end(kGenerators),
                                      [&](const Generator& g) { return name == g.name; });
  if (generator == std::end(kGenerators)) {
    return InvalidInput("pipeline schedule {}: not known; expected one of {}", name,
                        fmt::join(ScheduleNames(), ", "));
  }
  if (ranks < 2)
    return InvalidInput("pipeline schedule {}: needs two or more pipeline ranks, but there is {}", name,
                        ranks);
  if (micro_batches < 1) return InvalidInput("pipeline schedule {}: needs one or more micro-batches", name);
  Status accepted = CheckVirtualStages(name, virtual_stages);
  if (!accepted) return InvalidInput("pipeline schedule {} {}", name, accepted.error().message);
  accepted = generator->check(ranks, micro_batches);
  if (!accepted)
    return InvalidInput("pipeline schedule {} {} (batch.accumulate)", name, accepted.error().message);
  return generator;
}

}  // namespace

const std::vector<std::string>& ScheduleNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const Generator& generator : kGenerators) result.push_back(generator.name);
    return result;
  }();
  return names;
}

Result<Schedule> MakeSchedule(const std::string& name, int ranks, int virtual_stages, int64_t micro_batches) {
  WT_ASSIGN_OR_RETURN(const Generator* generator, FindGenerator(name, ranks, virtual_stages, micro_batches));
  return generator->make(ranks, virtual_stages, micro_batches);
}

Result<Schedule> MakePairedSchedule(const std::string& name, int ranks, int virtual_stages,
                                    int64_t micro_batches) {
  WT_ASSIGN_OR_RETURN(const Generator* generator, FindGenerator(name, ranks, virtual_stages, micro_batches));
  if (generator->make_paired == nullptr)
    return InvalidInput(
        "pipeline schedule {}: a rank's forwards and backwards do not go in pairs of two micro-batches, "
        "expected interleaved or dualpipe_v",
        name);
  return generator->make_paired(ranks, virtual_stages, micro_batches);
}

}  // namespace windtunnel
