#include "plan/step_end.h"

#include <utility>
#include <vector>

namespace windtunnel {

void SumTiedGradient(ProgramBuilder& b, DataParallel& strategy, CollectiveStream& embedding) {
  b.SetPhase(Phase::kGradientSync);
  const std::vector<Parameter>& parameters = b.role().parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].is_shared) continue;
    const int index = static_cast<int>(i);
    const OpIndex sum =
        embedding.AllReduce(b, strategy.ReducedGradient(index), parameters[i].name, b.BeforeNextCompute());
    b.Carries(sum, {index});
    b.WaitBeforeNextCompute(sum);
  }
}

void CloseWithBarrier(ProgramBuilder& b, CollectiveStream& world) {
  b.SetPhase(Phase::kEnd);
  const std::vector<Stream>& streams = b.role().streams;
  std::vector<OpIndex> last;
  for (size_t stream = 0; stream < streams.size(); ++stream) {
    if (streams[stream].kind != StreamKind::kHost) last.push_back(b.LastOn(static_cast<StreamId>(stream)));
  }
  world.Barrier(b, std::move(last));
}

}  // namespace windtunnel
