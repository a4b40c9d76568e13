#include "runtime/run_checkpoints.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/store.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/checkpoint/saving.h"

namespace windtunnel {
namespace {

// A rank that is stopped, or whose file system does not answer, does not block the others for ever.
TEST(RunCheckpoints, NamesTheRankThatWritesNothingOfItsPart) {
  std::atomic<bool> failed = false;
  WithRanks(CompilePlan(TinyGpt(2)).value(), [&](RankSession& session, Store& store) -> Status {
    RunOptions options;
    options.checkpoints = testing::TempDir() + "/stopped";
    options.save_patience = std::chrono::milliseconds(300);
    RunCheckpoints checkpoints(session, store, options, /*steps=*/1);
    WT_RETURN_IF_ERROR(checkpoints.Begin());
    WT_RETURN_IF_ERROR(session.Step());
    if (session.rank() == 1) {
      while (!failed) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return Ok();
    }
    const Status saved = checkpoints.AfterStep();
    failed = true;
    const std::string said = saved ? "success" : saved.error().message;
    EXPECT_NE(said.find("nothing has been written for 0.3 s: rank 1 did not finish"), std::string::npos)
        << said;
    return Ok();
  });
}

// The keys that all ranks have set.
class Keys {
 public:
  void Note(const std::string& key) {
    std::lock_guard lock(mutex_);
    keys_.insert(key);
  }
  std::set<std::string> all() const {
    std::lock_guard lock(mutex_);
    return keys_;
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::string> keys_;
};

// Notes the keys that are set in another store.
class NotingStore : public Store {
 public:
  NotingStore(Store& store, Keys& keys) : store_(store), keys_(keys) {}

  Status Set(const std::string& key, const std::string& value) override {
    keys_.Note(key);
    return store_.Set(key, value);
  }
  Result<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_.Get(key, timeout);
  }
  Result<int64_t> Add(const std::string& key, int64_t amount) override {
    keys_.Note(key);
    return store_.Add(key, amount);
  }
  Status WaitForCount(const std::string& key, int64_t count, std::chrono::milliseconds timeout) override {
    return store_.WaitForCount(key, count, timeout);
  }
  Result<bool> Has(const std::string& key) override { return store_.Has(key); }
  Status Bequeath(const std::string& key, const std::string& value) override {
    keys_.Note(key);
    return store_.Bequeath(key, value);
  }

 private:
  Store& store_;
  Keys& keys_;
};

// The store keeps every key until the run ends. Which rank comes last, and then sets what the others wait
// for, differs from save to save.
TEST(RunCheckpoints, SetNoFurtherKeysAfterTheFirstSave) {
  const std::string path = EmptyDirectory("keys");
  Keys keys;
  WithRanks(CompilePlan(TinyGpt(2)).value(), [&](RankSession& session, Store& store) -> Status {
    NotingStore noting(store, keys);
    const RunOptions options{.checkpoints = path, .checkpoint_every = 1};
    RunCheckpoints checkpoints(session, noting, options, /*steps=*/3);
    WT_RETURN_IF_ERROR(checkpoints.Begin());
    std::set<std::string> after_first;
    for (int step = 0; step < 3; ++step) {
      WT_RETURN_IF_ERROR(session.Step());  // all ranks have left the last save
      if (step == 1) after_first = keys.all();
      WT_RETURN_IF_ERROR(checkpoints.AfterStep());
    }
    EXPECT_EQ(checkpoints.saves().size(), 3u);
    EXPECT_EQ(keys.all(), after_first);
    return Ok();
  });
}

// Lets a rank go on from a meeting only after something else.
class LateStore : public NotingStore {
 public:
  LateStore(Store& store, Keys& keys, const std::atomic<bool>& go) : NotingStore(store, keys), go_(go) {}
  Status WaitForCount(const std::string& key, int64_t count, std::chrono::milliseconds timeout) override {
    WT_RETURN_IF_ERROR(NotingStore::WaitForCount(key, count, timeout));
    while (!go_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Ok();
  }

 private:
  const std::atomic<bool>& go_;
};

// Rank 0 fails, and takes the unfinished directory away before rank 1 has written its part into it.
TEST(RunCheckpoints, ThatOneRankCannotSaveFailInAllWithItsReason) {
  std::atomic<bool> has_failed = false;
  Keys keys;
  const std::string path = EmptyDirectory("diverged");
  const Plan plan = *CompilePlan(Changed(TinyGpt(2), [](Scenario& it) { it.optimizer.lr = 1e30; }));
  WithRanks(plan, [&](RankSession& session, Store& store) -> Status {
    LateStore late(store, keys, has_failed);
    RunCheckpoints checkpoints(session, session.rank() == 1 ? late : store, {.checkpoints = path},
                               /*steps=*/3);
    for (int step = 0; step < 3; ++step) WT_RETURN_IF_ERROR(session.Step());
    const Status saved = checkpoints.AfterStep();
    if (session.rank() == 0) has_failed = true;
    const std::string said = saved ? "success" : saved.error().message;
    EXPECT_NE(said.find("training has diverged: after step 3 '"), std::string::npos)
        << session.rank() << ": " << said;
    return Ok();
  });
  EXPECT_TRUE(std::filesystem::is_empty(path));
}

TEST(CheckpointDirectory, KeepsTheNewestAndTakesAwayWhatWasInterrupted) {
  const std::string path = EmptyDirectory("kept");
  const Plan plan = *CompilePlan(Changed(TinyGpt(1), [](Scenario&) {}));
  std::filesystem::create_directories(path + "/.unfinished_00000003");
  RunSteps(plan, {.checkpoints = path, .checkpoint_every = 1, .keep = 2}, 5);
  EXPECT_EQ(CheckpointDirectory(path).Steps(), (std::vector<int64_t>{4, 5}));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"latest", "step_00000004", "step_00000005"}));
}

// One rank may write gigabytes while the others wait.
TEST(RunCheckpoints, ASaveMayTakeLongerThanACollective) {
  constexpr std::chrono::milliseconds kDeadline{1'000};
  const Plan plan = *CompilePlan(Changed(TinyGpt(2), [](Scenario&) {}));
  const std::string path = EmptyDirectory("slow");
  auto server = ServeStore("127.0.0.1", 0, "test").value();
  const auto run = [&](int rank) -> Status {
    WT_ASSIGN_OR_RETURN(auto store,
                        ConnectStore("127.0.0.1", server->port(), "test", std::chrono::seconds(20)));
    FlightRecorder recorder = FlightRecorder::Private();
    RankOptions options{.rank = rank};
    options.collective_timeout = kDeadline;
    WT_ASSIGN_OR_RETURN(auto session, RankSession::Make(plan, *store, recorder, options));
    WT_RETURN_IF_ERROR(session->Initialize());
    if (rank == 0) std::this_thread::sleep_for(2 * kDeadline);
    return RunCheckpoints(*session, *store, {.checkpoints = path}, /*steps=*/0).AfterStep();
  };
  Status waited;
  std::thread other([&] { waited = run(1); });
  const Status slow = run(0);
  other.join();
  EXPECT_TRUE(slow) << slow.error().message;
  EXPECT_TRUE(waited) << waited.error().message;
  EXPECT_TRUE(Checkpoint::Open(path));
}

TEST(RunCheckpoints, RefuseAnotherModelSeedOptimizerOrAShorterRun) {
  const std::string path = EmptyDirectory("refused");
  Scenario scenario = Changed(TinyGpt(1), [](Scenario&) {});
  RunSteps(*CompilePlan(scenario), {.checkpoints = path}, 4);
  const auto error = [&](const Scenario& s, int64_t steps) {
    std::string message;
    const Plan plan = *CompilePlan(s);
    WithRanks(plan, [&](RankSession& session, Store& store) -> Status {
      const auto begun = RunCheckpoints(session, store, {.resume_from = path}, steps).Begin();
      message = begun ? "no error" : begun.error().message;
      return Ok();
    });
    return message;
  };
  EXPECT_EQ(error(scenario, 4), "no error");
  EXPECT_NE(error(scenario, 3).find("the run ends after 3 steps, run.steps behind the warm-up, but "),
            std::string::npos);
  Scenario other = scenario;
  other.run.seed = 7;
  EXPECT_NE(error(other, 9).find("run.seed is 7"), std::string::npos);
  other = scenario;
  other.optimizer.kind = OptimizerKind::kSgd;
  EXPECT_NE(error(other, 9).find("optimizer.kind is sgd"), std::string::npos);
  // These are errors even though the checkpoint has all tensors that the other model needs.
  other = scenario;
  other.model.layers -= 1;
  EXPECT_NE(error(other, 9).find("model.layers is "), std::string::npos);
  other = scenario;
  other.model.heads *= 2;
  other.model.kv_heads *= 2;
  EXPECT_NE(error(other, 9).find("model.heads is "), std::string::npos);
  other = scenario;
  other.model.attention = AttentionKind::kFlash;
  EXPECT_EQ(error(other, 9), "no error");
}

}  // namespace
}  // namespace windtunnel
