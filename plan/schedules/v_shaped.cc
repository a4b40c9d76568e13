// Schedules of two stages per rank placed as a V: chunk 0 is stage r (down), chunk 1 stage 2p-1-r (up).
#include <algorithm>
#include <array>
#include <deque>

#include "plan/schedules/generators.h"

namespace windtunnel::schedules {
namespace {

// Builds a rank's list phase by phase, and counts the micro-batches of each chunk and kind itself.
class VRank {
 public:
  VRank(int rank, int ranks, std::vector<Action>& actions, std::set<Action>* paired = nullptr)
      : stages_{rank, 2 * ranks - 1 - rank}, actions_(actions), paired_(paired) {}

  int64_t forwards(int chunk) const { return forwards_[chunk]; }
  int64_t backwards(int chunk) const { return backwards_[chunk]; }
  bool has_pending_weights(int chunk) const {
    return std::any_of(pending_.begin(), pending_.end(),
                       [&](const Action& w) { return w.stage == stages_[chunk]; });
  }

  void Forward(int chunk) { Add(ActionKind::kForward, chunk, forwards_[chunk]++); }
  void Backward(int chunk) { Add(ActionKind::kBackward, chunk, backwards_[chunk]++); }
  // A forward of `chunk` paired with a backward of the other chunk.
  void Pair(int chunk) {
    Forward(chunk);
    if (paired_ != nullptr) paired_->insert(actions_.back());
    Backward(1 - chunk);
  }
  void InputGradient(int chunk) {
    pending_.push_back({ActionKind::kWeightGradient, stages_[chunk], backwards_[chunk]});
    Add(ActionKind::kInputGradient, chunk, backwards_[chunk]++);
  }
  // The oldest pending weight gradient of this chunk, or (the function below) of both; nothing if none is.
  void WeightGradient(int chunk) {
    const auto due = std::find_if(pending_.begin(), pending_.end(),
                                  [&](const Action& w) { return w.stage == stages_[chunk]; });
    if (due == pending_.end()) return;
    actions_.push_back(*due);
    pending_.erase(due);
  }
  void OldestWeightGradient() {
    if (pending_.empty()) return;
    actions_.push_back(pending_.front());
    pending_.pop_front();
  }

 private:
  void Add(ActionKind kind, int chunk, int64_t micro_batch) {
    actions_.push_back({kind, stages_[chunk], micro_batch});
  }

  std::array<int, 2> stages_;
  std::vector<Action>& actions_;
  std::set<Action>* paired_;  // null: forwards are not paired
  std::array<int64_t, 2> forwards_{}, backwards_{};
  std::deque<Action> pending_;
};

void ForwardInputWeight(VRank& rank, int chunk) {
  rank.Forward(chunk);
  rank.InputGradient(chunk);
  rank.WeightGradient(chunk);
}

void FillZeroBubbleV(VRank rank, int64_t r, int64_t p, int64_t m) {
  for (int64_t i = 0; i < 2 * (p - r) - 1; ++i) rank.Forward(0);
  for (int64_t i = 0; i < r; ++i) {
    rank.Forward(1);
    rank.Forward(0);
  }
  for (int64_t i = 0; i < p - r; ++i) ForwardInputWeight(rank, 1);
  while (rank.forwards(1) < m) {  // the steady state: both chunks in turn, chunk 0 until its forwards run out
    if (rank.forwards(0) < m) rank.Forward(0);
    rank.InputGradient(0);
    rank.WeightGradient(0);
    ForwardInputWeight(rank, 1);
  }
  for (int64_t i = 0; i < r; ++i) {
    rank.InputGradient(0);
    rank.InputGradient(1);
  }
  for (int64_t i = 0; i < p - r; ++i) {
    rank.InputGradient(0);
    rank.WeightGradient(0);
  }
  for (int chunk : {1, 0}) {
    while (rank.has_pending_weights(chunk)) rank.WeightGradient(chunk);
  }
}

// Phase 6: backwards of both chunks in turn; in its second half the weight gradients are deferred.
// Returns whether they are deferred at its end.
bool BackwardsOfBothChunks(VRank& rank, int64_t r) {
  const int64_t count = r + 1;
  bool put_off = false;
  for (int64_t i = 0; i < count; ++i) {
    for (int chunk : {1, 0}) {
      // Half of the 2 count backwards: on odd ranks it changes before chunk 1, on even ranks before chunk 0.
      if (i == count / 2 && chunk == r % 2) put_off = true;
      if (put_off) rank.InputGradient(chunk);
      else rank.Backward(chunk);
    }
  }
  return put_off;
}

void FillDualPipeV(VRank rank, int64_t r, int64_t p, int64_t m) {
  for (int64_t i = 0; i < 2 * (p - r - 1); ++i) rank.Forward(0);
  for (int64_t i = 0; i < r + 1; ++i) {
    rank.Forward(0);
    rank.Forward(1);
  }
  for (int64_t i = 0; i < p - r - 1; ++i) {
    rank.InputGradient(1);
    rank.OldestWeightGradient();
    rank.Forward(1);
  }
  for (int64_t i = 0; i < m - 2 * p + r + 1; ++i) {
    if (i == 0 && r == p - 1) {
      rank.Forward(0);
      rank.Backward(1);
    } else {
      rank.Pair(0);
    }
    rank.Pair(1);
  }
  for (int64_t i = 0; i < p - r - 1; ++i) {
    rank.Backward(1);
    rank.Pair(1);
  }
  const bool put_off = BackwardsOfBothChunks(rank, r);
  for (int64_t i = 0; i < p - r - 1; ++i) {
    rank.OldestWeightGradient();
    if (put_off) rank.InputGradient(0);
    else rank.Backward(0);
  }
  for (int64_t i = 0; i < r + 1; ++i) rank.OldestWeightGradient();
}

}  // namespace

Schedule ZeroBubbleV(int ranks, int64_t micro_batches) {
  Schedule schedule = EmptySchedule("zb_v", ranks, micro_batches, VPlacement(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action>& actions = schedule.ranks[rank];
    FillZeroBubbleV(VRank(rank, ranks, actions), rank, ranks,
                    std::max<int64_t>(micro_batches, 2 * ranks - 1));
    std::erase_if(actions, [&](const Action& action) { return action.micro_batch >= micro_batches; });
  }
  return schedule;
}

Schedule DualPipeV(int ranks, int64_t micro_batches, bool pairs) {
  Schedule schedule = EmptySchedule("dualpipe_v", ranks, micro_batches, VPlacement(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    FillDualPipeV(VRank(rank, ranks, schedule.ranks[rank], pairs ? &schedule.paired : nullptr), rank, ranks,
                  micro_batches);
  }
  return schedule;
}

}  // namespace windtunnel::schedules
