#include "runtime/checkpoint/checkpoint.h"

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "runtime/checkpoint/files.h"
#include "runtime/store.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/checkpoint/saving.h"

namespace windtunnel {
namespace {

constexpr int64_t kSteps = 6;

struct Layout {
  const char* name;
  Scenario scenario;
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

Scenario Changed(Scenario s, const std::function<void(Scenario&)>& change) {
  s.model.vocab = 256;
  s.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 1e-3, .weight_decay = 0.01, .clip_norm = 1.0};
  change(s);
  return s;
}

Scenario NarrowMoments(Scenario s) {
  s.optimizer.moments = MomentsType::kBf16;
  return s;
}

Scenario Bf16(Scenario s) {
  s.precision.param = s.precision.compute = Precision::kBf16;
  return s;
}

// The first steps overflow, so that the loss scale and the number of skipped steps differ from those with
// which a job begins.
Scenario Fp16(Scenario s, Precision param = Precision::kFp16) {
  s.precision.param = param;
  s.precision.compute = Precision::kFp16;
  s.precision.loss_scale = LossScale::kDynamic;
  s.precision.init_scale = 1099511627776.0;
  s.precision.growth_interval = 2;
  return s;
}

std::vector<Layout> Layouts() {
  const auto keep = [](Scenario&) {};
  const auto kind = [](DataParallelKind kind) { return [=](Scenario& s) { s.parallel.data.kind = kind; }; };
  return {
      {"Device", Changed(TinyGpt(1), keep)},
      {"Ddp", Changed(TinyGpt(2), keep)},
      {"DdpBf16", Bf16(Changed(TinyGpt(2), keep))},
      {"Zero1", Changed(TinyGpt(2), kind(DataParallelKind::kZero1))},
      {"Zero2LateBf16", Bf16(Changed(TinyGpt(2),
                                     [](Scenario& s) {
                                       s.parallel.data.kind = DataParallelKind::kZero2;
                                       s.parallel.data.overlap_param_gather = true;
                                     }))},
      {"Fsdp1", Changed(TinyGpt(2),
                        [](Scenario& s) {
                          s.parallel.data.kind = DataParallelKind::kFsdp;
                          s.parallel.data.version = 1;
                        })},
      {"Fsdp2", Changed(TinyGpt(2), kind(DataParallelKind::kFsdp))},
      {"Zero3Of3Bf16", Bf16(Changed(TinyGpt(3),
                                    [](Scenario& s) {
                                      s.parallel.data.kind = DataParallelKind::kZero3;
                                      s.parallel.data.sync = GradientSync::kEveryMicroBatch;
                                      s.parallel.data.zero3.param_persistence_threshold = 100;
                                    }))},
      {"DdpAutocastFp16", Fp16(Changed(TinyGpt(2), keep), Precision::kFp32)},
      {"Fsdp2Fp16", Fp16(Changed(TinyGpt(2), kind(DataParallelKind::kFsdp)))},
      {"Zero1NarrowMoments", NarrowMoments(Bf16(Changed(TinyGpt(2), kind(DataParallelKind::kZero1))))},
      {"Fsdp2NarrowMoments", NarrowMoments(Changed(TinyGpt(2), kind(DataParallelKind::kFsdp)))},
      {"Fsdp2Of3", Changed(TinyGpt(3), kind(DataParallelKind::kFsdp))},
      {"Fsdp2Offload", Changed(TinyGpt(2),
                               [](Scenario& s) {
                                 s.parallel.data.kind = DataParallelKind::kFsdp;
                                 s.parallel.data.offload = Offload::kOptimizer;
                               })},
      {"Pipeline", Changed(TinyGpt(1),
                           [](Scenario& s) {
                             s.parallel.pipeline.size = s.cluster.devices_per_node = 2;
                             s.batch.accumulate = 4;
                           })},
      {"Tensor",
       Changed(TinyGpt(1), [](Scenario& s) { s.parallel.tensor.size = s.cluster.devices_per_node = 2; })},
      {"TensorSequenceFsdp", Changed(TinyGpt(2),
                                     [](Scenario& s) {
                                       s.parallel.data.kind = DataParallelKind::kFsdp;
                                       s.parallel.tensor = {.size = 2, .sequence = true};
                                       s.cluster.devices_per_node = 4;
                                     })},
      {"DataParallel", Changed(TinyGpt(2), kind(DataParallelKind::kDp))},
      // With updates that are skipped, since the loss scale overflows at first.
      {"DropoutFsdp2Fp16", Fp16(Changed(TinyGpt(2),
                                        [](Scenario& s) {
                                          s.parallel.data.kind = DataParallelKind::kFsdp;
                                          s.model.attention = AttentionKind::kFlash;
                                          s.model.dropout = 0.2;
                                        }))},
      {"DropoutDdp", Changed(TinyGpt(2), [](Scenario& s) { s.model.dropout = 0.2; })},
  };
}

class EveryLayout : public testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, EveryLayout, testing::ValuesIn(Layouts()),
                         [](const auto& info) { return info.param.name; });

// Resumes at one of the first steps, which have programs of their own, and at a steady one.
TEST_P(EveryLayout, GoesOnBitByBitAsIfItHadNotStopped) {
  const Plan plan = *CompilePlan(GetParam().scenario);
  const std::string undisturbed = EmptyDirectory(std::string("whole") + GetParam().name);
  RunSteps(plan, {.checkpoints = undisturbed, .checkpoint_every = 1, .keep = 0}, kSteps);
  for (int64_t stopped : {1, 4}) {
    const std::string resumed = EmptyDirectory(std::string("resumed") + GetParam().name);
    RunSteps(plan, {.checkpoints = resumed, .resume_from = CheckpointDirectory(undisturbed).PathOf(stopped)},
             kSteps);
    ExpectSameTensors(undisturbed, resumed);
  }
}

// A checkpoint carries the loss scale and the number of skipped steps. A job that does not scale its loss
// keeps only the number of skipped steps.
TEST(LossScaleInCheckpoints, GoesOnWhereItWas) {
  const auto keep = [](Scenario&) {};
  const Plan fp16 = *CompilePlan(Fp16(Changed(TinyGpt(2), keep)));
  const Plan fp32 = *CompilePlan(Changed(TinyGpt(1), keep));
  const std::string saved = EmptyDirectory("scaled"), through = EmptyDirectory("through");
  RunSteps(fp16, {.checkpoints = saved}, 4);
  const LossScaleState state = Checkpoint::Open(saved)->info().loss_scale;
  EXPECT_LT(state.scale, 1099511627776.0);
  EXPECT_GT(state.skipped_steps, 0);
  const std::string back = EmptyDirectory("scaled back");
  SaveWhatIsLoaded(fp16, saved, back);
  EXPECT_EQ(Checkpoint::Open(back)->info().loss_scale, state);
  SaveWhatIsLoaded(fp32, saved, through);
  EXPECT_EQ(Checkpoint::Open(through)->info().loss_scale, (LossScaleState{0, 0, state.skipped_steps}));
  RunSteps(fp32, {.checkpoints = EmptyDirectory("onward"), .resume_from = through}, 6);
}

// Loading in another layout, on another number of ranks, and back again changes no bit.
TEST_P(EveryLayout, LoadsWhatEveryOtherLayoutHasSaved) {
  const Plan ddp = *CompilePlan(Changed(TinyGpt(2), [](Scenario&) {}));
  const Plan own = *CompilePlan(GetParam().scenario);
  // Moments of fewer bits than those that it reads would be rounded.
  const Plan saves = *CompilePlan(
      Changed(TinyGpt(2), [](Scenario& s) { s.optimizer.moments = GetParam().scenario.optimizer.moments; }));
  const std::string saved = EmptyDirectory(std::string("saved") + GetParam().name);
  const std::string once = EmptyDirectory(std::string("once") + GetParam().name);
  const std::string back = EmptyDirectory(std::string("back") + GetParam().name);
  RunSteps(saves, {.checkpoints = saved}, 3);
  SaveWhatIsLoaded(own, saved, once);
  ExpectSameTensors(saved, once);
  SaveWhatIsLoaded(ddp, once, back);
  ExpectSameTensors(saved, back);
}

// The evaluated loss does not depend on the layout, except for the order in which losses are summed.
TEST_P(EveryLayout, EvaluatesLikeOneDevice) {
  Scenario scenario = GetParam().scenario;
  if (scenario.precision.compute != Precision::kFp32) GTEST_SKIP() << "computes in 16 bits";
  const std::string saved = EmptyDirectory(std::string("evaluated") + GetParam().name);
  const Plan one = *CompilePlan(Changed(TinyGpt(1), [](Scenario&) {}), {.evaluates = true});
  RunSteps(one, {.checkpoints = saved}, 3);
  const auto evaluate = [&](const Plan& plan) {
    std::vector<double> sums(static_cast<size_t>(plan.world_size));
    int64_t ranks = 0;
    std::mutex mutex;
    WithRanks(plan, [&](RankSession& session, Store& store) -> Status {
      RunCheckpoints loading(session, store, {.resume_from = saved}, 1'000);
      WT_RETURN_IF_ERROR(loading.Begin());
      const int64_t batches = 48 / session.loader().batch_samples();
      bool has_loss = false;
      for (int64_t batch = 0; batch < batches; ++batch) {
        WT_ASSIGN_OR_RETURN(const std::optional<double> loss, session.Evaluate(batch));
        if (!loss) continue;
        has_loss = true;
        sums[static_cast<size_t>(session.rank())] += *loss / static_cast<double>(batches);
      }
      WT_RETURN_IF_ERROR(session.Step());  // and training goes on
      std::lock_guard lock(mutex);
      ranks += has_loss;
      return Ok();
    });
    double sum = 0;
    for (double of_rank : sums) sum += of_rank;
    return sum / static_cast<double>(ranks);
  };
  const Plan plan = *CompilePlan(scenario, {.evaluates = true});
  const double expected = evaluate(one);
  EXPECT_GT(expected, 3.0);
  EXPECT_NEAR(evaluate(plan), expected, 1e-5 * expected);
}

// Experts are distributed over ranks, and sharded, differently from the other parameters.
std::vector<Layout> LayoutsOfExperts() {
  const auto with = [](int64_t ranks, int64_t expert_ranks, DataParallelKind kind, int version = 2,
                       int64_t shard_size = 0) {
    return Changed(TinyLlama(ranks), [&](Scenario& s) {
      s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 2};
      s.parallel.expert.size = expert_ranks;
      s.parallel.data.kind = kind;
      s.parallel.data.version = version;
      s.parallel.data.shard_size = shard_size;
      if (shard_size > 0) s.parallel.data.sharding = Sharding::kHybridShard;
    });
  };
  return {{"Ddp", with(2, 1, DataParallelKind::kDdp)},
          {"Fsdp2", with(4, 2, DataParallelKind::kFsdp)},
          {"Fsdp1", with(4, 2, DataParallelKind::kFsdp, 1)},
          {"Fsdp2Whole", with(2, 2, DataParallelKind::kFsdp)},
          {"HybridHalf", with(4, 4, DataParallelKind::kFsdp, 2, 2)},
          {"Zero1InShards", with(4, 2, DataParallelKind::kZero1, 2, 2)}};
}

TEST(CheckpointOfExperts, GoesOnBitByBitAndLoadsInEveryOtherLayout) {
  const std::vector<Layout> layouts = LayoutsOfExperts();
  const Plan first = *CompilePlan(layouts[1].scenario);
  const std::string saved = EmptyDirectory("experts");
  RunSteps(first, {.checkpoints = saved, .checkpoint_every = 2, .keep = 0}, 4);
  const std::string resumed = EmptyDirectory("experts_resumed");
  RunSteps(first, {.checkpoints = resumed, .resume_from = CheckpointDirectory(saved).PathOf(2)}, 4);
  ExpectSameTensors(saved, resumed);
  std::string from = saved;
  for (const Layout& layout : layouts) {  // each loads what the one before it has saved
    SCOPED_TRACE(layout.name);
    const std::string to = EmptyDirectory(std::string("experts_") + layout.name);
    SaveWhatIsLoaded(*CompilePlan(layout.scenario), from, to);
    ExpectSameTensors(saved, to);
    from = to;
  }
}

class Saved : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = EmptyDirectory("damage");
    const Plan plan = *CompilePlan(
        Changed(TinyGpt(2), [](Scenario& s) { s.parallel.data.kind = DataParallelKind::kFsdp; }));
    RunSteps(plan, {.checkpoints = directory_}, 2);
    checkpoint_ = *CheckpointDirectory(directory_).Latest();
  }
  std::string ErrorOf(const std::string& path) {
    const auto opened = Checkpoint::Open(path);
    if (!opened) return opened.error().message;
    const Status checked = opened->Check();
    return checked ? "no error" : checked.error().message;
  }
  void Flip(const std::string& file, int64_t from_end) {
    std::fstream stream(checkpoint_ + "/" + file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(-from_end, std::ios::end);
    const char byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(-from_end, std::ios::end);
    stream.put(byte);
  }
  std::string directory_, checkpoint_;
};

// As "checkpoint show DIR/*" has it.
TEST_F(Saved, TheFileThatNamesTheLatestStandsForIt) {
  EXPECT_EQ(Checkpoint::Open(directory_ + "/latest")->path(), Checkpoint::Open(directory_)->path());
}

TEST_F(Saved, ADamagedFileIsAnErrorThatNamesFileAndTensor) {
  EXPECT_EQ(ErrorOf(checkpoint_), "no error");
  Flip("rank_00001.safetensors", 3);
  const std::string error = ErrorOf(checkpoint_);
  EXPECT_NE(error.find("rank_00001.safetensors: tensor 'optimizer.exp_avg_sq."), std::string::npos) << error;
  EXPECT_NE(error.find("is damaged"), std::string::npos) << error;
}

TEST_F(Saved, SoAreAFileThatIsCutOffOneThatIsMissingAndDamagedMetadata) {
  const std::string file = checkpoint_ + "/rank_00000.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  EXPECT_NE(ErrorOf(checkpoint_).find(file), std::string::npos) << ErrorOf(checkpoint_);
  std::filesystem::remove(file);
  EXPECT_NE(ErrorOf(checkpoint_).find(file), std::string::npos) << ErrorOf(checkpoint_);
  Flip("metadata.json", 40);
  EXPECT_NE(ErrorOf(checkpoint_).find("metadata.json: is damaged"), std::string::npos)
      << ErrorOf(checkpoint_);
}

TEST_F(Saved, MetadataThatNestTooDeepAreDamaged) {
  std::ofstream(checkpoint_ + "/metadata.json")
      << R"({"a":)" << std::string(300'000, '[') << std::string(300'000, ']') << "}";
  EXPECT_NE(ErrorOf(checkpoint_).find("metadata.json: is damaged"), std::string::npos);
}

// Only what this program has named itself.
TEST_F(Saved, ADirectoryWithAnotherSpellingOfItsStepIsNoCheckpointOfTheDirectory) {
  const std::vector<int64_t> steps = CheckpointDirectory(directory_).Steps();
  std::filesystem::copy(checkpoint_, directory_ + "/step_99", std::filesystem::copy_options::recursive);
  EXPECT_EQ(CheckpointDirectory(directory_).Steps(), steps);
}

// A reader of a pipe to which nobody writes would wait for ever.
TEST_F(Saved, APipeIsNoFile) {
  const std::string file = checkpoint_ + "/metadata.json";
  std::filesystem::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(ErrorOf(checkpoint_), file + ": is no regular file");
}

// Whatever one byte becomes, the result is either an error or the very same values (a change in the white
// space between JSON's tokens).
TEST_F(Saved, NoByteCanChangeUnnoticed) {
  const auto original = Checkpoint::Open(checkpoint_);
  ASSERT_TRUE(original);
  const std::vector<float> table = *original->Read("model.wte.weight");
  for (const char* file : {"metadata.json", "rank_00000.safetensors"}) {
    const int64_t size = static_cast<int64_t>(std::filesystem::file_size(checkpoint_ + "/" + file));
    for (int64_t i = 0; i < 60; ++i) {
      const int64_t from_end = 1 + (i * 7919) % size;
      Flip(file, from_end);
      const auto opened = Checkpoint::Open(checkpoint_);
      if (opened && opened->Check()) {
        EXPECT_EQ(opened->info().step, original->info().step);
        EXPECT_EQ(opened->Tensors(), original->Tensors());
        EXPECT_EQ(*opened->Read("model.wte.weight"), table);
      }
      Flip(file, from_end);
    }
  }
}

// One piece too far to the front, which leaves the last element out: the number of elements is right.
TEST_F(Saved, PiecesThatOverlapAndLeaveAHoleAreAnError) {
  const std::string path = checkpoint_ + "/metadata.json";
  std::ifstream saved(path);
  nlohmann::json metadata = nlohmann::json::parse(saved);
  std::string split;
  for (const auto& [name, tensor] : metadata.at("tensors").items())
    if (tensor.at("pieces").size() == 2) split = name;
  ASSERT_NE(split, "");
  nlohmann::json& first = metadata["tensors"][split]["pieces"][1]["runs"][0][0];
  ASSERT_GT(first.get<int64_t>(), 0);
  first = first.get<int64_t>() - 1;
  std::ofstream(path) << SealMetadata(metadata.dump()).value();
  const std::string error = ErrorOf(checkpoint_);
  EXPECT_NE(error.find("the pieces of tensor '" + split + "' overlap or leave a hole"), std::string::npos)
      << error;
}

// A rank reads what it holds, however the job that saved it was split: with equal ranks only its own part.
TEST_F(Saved, RanksReadTheirPartsAlone) {
  const auto checkpoint = Checkpoint::Open(checkpoint_);
  ASSERT_TRUE(checkpoint);
  const auto load = [&](const Plan& plan, int rank) {
    std::map<std::string, std::vector<float>> loaded;
    const Status status = LoadPieces(
        *checkpoint, plan, rank, true, [&, i = 0](const Slice&, std::span<const float> values) mutable {
          loaded[PiecesOf(plan, rank, true)[static_cast<size_t>(i++)].tensor].assign(values.begin(),
                                                                                     values.end());
        });
    EXPECT_TRUE(status) << status.error().message;
    return loaded;
  };
  // Three ranks' parts lie across those of the two that saved; tensor ranks' have many runs.
  for (const Plan& plan :
       {*CompilePlan(
            Changed(TinyGpt(3), [](Scenario& s) { s.parallel.data.kind = DataParallelKind::kFsdp; })),
        *CompilePlan(Changed(TinyGpt(1), [](Scenario& s) {
          s.parallel.tensor.size = s.cluster.devices_per_node = 2;
          s.parallel.data.kind = DataParallelKind::kNone;
        }))}) {
    for (int rank = 0; rank < plan.world_size; ++rank) {
      const auto loaded = load(plan, rank);
      for (const TensorPiece& piece : PiecesOf(plan, rank, true)) {
        const std::vector<float> whole = checkpoint->Read(piece.tensor).value();
        std::vector<float> expected;
        ForEachRun(piece.runs, [&](int64_t, int64_t first, int64_t elements) {
          expected.insert(expected.end(), whole.begin() + first, whole.begin() + first + elements);
        });
        EXPECT_EQ(loaded.at(piece.tensor), expected) << piece.tensor;
      }
    }
  }
  Flip("rank_00001.safetensors", 3);
  const Plan same =
      *CompilePlan(Changed(TinyGpt(2), [](Scenario& s) { s.parallel.data.kind = DataParallelKind::kFsdp; }));
  const auto ignore = [](const Slice&, std::span<const float>) {};
  const auto damaged = Checkpoint::Open(checkpoint_);
  EXPECT_TRUE(LoadPieces(*damaged, same, 0, true, ignore));
  EXPECT_FALSE(LoadPieces(*damaged, same, 1, true, ignore));
}

TEST_F(Saved, AnotherModelIsAnErrorThatNamesTheTensorAndBothShapes) {
  Scenario wider = Changed(TinyGpt(1), [](Scenario& s) { s.model.ffn = 64; });
  const Plan plan = *CompilePlan(wider);
  const auto checkpoint = Checkpoint::Open(checkpoint_);
  const Status loaded = LoadPieces(*checkpoint, plan, 0, true, [](const Slice&, std::span<const float>) {});
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().kind, ErrorKind::kInvalidInput);
  EXPECT_NE(
      loaded.error().message.find("tensor 'model.blocks.0.mlp.up.weight' is [128 x 32], expected [64 x 32]"),
      std::string::npos)
      << loaded.error().message;
}

TEST_F(Saved, LatestIsTheNewestThatIsComplete) {
  const CheckpointDirectory directory(directory_);
  std::filesystem::create_directories(directory.PathOf(9));  // without metadata
  std::filesystem::create_directories(directory.UnfinishedPathOf(9));
  EXPECT_EQ(directory.Latest(), directory.PathOf(2));
  EXPECT_EQ(directory.Steps(), std::vector<int64_t>{2});
  std::filesystem::remove(directory_ + "/latest");
  EXPECT_EQ(directory.Latest(), directory.PathOf(2));
  EXPECT_EQ(CheckpointDirectory(directory_ + "/nothing").Latest(), std::nullopt);
  // A rank abandons only its own files; the last rank to do so removes the directory.
  ASSERT_TRUE(directory.Begin(9));
  for (const char* file : {"rank_00000.safetensors", "rank_00001.safetensors", "rank_00001.pieces.json"})
    std::ofstream(directory.UnfinishedPathOf(9) + "/" + file) << "half";
  directory.Abandon(9, 1);
  EXPECT_TRUE(std::filesystem::exists(directory.UnfinishedPathOf(9) + "/rank_00000.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(directory.UnfinishedPathOf(9) + "/rank_00001.pieces.json"));
  std::ofstream(directory.UnfinishedPathOf(9) + "/metadata.json") << "half";
  directory.Abandon(9, 0);
  EXPECT_FALSE(std::filesystem::exists(directory.UnfinishedPathOf(9)));
}

TEST(WriteFileAtomically, LeavesNothingOfWhatItCouldNotWrite) {
  const std::string directory = testing::TempDir() + "/written";
  std::filesystem::create_directories(directory + "/taken/full");  // a file cannot take its name
  EXPECT_FALSE(WriteFileAtomically(directory + "/taken", "text"));
  EXPECT_FALSE(std::filesystem::exists(directory + "/taken.tmp"));
}

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

// Notes the keys that are set in another store.
class NotingStore : public Store {
 public:
  explicit NotingStore(Store& store) : store_(store) {}
  const std::set<std::string>& keys() const { return keys_; }

  Status Set(const std::string& key, const std::string& value) override {
    keys_.insert(key);
    return store_.Set(key, value);
  }
  Result<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_.Get(key, timeout);
  }
  Result<int64_t> Add(const std::string& key, int64_t amount) override {
    keys_.insert(key);
    return store_.Add(key, amount);
  }
  Status WaitForCount(const std::string& key, int64_t count, std::chrono::milliseconds timeout) override {
    return store_.WaitForCount(key, count, timeout);
  }
  Result<bool> Has(const std::string& key) override { return store_.Has(key); }
  Status Bequeath(const std::string& key, const std::string& value) override {
    keys_.insert(key);
    return store_.Bequeath(key, value);
  }

 private:
  Store& store_;
  std::set<std::string> keys_;
};

// The store keeps every key until the run ends.
TEST(RunCheckpoints, SetNoFurtherKeysAfterTheFirstSave) {
  const std::string path = EmptyDirectory("keys");
  WithRanks(CompilePlan(TinyGpt(2)).value(), [&](RankSession& session, Store& store) -> Status {
    NotingStore noting(store);
    const RunOptions options{.checkpoints = path, .checkpoint_every = 1};
    RunCheckpoints checkpoints(session, noting, options, /*steps=*/3);
    WT_RETURN_IF_ERROR(checkpoints.Begin());
    std::set<std::string> after_first;
    for (int step = 0; step < 3; ++step) {
      WT_RETURN_IF_ERROR(session.Step());
      WT_RETURN_IF_ERROR(checkpoints.AfterStep());
      if (step == 0) after_first = noting.keys();
    }
    EXPECT_EQ(checkpoints.saves().size(), 3u);
    EXPECT_EQ(noting.keys(), after_first);
    return Ok();
  });
}

// Lets a rank go on from a meeting only after something else.
class LateStore : public NotingStore {
 public:
  LateStore(Store& store, const std::atomic<bool>& go) : NotingStore(store), go_(go) {}
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
  const std::string path = EmptyDirectory("diverged");
  const Plan plan = *CompilePlan(Changed(TinyGpt(2), [](Scenario& it) { it.optimizer.lr = 1e30; }));
  WithRanks(plan, [&](RankSession& session, Store& store) -> Status {
    LateStore late(store, has_failed);
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
  EXPECT_NE(error(scenario, 3).find("run.warmup + run.steps are 3"), std::string::npos);
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

// Two replicas with four sequences each see the same samples as one with eight, also from the middle of an
// epoch on.
TEST(BatchLoader, GoesOnWithTheSameSamplesOnAnotherNumberOfReplicas) {
  Scenario scenario = Changed(TinyGpt(1), [](Scenario& s) { s.batch.micro = 8; });
  const auto ids_of = [&](int64_t micro, int64_t replicas, bool resumed) {
    Scenario s = scenario;
    s.batch.micro = micro;
    s.parallel.data.size = replicas;
    std::vector<std::vector<int32_t>> sequences;
    for (int64_t replica = 0; replica < replicas; ++replica) {
      auto loader = BatchLoader::Make(s, replica, replicas);
      EXPECT_TRUE(loader) << loader.error().message;
      if (resumed) (*loader)->GoOn(5, 40);
      EXPECT_EQ((*loader)->SamplesSeen(7), 56);
      std::vector<int32_t> ids(static_cast<size_t>(micro * 16)), targets(ids.size());
      const TensorRef writes[] = {{ids.data(), micro * 16}, {targets.data(), micro * 16}};
      (*loader)->Load(LoadBatch{0, micro, 16, 0}, 6, 0, writes);
      for (int64_t row = 0; row < micro; ++row)
        sequences.emplace_back(ids.begin() + row * 16, ids.begin() + (row + 1) * 16);
    }
    std::sort(sequences.begin(), sequences.end());
    return sequences;
  };
  EXPECT_EQ(ids_of(8, 1, false), ids_of(4, 2, true));
  EXPECT_EQ(ids_of(8, 1, false), ids_of(8, 1, true));
}

}  // namespace
}  // namespace windtunnel
