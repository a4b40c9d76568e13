#include "runtime/checkpoint/checkpoint.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/files.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/checkpoint/saving.h"

namespace windtunnel {
namespace {

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
  EXPECT_EQ(ErrorOf(checkpoint_), file + ": is not a regular file");
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

// As when a run goes on from a checkpoint and saves the same step again.
TEST_F(Saved, ACheckpointIsReplacedOnlyByAnotherThatIsThere) {
  namespace fs = std::filesystem;
  const CheckpointDirectory directory(directory_);
  const std::string replaced = directory_ + "/.replaced_00000002";
  ASSERT_TRUE(directory.Begin(2));
  fs::create_directories(replaced + "/full");  // so that the old one cannot step aside
  EXPECT_FALSE(directory.Finish(2, 0));
  EXPECT_EQ(ErrorOf(directory_), "no error");
  fs::remove_all(replaced);
  // Interrupted between the two renames.
  fs::rename(directory.PathOf(2), replaced);
  ASSERT_TRUE(directory.Begin(4));
  EXPECT_EQ(ErrorOf(directory_), "no error");
  EXPECT_FALSE(fs::exists(replaced));
  // And behind them.
  fs::copy(directory.PathOf(2), replaced);
  ASSERT_TRUE(directory.Begin(2));
  EXPECT_FALSE(fs::exists(replaced));
  std::ofstream(directory.UnfinishedPathOf(2) + "/metadata.json") << "new";
  ASSERT_TRUE(directory.Finish(2, 0));
  EXPECT_FALSE(fs::exists(replaced));
  EXPECT_EQ(ReadSmallFile(directory.PathOf(2) + "/metadata.json", 10).value(), "new");
}

TEST(WriteFileAtomically, LeavesNothingOfWhatItCouldNotWrite) {
  const std::string directory = testing::TempDir() + "/written";
  std::filesystem::create_directories(directory + "/taken/full");  // a file cannot take its name
  EXPECT_FALSE(WriteFileAtomically(directory + "/taken", "text"));
  EXPECT_FALSE(std::filesystem::exists(directory + "/taken.tmp"));
}

}  // namespace
}  // namespace windtunnel
