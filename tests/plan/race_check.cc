#include "tests/plan/race_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

namespace windtunnel {
namespace {

// By stream: its last operator that is done.
using Clock = std::vector<OpIndex>;

void JoinInto(Clock& clock, const Clock& other) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

class RaceCheck {
 public:
  RaceCheck(const Plan& plan, const Role& role, const Program& program)
      : plan_(plan),
        role_(role),
        program_(program),
        host_computes_(plan.scenario.cluster.device == "cpu"),
        host_blocks_(plan.scenario.cluster.device == "cuda"),
        host_(role.streams.size(), -1),
        of_stream_(role.streams.size(), host_),
        clocks_(program.ops.size()) {}

  std::string Find() {
    std::string race;
    const auto on_memory = [&](int32_t index) {
      if (program_.memory[index].allocates()) uses_.erase(program_.memory[index].buffer);
    };
    const auto on_op = [&](OpIndex i) {
      const Op& op = program_.ops[i];
      Advance(i, op);
      for (const auto& [slices, writes] : {std::pair{&op.reads, false}, std::pair{&op.writes, true}}) {
        for (const Slice& slice : *slices)
          if (race.empty()) race = Use(i, slice, writes);
      }
    };
    WalkProgram(program_, on_memory, on_op);
    return race;
  }

 private:
  struct Access {
    OpIndex op;
    Located elements;
    bool writes;
  };

  StreamId StreamOf(OpIndex op) const { return program_.ops[op].stream; }

  void Advance(OpIndex i, const Op& op) {
    Clock clock = of_stream_[op.stream];
    JoinInto(clock, host_);
    for (OpIndex dependency : op.dependencies) JoinInto(clock, clocks_[dependency]);
    clock[op.stream] = i;
    const bool host_is_behind_it = std::holds_alternative<HostWait>(op.kind) ||
                                   (op.on_host && host_blocks_) ||
                                   (host_computes_ && !IsCommunication(op.kind));
    if (host_is_behind_it) JoinInto(host_, clock);
    of_stream_[op.stream] = clocks_[i] = std::move(clock);
  }

  std::string Use(OpIndex i, const Slice& slice, bool writes) {
    const int position = slice.axis < 0 ? 0 : plan_.axes[slice.axis].position_of_rank[role_.ranks.front()];
    const Located elements = Locate(slice, position);
    std::vector<Access>& uses = uses_[slice.buffer];
    for (const Access& use : uses) {
      const bool overlap = use.elements.first < elements.first + elements.elements &&
                           elements.first < use.elements.first + use.elements.elements;
      const OpIndex done = clocks_[i][StreamOf(use.op)];
      if (overlap && use.op != i && (writes || use.writes) && done < use.op) {
        const Op &a = program_.ops[use.op], &b = program_.ops[i];
        return fmt::format("'{}' ({}) and '{}' ({}) both use elements {}+{} of '{}', in no order", a.name,
                           OperatorName(a.kind), b.name, OperatorName(b.kind), elements.first,
                           elements.elements, role_.buffers[slice.buffer].name);
      }
    }
    // An operator that is ordered after this use is also ordered after the uses that this one covers: all of
    // them if it writes, reads of its own stream if it reads.
    std::erase_if(uses, [&](const Access& use) {
      const bool is_covered =
          use.elements.first >= elements.first &&
          use.elements.first + use.elements.elements <= elements.first + elements.elements;
      return use.op != i && is_covered && (writes || (!use.writes && StreamOf(use.op) == StreamOf(i)));
    });
    uses.push_back({i, elements, writes});
    return {};
  }

  const Plan& plan_;
  const Role& role_;
  const Program& program_;
  const bool host_computes_;
  // Whether the host blocks in what it does itself, as in a live run. In the simulator it goes on, which
  // needs dependencies.
  const bool host_blocks_;
  Clock host_;
  std::vector<Clock> of_stream_, clocks_;
  std::map<BufferId, std::vector<Access>> uses_;
};

}  // namespace

std::string FindRace(const Plan& plan, const Role& role, const Program& program) {
  return RaceCheck(plan, role, program).Find();
}

}  // namespace windtunnel
