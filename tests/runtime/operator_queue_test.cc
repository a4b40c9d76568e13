#include "runtime/operator_queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace windtunnel {
namespace {

using std::chrono::milliseconds;

// Its operators finish only once they are waited for.
class Patient : public OperatorRunner {
 public:
  bool CanBegin(const GroupOperator&) override { return false; }
  Status Begin(GroupOperator&) override { return Ok(); }
  Status Finish(GroupOperator&, bool, const std::atomic<bool>& waited_for) override {
    in_progress = true;
    const auto deadline = std::chrono::steady_clock::now() + milliseconds(20'000);
    while (!waited_for && !aborted && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(milliseconds(1));
    in_progress = false;
    return waited_for || aborted ? Ok() : Failed("nobody waited");
  }
  Status Refuse(GroupOperator&, const Error& prerequisite) override { return tl::unexpected(prerequisite); }
  void Abort() override { aborted = true; }

  std::atomic<bool> in_progress = false, aborted = false;
};

class OperatorQueueTest : public testing::Test {
 protected:
  ~OperatorQueueTest() override { queue_->Stop(); }
  uint64_t Submit() {
    return queue_->Submit([](GroupOperator&) { return Ok(); }, {});
  }
  void UntilInProgress() {
    while (!runner_.in_progress) std::this_thread::sleep_for(milliseconds(1));
  }
  Patient runner_;
  std::shared_ptr<OperatorQueue> queue_ = std::make_shared<OperatorQueue>(&runner_);
};

TEST_F(OperatorQueueTest, AnOperatorThatTheQueueRunsLearnsThatItIsWaitedFor) {
  const uint64_t ticket = Submit();
  UntilInProgress();
  EXPECT_FALSE(queue_->IsDone(ticket));
  EXPECT_TRUE(queue_->Wait(ticket));
}

TEST_F(OperatorQueueTest, SoDoThoseBeforeIt) {
  Submit();
  UntilInProgress();
  Submit();
  const uint64_t last = Submit();
  EXPECT_TRUE(queue_->Wait(last));
}

// Waiting for one operator does not count as waiting for those that are submitted later.
TEST_F(OperatorQueueTest, TheNextOneIsNotWaitedForYet) {
  EXPECT_TRUE(queue_->Wait(Submit()));
  const uint64_t next = Submit();
  UntilInProgress();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(queue_->IsDone(next));
}

}  // namespace
}  // namespace windtunnel
