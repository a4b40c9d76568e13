#include <algorithm>

#include "plan/attention_ops.h"

namespace windtunnel {

// One tile of query rows x keys: the scores. Backward holds their gradient beside them.
int64_t AttentionWorkspaceElements(int64_t seq, int64_t keys, bool backward) {
  const int64_t tile = std::min(kAttentionBlock, seq) * keys;
  return backward ? 2 * tile : tile;
}

}  // namespace windtunnel
