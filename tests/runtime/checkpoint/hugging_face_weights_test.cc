#include "runtime/checkpoint/hugging_face_weights.h"

#include <cmath>
#include <fstream>
#include <map>

#include "scenarios/checks.h"
#include "scenarios/load.h"
#include "scenarios/words.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/checkpoint/saving.h"

namespace windtunnel {
namespace {

Scenario Gpt2() {
  Scenario s = TinyGpt(2);
  s.model.tie_embeddings = true;
  return s;
}

Scenario Mixtral() {
  Scenario s = TinyLlama(2);
  s.name = "tiny-mixtral";
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 2};
  return s;
}

Scenario Qwen2() {
  Scenario s = TinyLlama(2);
  s.name = "tiny-qwen2";
  s.model.qkv_bias = true;
  return s;
}

Scenario Mistral() {
  Scenario s = TinyLlama(2);
  s.name = "tiny-mistral";
  s.model.sliding_window = SlidingWindowSpec{.tokens = 3};
  return s;
}

Scenario Qwen3WithAWindow() {
  Scenario s = TinyQwen3(2);
  s.name = "tiny-qwen3-window";
  s.model.sliding_window = SlidingWindowSpec{.tokens = 3};
  return s;
}

Scenario Qwen3Moe() {
  Scenario s = TinyQwen3(2);
  s.name = "tiny-qwen3-moe";
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 2};
  return s;
}

Scenario Olmo3() {
  Scenario s = TinyOlmo(2);
  s.name = "tiny-olmo3";
  s.model.layers = 4;
  s.model.sliding_window = SlidingWindowSpec{.tokens = 3, .full_every = 2};
  return s;
}

// Trains, so that no two tensors are alike, and exports the weights.
std::string Exported(const Scenario& scenario, const std::string& name) {
  const std::string saved = EmptyDirectory(name + "_saved"), exported = EmptyDirectory(name + "_exported");
  RunSteps(*CompilePlan(scenario), {.checkpoints = saved}, 2);
  const auto checkpoint = Checkpoint::Open(saved);
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  const Status status = ExportHuggingFace(*checkpoint, exported);
  EXPECT_TRUE(status) << status.error().message;
  return exported;
}

std::string NameOfModel(const testing::TestParamInfo<Scenario>& info) {
  static constexpr const char* kNames[] = {"Gpt2",  "UntiedGpt2", "Llama",   "Mixtral",          "Qwen2",
                                           "Qwen3", "Qwen3Moe",   "Mistral", "Qwen3WithAWindow", "Olmo2",
                                           "Olmo3"};
  return kNames[info.index];
}

class EveryArchitecture : public testing::TestWithParam<Scenario> {};
INSTANTIATE_TEST_SUITE_P(Models, EveryArchitecture,
                         testing::Values(Gpt2(), TinyGpt(2), TinyLlama(2), Mixtral(), Qwen2(), TinyQwen3(2),
                                         Qwen3Moe(), Mistral(), Qwen3WithAWindow(), TinyOlmo(2), Olmo3()),
                         NameOfModel);

TEST_P(EveryArchitecture, ComesBackBitByBitInAnyLayout) {
  const std::string name = std::to_string(GetParam().model.tie_embeddings) + GetParam().name;
  const std::string exported = Exported(GetParam(), name);
  const auto checkpoint = Checkpoint::Open(testing::TempDir() + "/" + name + "_saved");
  Scenario sharded = GetParam();
  sharded.parallel.data.kind = DataParallelKind::kFsdp;
  const Plan plan = *CompilePlan(sharded);
  const std::string again = EmptyDirectory(name + "_again");
  WithRanks(plan, [&](RankSession& session, Store& store) -> Status {
    RunOptions options{.import_weights = exported};
    WT_RETURN_IF_ERROR(RunCheckpoints(session, store, options, 10).Begin());
    options.checkpoints = again;
    return RunCheckpoints(session, store, options, /*steps=*/0).AfterStep();
  });
  const auto imported = Checkpoint::Open(again);
  ASSERT_TRUE(imported) << imported.error().message;
  for (const std::string& tensor : checkpoint->Tensors()) {
    if (!tensor.starts_with("model.")) continue;
    EXPECT_EQ(*checkpoint->Read(tensor), *imported->Read(tensor)) << tensor;
  }
}

TEST_P(EveryArchitecture, HasAConfigurationThatGivesTheSameModel) {
  const std::string name = "config" + std::to_string(GetParam().model.tie_embeddings) + GetParam().name;
  const std::string exported = Exported(GetParam(), name);
  const auto scenario =
      ParseScenario("model: {config: config.json}\nbatch: {micro: 2}\n", "s.yaml", exported, {});
  ASSERT_TRUE(scenario) << scenario.error().message;
  ModelSpec model = scenario->model;
  model.attention = GetParam().model.attention;  // not part of the configuration
  model.preset = GetParam().model.preset;
  if (model.experts) model.experts->capacity_factor = 2;
  EXPECT_EQ(model, GetParam().model);
}

// Of a batch that is not trained on, after what `options` load; `steps` have been done.
double EvaluatedLoss(const Scenario& scenario, const RunOptions& options, int64_t steps) {
  double loss = 0;
  WithRanks(*CompilePlan(scenario, {.evaluates = true}), [&](RankSession& session, Store& store) -> Status {
    WT_RETURN_IF_ERROR(RunCheckpoints(session, store, options, steps + 1).Begin());
    WT_ASSIGN_OR_RETURN([[maybe_unused]] auto timeline,
                        session.executor().Run(session.executor().role().evaluate, 0));
    WT_ASSIGN_OR_RETURN(const std::vector<double> losses, session.executor().Losses());
    if (session.rank() == 0) loss = losses.front();
    return Ok();
  });
  return loss;
}

// Adapters are trained from another program's weights, and merged into what is exported: the model without
// adapters then computes what the trained one does.
TEST(HuggingFaceWeights, HaveAdaptersMergedIntoThem) {
  for (const Scenario& plain : {TinyLlama(2), Gpt2()}) {
    const std::string weights = Exported(plain, "plain" + plain.name);
    Scenario adapted = plain;
    adapted.model.lora = LoraSpec{.rank = 2, .alpha = 8};
    adapted.optimizer.lr = 0.05;
    const std::string saved = EmptyDirectory("adapted_saved"), merged = EmptyDirectory("adapted_merged");
    RunOptions options{.checkpoints = saved, .import_weights = weights};
    RunSteps(*CompilePlan(adapted), options, 3);
    const auto checkpoint = Checkpoint::Open(saved);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    ASSERT_TRUE(ExportHuggingFace(*checkpoint, merged));
    RunOptions resumed, imported{.import_weights = merged}, before{.import_weights = weights};
    resumed.resume_from = saved;
    const double trained = EvaluatedLoss(adapted, resumed, 3);
    EXPECT_NEAR(trained, EvaluatedLoss(plain, imported, 3), 1e-6 * trained);
    EXPECT_GT(std::abs(trained - EvaluatedLoss(plain, before, 3)), 1e-3);
  }
}

// Frozen weights have the model's type between steps, without masters.
TEST(HuggingFaceWeights, ComeBackFromFrozenWeightsOf16Bits) {
  const std::string weights = Exported(TinyLlama(2), "fp32");
  const std::string original = testing::TempDir() + "/fp32_saved";
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    for (const DataParallelKind kind :
         {DataParallelKind::kDdp, DataParallelKind::kZero1, DataParallelKind::kFsdp}) {
      Scenario frozen = TinyLlama(2);
      frozen.model.lora = LoraSpec{};
      frozen.precision.param = frozen.precision.compute = precision;
      frozen.parallel.data.kind = kind;
      const std::string saved = EmptyDirectory("frozen_saved"), again = EmptyDirectory("frozen_again");
      WithRanks(*CompilePlan(frozen), [&](RankSession& session, Store& store) -> Status {
        RunOptions options{.import_weights = weights};
        WT_RETURN_IF_ERROR(RunCheckpoints(session, store, options, 10).Begin());
        options.checkpoints = saved;
        return RunCheckpoints(session, store, options, /*steps=*/0).AfterStep();
      });
      // On one rank, whose buffers lie elsewhere.
      Scenario alone = frozen;
      alone.parallel.data = {};
      alone.cluster.devices_per_node = 1;
      alone.batch.micro *= 2;
      SaveWhatIsLoaded(*CompilePlan(alone), saved, again);
      const auto before = Checkpoint::Open(original), after = Checkpoint::Open(again);
      ASSERT_TRUE(before && after);
      const double tolerance = precision == Precision::kBf16 ? 4e-3 : 1e-3;
      for (const std::string& tensor : before->Tensors()) {
        if (!tensor.starts_with("model.")) continue;
        const std::vector<float> from = *before->Read(tensor), to = *after->Read(tensor);
        for (size_t i = 0; i < from.size(); ++i)
          ASSERT_NEAR(from[i], to[i], tolerance * std::abs(from[i]) + 1e-6) << tensor << " " << i;
      }
    }
  }
}

// What ranks have whole besides, as ZeRO-3's small parameters, follows, whether it is trained or frozen.
TEST(HuggingFaceWeights, AreWhatEveryStrategyComputesWith) {
  Scenario trained = TinyLlama(2);
  trained.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 0.1};  // norms are far from their first values
  const RunOptions import{.import_weights = Exported(trained, "far")};
  std::map<DataParallelKind, int> compared;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const bool adapts : {false, true}) {
      Scenario s = TinyLlama(2);
      if (adapts) s.model.lora = LoraSpec{.rank = 2};
      s.precision.param = s.precision.compute = precision;
      s.parallel.data.kind = DataParallelKind::kDdp;
      const double loss = EvaluatedLoss(s, import, 0);
      for (const DataParallelKind kind : {DataParallelKind::kZero1, DataParallelKind::kZero2,
                                          DataParallelKind::kZero3, DataParallelKind::kFsdp}) {
        for (const Offload offload : {Offload::kNone, Offload::kOptimizer, Offload::kParam}) {
          s.parallel.data.kind = kind;
          s.parallel.data.sync = kind == DataParallelKind::kZero3 ? GradientSync::kEveryMicroBatch
                                                                  : GradientSync::kLastMicroBatch;
          s.parallel.data.offload = offload;
          s.parallel.data.zero3.param_persistence_threshold = 40;  // norms
          if (!CheckScenario(s)) continue;
          ++compared[kind];
          EXPECT_NEAR(EvaluatedLoss(s, import, 0), loss, 1e-6 * loss)
              << WordOf(kind) << " " << WordOf(offload) << " " << WordOf(precision) << " " << adapts;
        }
      }
    }
  }
  EXPECT_EQ(compared[DataParallelKind::kZero3], 12);
  EXPECT_EQ(compared[DataParallelKind::kZero1], 8);  // nothing offloads parameters
}

TEST(HuggingFaceWeights, OfGpt2AreTransposedAndOfLlamaApart) {
  const auto gpt2 = SafetensorsFile::Open(Exported(Gpt2(), "names_gpt2") + "/model.safetensors");
  ASSERT_TRUE(gpt2) << gpt2.error().message;
  EXPECT_EQ(gpt2->Find("transformer.h.1.attn.c_attn.weight")->shape, (std::vector<int64_t>{32, 96}));
  EXPECT_EQ(gpt2->Find("transformer.h.1.attn.c_attn.bias")->shape, (std::vector<int64_t>{96}));
  EXPECT_EQ(gpt2->Find("transformer.h.0.mlp.c_proj.weight")->shape, (std::vector<int64_t>{128, 32}));
  EXPECT_EQ(gpt2->Find("lm_head.weight"), nullptr);  // tied
  const auto checkpoint = Checkpoint::Open(testing::TempDir() + "/names_gpt2_saved");
  const std::vector<float> ours = *checkpoint->Read("model.blocks.1.attn.qkv.weight");
  const std::vector<float> theirs = *gpt2->Read("transformer.h.1.attn.c_attn.weight");
  EXPECT_EQ(theirs[3 * 96 + 50], ours[50 * 32 + 3]);

  const auto llama = SafetensorsFile::Open(Exported(TinyLlama(2), "names_llama") + "/model.safetensors");
  ASSERT_TRUE(llama) << llama.error().message;
  EXPECT_EQ(llama->Find("model.layers.0.self_attn.q_proj.weight")->shape, (std::vector<int64_t>{32, 32}));
  EXPECT_EQ(llama->Find("model.layers.0.self_attn.k_proj.weight")->shape, (std::vector<int64_t>{16, 32}));
  EXPECT_EQ(llama->Find("model.layers.1.mlp.up_proj.weight")->shape, (std::vector<int64_t>{128, 32}));
  EXPECT_EQ(llama->Find("lm_head.weight")->shape, (std::vector<int64_t>{64, 32}));
  EXPECT_EQ(llama->tensors().size(), 3u + 2 * 9);
}

TEST(HuggingFaceWeights, OfMixtralHaveAnExpertsMatricesApart) {
  const auto mixtral = SafetensorsFile::Open(Exported(Mixtral(), "names_mixtral") + "/model.safetensors");
  ASSERT_TRUE(mixtral) << mixtral.error().message;
  const std::string moe = "model.layers.1.block_sparse_moe.";
  EXPECT_EQ(mixtral->Find(moe + "gate.weight")->shape, (std::vector<int64_t>{4, 32}));
  EXPECT_EQ(mixtral->Find(moe + "experts.3.w1.weight")->shape, (std::vector<int64_t>{128, 32}));
  EXPECT_EQ(mixtral->Find(moe + "experts.3.w2.weight")->shape, (std::vector<int64_t>{32, 128}));
  EXPECT_EQ(mixtral->Find(moe + "experts.3.w3.weight")->shape, (std::vector<int64_t>{128, 32}));
  EXPECT_EQ(mixtral->tensors().size(), 3u + 2 * (6 + 1 + 3 * 4));
  const auto checkpoint = Checkpoint::Open(testing::TempDir() + "/names_mixtral_saved");
  const std::vector<float> up = *checkpoint->Read("model.blocks.1.mlp.experts.up.weight");
  const std::vector<float> down = *checkpoint->Read("model.blocks.1.mlp.experts.down.weight");
  const auto theirs = [&](const char* name) { return *mixtral->Read(moe + "experts.2." + name + ".weight"); };
  EXPECT_EQ(theirs("w1")[5], up[2 * 256 * 32 + 5]);
  EXPECT_EQ(theirs("w3")[5], up[(2 * 256 + 128) * 32 + 5]);
  EXPECT_EQ(theirs("w2")[5], down[2 * 32 * 128 + 5]);
}

// Counts how often each tensor is read.
class CountingCheckpoint : public Checkpoint {
 public:
  explicit CountingCheckpoint(Checkpoint checkpoint) : Checkpoint(std::move(checkpoint)) {}
  Result<std::vector<float>> Read(const std::string& tensor) const override {
    ++reads_[tensor];
    return Checkpoint::Read(tensor);
  }
  const std::map<std::string, int>& reads() const { return reads_; }

 private:
  mutable std::map<std::string, int> reads_;
};

// A tensor of all experts has two parts for each of them.
TEST(HuggingFaceWeights, AreWrittenWithOneReadOfEachTensor) {
  Exported(Mixtral(), "read_once");
  auto saved = Checkpoint::Open(testing::TempDir() + "/read_once_saved");
  ASSERT_TRUE(saved) << saved.error().message;
  const CountingCheckpoint checkpoint(*std::move(saved));
  ASSERT_TRUE(ExportHuggingFace(checkpoint, EmptyDirectory("read_once_again")));
  EXPECT_EQ(checkpoint.reads().count("model.blocks.1.mlp.experts.up.weight"), 1u);
  for (const auto& [tensor, reads] : checkpoint.reads()) EXPECT_EQ(reads, 1) << tensor;
}

TEST(HuggingFaceWeights, OfQwenHaveBiasesOrNormsOfHeads) {
  const auto qwen2 = SafetensorsFile::Open(Exported(Qwen2(), "names_qwen2") + "/model.safetensors");
  ASSERT_TRUE(qwen2) << qwen2.error().message;
  EXPECT_EQ(qwen2->Find("model.layers.1.self_attn.k_proj.bias")->shape, (std::vector<int64_t>{16}));
  EXPECT_EQ(qwen2->tensors().size(), 3u + 2 * 12);

  const auto qwen3 = SafetensorsFile::Open(Exported(Qwen3Moe(), "names_qwen3") + "/model.safetensors");
  ASSERT_TRUE(qwen3) << qwen3.error().message;
  EXPECT_EQ(qwen3->Find("model.layers.0.self_attn.q_proj.weight")->shape, (std::vector<int64_t>{48, 32}));
  EXPECT_EQ(qwen3->Find("model.layers.0.self_attn.o_proj.weight")->shape, (std::vector<int64_t>{32, 48}));
  EXPECT_EQ(qwen3->Find("model.layers.0.self_attn.k_norm.weight")->shape, (std::vector<int64_t>{12}));
  EXPECT_EQ(qwen3->Find("model.layers.1.mlp.experts.3.up_proj.weight")->shape,
            (std::vector<int64_t>{128, 32}));
  EXPECT_EQ(qwen3->tensors().size(), 3u + 2 * (6 + 2 + 1 + 3 * 4));
}

TEST(HuggingFaceWeights, OfOtherMixturesOfExpertsHaveNoNames) {
  const auto error_of = [](const std::function<void(ModelSpec&)>& change) {
    ModelSpec model = Mixtral().model;
    change(model);
    const auto opened = OpenHuggingFaceWeights("nowhere", model);
    return opened ? "" : opened.error().message;
  };
  EXPECT_NE(error_of([](ModelSpec& m) { m.bias = true; }).find("model.bias is true"), std::string::npos);
  EXPECT_NE(error_of([](ModelSpec& m) { m.experts->top_k = 1; }).find("model.experts.top_k is 1"),
            std::string::npos);
  EXPECT_NE(
      error_of([](ModelSpec& m) { m.experts->shared_ffn = 64; }).find("model.experts.shared_ffn is given"),
      std::string::npos);
  EXPECT_NE(error_of([](ModelSpec& m) {
              m.experts->groups = 2, m.experts->top_k_groups = 1;
            }).find("model.experts.top_k_groups"),
            std::string::npos);
  EXPECT_NE(error_of([](ModelSpec& m) { m.norm = NormKind::kLayerNorm; }).find("expected model.norm rmsnorm"),
            std::string::npos);
}

// A model with half of the layers is another model, so left-over weights are an error.
TEST(HuggingFaceWeights, ThatTheModelHasNoPlaceForAreRefused) {
  const std::string exported = Exported(TinyLlama(2), "left_over");
  ModelSpec shallow = TinyLlama(2).model;
  shallow.layers = 1;
  const auto opened = OpenHuggingFaceWeights(exported, shallow);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find(
                "tensor 'model.layers.1.input_layernorm.weight' is none of the scenario's model"),
            std::string::npos)
      << opened.error().message;
}

TEST(HuggingFaceWeights, OfAModelThatComputesOtherwiseAreRefused) {
  const std::string exported = Exported(TinyLlama(2), "otherwise");
  const auto error_of = [&](const std::string& config) {
    std::ofstream(exported + "/config.json") << config;
    const auto opened = OpenHuggingFaceWeights(exported, TinyLlama(2).model);
    return opened ? "" : opened.error().message;
  };
  EXPECT_EQ(error_of(R"({"rope_theta": 10000.0, "rms_norm_eps": 1e-05, "rope_scaling": null})"), "");
  EXPECT_EQ(error_of(R"({"rope_theta": 500000.0})"),
            exported + "/config.json: rope_theta is 500000, expected 10000, as model.rope_theta");
  const auto of_file = OpenHuggingFaceWeights(exported + "/model.safetensors", TinyLlama(2).model);
  ASSERT_FALSE(of_file);
  EXPECT_EQ(of_file.error().message,
            exported + "/config.json: rope_theta is 500000, expected 10000, as model.rope_theta");
  EXPECT_NE(error_of(R"({"rope_parameters": {"rope_theta": 1e6}})").find("rope_theta is 1e+06"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"rms_norm_eps": 1e-06})").find("rms_norm_eps is 1e-06, expected 1e-05"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"rope_scaling": {"rope_type": "llama3"}})").find("rope_scaling is"),
            std::string::npos);
  EXPECT_NE(
      error_of(R"({"model_type": "gemma", "rms_norm_eps": 1e-05})")
          .find("model_type is 'gemma', whose weights would compute something else here: norms add one"),
      std::string::npos);
  EXPECT_NE(error_of("[").find("is not a JSON object"), std::string::npos);
  EXPECT_NE(error_of(std::string(300'000, '[') + std::string(300'000, ']')).find("is not a JSON object"),
            std::string::npos);
}

// Shapes do not show everything that a configuration says.
TEST(HuggingFaceWeights, OfAModelThatIsBuiltOtherwiseAreRefused) {
  const auto error_of = [](const Scenario& scenario, auto change) {
    const std::string exported = Exported(scenario, "built_otherwise");
    ModelSpec model = scenario.model;
    change(model);
    const auto opened = OpenHuggingFaceWeights(exported, model);
    const std::string place = exported + "/config.json: the model has model.";
    if (opened) return std::string("none");
    return opened.error().message.starts_with(place) ? opened.error().message.substr(place.size())
                                                     : opened.error().message;
  };
  EXPECT_EQ(error_of(Gpt2(), [](ModelSpec&) {}), "none");
  EXPECT_EQ(error_of(Gpt2(), [](ModelSpec& m) { m.heads = m.kv_heads = 4, m.head_dim = 8; }),
            "heads 2, expected 4, as the scenario's");
  EXPECT_EQ(error_of(Gpt2(), [](ModelSpec& m) { m.activation = ActivationKind::kRelu; }),
            "activation gelu, expected relu, as the scenario's");
  EXPECT_EQ(error_of(Mistral(), [](ModelSpec& m) { m.sliding_window.reset(); }),
            "sliding_window.tokens 3, expected 0, as the scenario's");
  EXPECT_EQ(error_of(Mixtral(), [](ModelSpec& m) { m.experts->top_k = 3; }),
            "experts.top_k 2, expected 3, as the scenario's");
}

TEST(HuggingFaceWeights, SayWhichTensorIsMissingOrHasAnotherShape) {
  const std::string exported = Exported(Gpt2(), "missing");
  ModelSpec deeper = Gpt2().model;
  deeper.layers = 3;
  auto opened = OpenHuggingFaceWeights(exported, deeper);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("has no tensor 'transformer.h.2."), std::string::npos)
      << opened.error().message;
  ModelSpec longer = Gpt2().model;
  longer.seq_len = 17;
  opened = OpenHuggingFaceWeights(exported, longer);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("'transformer.wpe.weight' is [16 x 32], expected [17 x 32]"),
            std::string::npos)
      << opened.error().message;
  EXPECT_FALSE(OpenHuggingFaceWeights(exported, TinyMlp().model));
  ModelSpec experts = Gpt2().model;
  experts.experts = ExpertsSpec{};
  EXPECT_EQ(OpenHuggingFaceWeights(exported, experts).error().kind, ErrorKind::kUnsupported);
  ModelSpec further = TinyLlama().model;
  further.mtp.emplace();
  EXPECT_EQ(OpenHuggingFaceWeights(exported, further).error().message,
            "Hugging Face's names are not known of models with model.mtp");
}

// As on the Hugging Face hub: tensor names may lack the prefix `transformer.`, and the tensors may be spread
// over several files that an index lists.
TEST(HuggingFaceWeights, AreReadWithoutPrefixAndFromSeveralFiles) {
  const std::string exported = Exported(Gpt2(), "parts"), parts = EmptyDirectory("parts_apart");
  std::filesystem::create_directories(parts);
  const auto whole = SafetensorsFile::Open(exported + "/model.safetensors");
  std::vector<TensorToWrite> tensors[2];
  std::string map;
  for (const auto& [name, tensor] : whole->tensors()) {
    const std::string bare = name.substr(std::string("transformer.").size());
    const int file = static_cast<int>(tensors[0].size() > tensors[1].size());
    tensors[file].push_back({bare, tensor.shape, [&whole, name = name] { return whole->Read(name); }});
    map += (map.empty() ? "" : ", ") + fmt::format("\"{}\": \"part{}.safetensors\"", bare, file);
  }
  for (int file = 0; file < 2; ++file)
    ASSERT_TRUE(WriteSafetensors(fmt::format("{}/part{}.safetensors", parts, file), tensors[file], {}));
  std::ofstream(parts + "/model.safetensors.index.json") << "{\"weight_map\": {" << map << "}}";
  const auto one = OpenHuggingFaceWeights(exported, Gpt2().model),
             other = OpenHuggingFaceWeights(parts, Gpt2().model);
  ASSERT_TRUE(one) << one.error().message;
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(*(*one)->Read("model.blocks.0.mlp.up.weight"), *(*other)->Read("model.blocks.0.mlp.up.weight"));
  EXPECT_TRUE(OpenHuggingFaceWeights(parts + "/model.safetensors.index.json", Gpt2().model));
}

}  // namespace
}  // namespace windtunnel
