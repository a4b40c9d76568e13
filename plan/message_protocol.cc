#include "plan/message_protocol.h"

#include "scenarios/derived.h"

namespace windtunnel {

MessageProtocol MessageProtocolOf(const Scenario& scenario, int stages, int64_t elements) {
  const int64_t ranks = scenario.parallel.pipeline.size;
  const TensorParallelSpec& tensor = scenario.parallel.tensor;
  const bool is_deepspeed = scenario.framework == Framework::kDeepspeed;
  const bool is_megatron_of_2021 = scenario.framework == Framework::kMegatron;
  MessageProtocol protocol;
  if (ranks == 1 || stages != ranks) return protocol;
  const bool are_alike = scenario.model.kind == ModelKind::kTransformer && tensor.size > 1 &&
                         !tensor.sequence && elements % tensor.size == 0 &&
                         !PredictsBeforeLastStage(scenario);
  if (are_alike && (is_deepspeed || is_megatron_of_2021)) protocol.parts = static_cast<int>(tensor.size);
  protocol.host_waits = is_megatron_of_2021 || scenario.framework == Framework::kMegatronCore ||
                        (is_deepspeed && protocol.parts > 1);
  return protocol;
}

}  // namespace windtunnel
