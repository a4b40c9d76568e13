// The defaults that scenarios/README.md lists.
#include "tests/scenarios/testing.h"

namespace windtunnel {
namespace {

std::string Model(const std::string& rest) {
  return "model: {layers: 2, hidden: 768, heads: 12, vocab: 100, seq_len: 16" + rest + "}\n";
}

TEST(ModelDefaults, FollowGptWhereNothingIsSaid) {
  ModelSpec model = Parsed(Model("")).model;
  EXPECT_EQ(model.kv_heads, 12);
  EXPECT_EQ(model.ffn, 3072);
  EXPECT_EQ(model.activation, ActivationKind::kGelu);
  EXPECT_EQ(model.norm, NormKind::kLayerNorm);
  EXPECT_EQ(model.position, PositionKind::kLearned);
  EXPECT_EQ(model.attention, AttentionKind::kFlash);
  EXPECT_TRUE(model.bias);
  EXPECT_TRUE(model.tie_embeddings);
  EXPECT_EQ(model.dropout, 0);
}

// A topology's name fills in the network as the network's own name does. Keys that are given stay.
TEST(ClusterDefaults, PartsOfANetworkStandBesideItsTopologysName) {
  const std::string model = Model("") + "parallel: {data: {kind: fsdp, size: 16}}\n";
  const auto network = [&](const std::string& rest) {
    return Parsed(model + "cluster: {device: h100-sxm-80g, nodes: 2, devices_per_node: 8, " + rest + "}\n")
        .cluster.network;
  };
  const NetworkSpec named = network("network: {preset: dgx-h100, nics_per_node: 2}");
  EXPECT_EQ(named.nics_per_node, 2);
  EXPECT_EQ(network("topology: dgx-h100, network: {nics_per_node: 2}"), named);
  EXPECT_EQ(network("topology: dgx-h100, network: {inter_node: {kind: infiniband}}"),
            network("topology: dgx-h100"));
  EXPECT_EQ(network("topology: dgx-h100").nics_per_node, 8);
}

TEST(ModelDefaults, FollowLlamaWhereNormActivationAndPositionAreLlamas) {
  ModelSpec model = Parsed(Model(", norm: rmsnorm, activation: swiglu, position: rope")).model;
  EXPECT_EQ(model.ffn, 2048);  // 8/3 x 768 = 2048, a multiple of 256
  EXPECT_FALSE(model.bias);
  EXPECT_FALSE(model.tie_embeddings);
}

TEST(ModelDefaults, SwigluWidthsAreLlamasOwn) {
  auto ffn = [](int hidden) {
    return Parsed(Model(", activation: swiglu"), {"model.hidden=" + std::to_string(hidden), "model.heads=32"})
        .model.ffn;
  };
  EXPECT_EQ(ffn(4096), 11008);  // Llama 7B: 10922.7 rounded up to 43 x 256
  EXPECT_EQ(ffn(5120), 13824);  // Llama 13B: 13653.3 to 54 x 256
}

TEST(ModelDefaults, FollowThePatternOfGatedDeltaNetworks) {
  const std::string sizes = "hidden: 768, vocab: 100, seq_len: 16, delta_net: ";
  const ModelSpec hybrid = Parsed("model: {heads: 12, " + sizes + "{pattern: G-G-*-}}\n").model;
  ASSERT_TRUE(hybrid.delta_net);
  EXPECT_EQ(*hybrid.delta_net, (DeltaNetSpec{.pattern = "G-G-*-",
                                             .key_heads = 16,
                                             .value_heads = 32,
                                             .key_dim = 128,
                                             .value_dim = 128,
                                             .conv = 4}));
  EXPECT_EQ(hybrid.layers, 3);
  EXPECT_EQ(hybrid.position, PositionKind::kRope);
  const ModelSpec alone = Parsed("model: {layers: 2, " + sizes + "{value_dim: 64}}\n").model;
  EXPECT_EQ(alone.delta_net->pattern, "G");
  EXPECT_EQ(alone.heads, 32) << "of values, since no layer has attention";
  EXPECT_EQ(alone.head_dim, 64);
}

TEST(ModelDefaults, FollowThePatternOfMamba2Layers) {
  const std::string sizes = "hidden: 768, vocab: 100, seq_len: 16, mamba: ";
  const ModelSpec hybrid = Parsed("model: {heads: 12, " + sizes + "{pattern: M-MM*-}}\n").model;
  ASSERT_TRUE(hybrid.mamba);
  EXPECT_EQ(*hybrid.mamba, (MambaSpec{.pattern = "M-MM*-",
                                      .state = 128,
                                      .head_dim = 64,
                                      .heads = 24,  // 2 x 768 / 64
                                      .groups = 1,
                                      .conv = 4,
                                      .chunk = 256}));
  EXPECT_EQ(hybrid.layers, 4);
  EXPECT_EQ(hybrid.head_dim, 64);  // 768 / 12
  EXPECT_EQ(hybrid.position, PositionKind::kNone);
  EXPECT_FALSE(hybrid.tie_embeddings);
  const ModelSpec longer = Parsed("model: {layers: 6, heads: 12, " + sizes + "{pattern: M-MM*-}}\n").model;
  EXPECT_EQ(longer.layers, 6);
  EXPECT_EQ(longer.RecurrentLayers(), 5) << "M-, M, M, *-, and again M- and M";
  // Heads are asked for where layers have attention.
  const ModelSpec alone = Parsed("model: {layers: 2, " + sizes + "{head_dim: 128}}\n").model;
  EXPECT_EQ(alone.mamba->pattern, "M");
  EXPECT_EQ(alone.heads, 12);  // 2 x 768 / 128
  EXPECT_EQ(alone.head_dim, 128);
  EXPECT_EQ(MessageOf("model: {" + sizes + "{pattern: M*}}\n"),
            "s.yaml:1:8: model.heads is missing, expected a value, model.preset or model.config");
  // A preset or a configuration has positions of its own.
  EXPECT_EQ(Parsed("model: {preset: gpt2-124m, mamba: {pattern: M-*-}}\n").model.position,
            PositionKind::kLearned);
}

TEST(ModelDefaults, AnMlpHasReluAndBiases) {
  ModelSpec model = Parsed("model: {kind: mlp, widths: [4, 8, 2]}\n").model;
  EXPECT_EQ(model.activation, ActivationKind::kRelu);
  EXPECT_TRUE(model.bias);
}

TEST(ModelDefaults, SingleKeysOverrideAPresetAndItsRulesFollow) {
  ModelSpec model = Parsed("model: {preset: gpt2-124m, hidden: 256, heads: 4}\n").model;
  EXPECT_EQ(model.preset, "gpt2-124m");
  EXPECT_EQ(model.layers, 12);
  EXPECT_EQ(model.kv_heads, 4);
  EXPECT_EQ(model.ffn, 1024);
}

TEST(PrecisionDefaults, ComputeIsParamAndTheRestIsFp32) {
  EXPECT_EQ(Parsed(kMlp).precision, PrecisionSpec{});
  PrecisionSpec bf16 = Parsed(std::string(kMlp) + "precision: {param: bf16}\n").precision;
  EXPECT_EQ(bf16, (PrecisionSpec{.param = Precision::kBf16, .compute = Precision::kBf16}));
  const std::string gpt = "model: {preset: gpt2-124m}\n";
  PrecisionSpec fp8 = Parsed(gpt + "precision: {param: bf16, compute: fp8}\n").precision;
  EXPECT_EQ(fp8.fp8_recipe, Fp8Recipe::kTensorwise);
  const char* fp4 = "precision: {param: bf16, compute: fp4}\nframework: megatron_core\n";
  EXPECT_EQ(Parsed(gpt + fp4).precision.fp8_recipe, Fp8Recipe::kNvfp4);
}

// communication_data_type, which is the parameters' type where a ds_config.json has none.
TEST(PrecisionDefaults, GradientsAreReducedAsDeepSpeedAndDdpDo) {
  const auto reduce = [](const std::string& kind, const std::string& more) {
    return Parsed(std::string(kMlp) + "precision: {param: bf16}\nparallel: {data: {size: 2, kind: " + kind +
                  "}}\n" + more)
        .precision.reduce;
  };
  EXPECT_EQ(reduce("zero3", "framework: deepspeed\n"), Precision::kBf16);
  EXPECT_EQ(reduce("zero3", "framework: pytorch\n"), Precision::kBf16);
  EXPECT_EQ(reduce("zero3", ""), Precision::kFp32);
  for (const char* kind : {"zero1", "zero2", "ddp"})
    for (const char* framework : {"framework: deepspeed\n", "framework: pytorch\n"})
      EXPECT_EQ(reduce(kind, framework), Precision::kBf16) << kind << " " << framework;
  for (const char* kind : {"zero1", "ddp", "fsdp"}) EXPECT_EQ(reduce(kind, ""), Precision::kFp32);
  EXPECT_EQ(reduce("zero1", "framework: megatron_core\n"), Precision::kFp32);
  EXPECT_EQ(reduce("fsdp", "framework: pytorch\n"), Precision::kFp32);
}

// torch.amp.GradScaler's numbers.
TEST(PrecisionDefaults, Fp16ScalesItsLossAndOtherTypesDoNot) {
  for (const char* block : {"{param: fp16}", "{compute: fp16}"}) {
    const PrecisionSpec fp16 = Parsed(fmt::format("{}precision: {}\n", kMlp, block)).precision;
    EXPECT_EQ(fp16.loss_scale, LossScale::kDynamic) << block;
    EXPECT_EQ(fp16.init_scale, 65536);
    EXPECT_EQ(fp16.growth_interval, 2000);
  }
  EXPECT_FALSE(Parsed(fmt::format("{}precision: {{param: bf16}}\n", kMlp)).precision.scales_loss());
  EXPECT_FALSE(
      Parsed(fmt::format("{}precision: {{param: fp16, loss_scale: none}}\n", kMlp)).precision.scales_loss());
}

TEST(PrecisionDefaults, ANumberIsAStaticLossScale) {
  const PrecisionSpec spec =
      Parsed(fmt::format("{}precision: {{param: bf16, loss_scale: 1024}}\n", kMlp)).precision;
  EXPECT_EQ(spec.static_loss_scale, 1024);
  EXPECT_TRUE(spec.scales_loss());
}

TEST(OptimizerDefaults, AreTorchs) {
  OptimizerSpec adamw = Parsed(kMlp).optimizer;
  EXPECT_EQ(adamw, (OptimizerSpec{.kind = OptimizerKind::kAdamW,
                                  .lr = 3e-4,
                                  .beta1 = 0.9,
                                  .beta2 = 0.999,
                                  .eps = 1e-8,
                                  .weight_decay = 0.01,
                                  .momentum = 0,
                                  .clip_norm = 0}));
  EXPECT_EQ(Parsed(std::string(kMlp) + "optimizer: {kind: sgd}\n").optimizer.weight_decay, 0);
  EXPECT_EQ(Parsed(std::string(kMlp) + "optimizer: {kind: adam}\n").optimizer.weight_decay, 0);
  // torch.optim.Muon's, but for the learning rate and how it is adjusted, since there is one for all
  // parameters.
  EXPECT_EQ(Parsed(std::string(kMlp) + "optimizer: {kind: muon}\n").optimizer,
            (OptimizerSpec{.kind = OptimizerKind::kMuon,
                           .lr = 3e-4,
                           .weight_decay = 0.1,
                           .momentum = 0.95,
                           .ns_steps = 5,
                           .adjust_lr = RateAdjustment::kMatchRmsAdamW}));
}

TEST(OptimizerKeys, AreAllAccepted) {
  OptimizerSpec sgd = Parsed(std::string(kMlp) +
                             "optimizer: {kind: sgd, lr: 1e-2, beta1: 0.8, beta2: .95, eps: 1E-6, "
                             "weight_decay: +0.1, momentum: 0.9, "
                             "clip_norm: 1.}\n")
                          .optimizer;
  EXPECT_EQ(sgd, (OptimizerSpec{.kind = OptimizerKind::kSgd,
                                .lr = 1e-2,
                                .beta1 = 0.8,
                                .beta2 = 0.95,
                                .eps = 1e-6,
                                .weight_decay = 0.1,
                                .momentum = 0.9,
                                .clip_norm = 1}));
}

// NVIDIA's systems have a card for each device. A cluster that uses some of a rack's devices has their cards.
TEST(ClusterDefaults, CardsOfANetworkAreThoseOfTheDevices) {
  const auto cards = [](const char* network, int64_t devices) {
    return Parsed(fmt::format("{}parallel: {{data: {{size: {}}}}}\ncluster: {{device: h100-sxm-80g, nodes: "
                              "2, devices_per_node: {}, network: {}}}\n",
                              kMlp, 2 * devices, devices, network))
        .cluster.network.nics_per_node;
  };
  EXPECT_EQ(cards("gb200-nvl72", 72), 72);
  EXPECT_EQ(cards("gb200-nvl72", 4), 4);
  EXPECT_EQ(cards("dgx-h100", 8), 8);
  EXPECT_EQ(cards("dgx-h100", 1), 1);
  EXPECT_EQ(cards("ethernet-4x100g", 2), 4);
}

// Null stands for the framework's own buckets: PyTorch's first bucket is small unless a size is given, and
// what Megatron's and DeepSpeed's buckets hold depends on more than a size.
TEST(ParallelDefaults, BucketsAreTheFrameworksUnlessOneSays) {
  EXPECT_EQ(Parsed(kMlp).parallel.data.bucket_cap_mb, std::nullopt);
  EXPECT_EQ(Parsed(kMlp, {"parallel.data.bucket_cap_mb=25"}).parallel.data.bucket_cap_mb, 25);
  const std::string core = std::string(kMlp) + "cluster: {device: h100-sxm-80g}\nframework: megatron_core\n";
  EXPECT_EQ(Parsed(core).parallel.data.bucket_cap_mb, std::nullopt);
  EXPECT_EQ(Parsed(core + "parallel: {data: {bucket_cap_mb: 7}}\n").parallel.data.bucket_cap_mb, 7);
}

TEST(ParallelDefaults, SeveralReplicasAreDdp) {
  EXPECT_EQ(Parsed(kMlp).parallel.data.kind, DataParallelKind::kNone);
  EXPECT_EQ(Parsed(std::string(kMlp) + "parallel: {data: {size: 2}}\n").parallel.data.kind,
            DataParallelKind::kDdp);
}

TEST(ParallelDefaults, TheZero2ShardingsKeepParametersAfterForward) {
  auto reshards = [](const std::string& sharding) {
    return Parsed(std::string(kGpt) + "parallel: {data: {kind: fsdp, size: 2, sharding: " + sharding + "}}\n")
        .parallel.data.reshard_after_forward;
  };
  EXPECT_TRUE(reshards("full_shard"));
  EXPECT_FALSE(reshards("shard_grad_op"));
  EXPECT_TRUE(reshards("hybrid_shard"));
  EXPECT_FALSE(reshards("hybrid_shard_zero2"));
}

TEST(ParallelDefaults, FsdpReducesInEveryMicroBatchUnlessToldOtherwise) {
  auto sync = [](const std::string& data) {
    return Parsed(std::string(kGpt) + "parallel: {data: {size: 2, " + data + "}}\n").parallel.data.sync;
  };
  EXPECT_EQ(sync("kind: fsdp"), GradientSync::kEveryMicroBatch);
  EXPECT_EQ(sync("kind: zero3"), GradientSync::kEveryMicroBatch);
  EXPECT_EQ(sync("kind: fsdp, sync: last_micro_batch"), GradientSync::kLastMicroBatch);
  EXPECT_EQ(sync("kind: ddp"), GradientSync::kLastMicroBatch);
  EXPECT_EQ(sync("kind: zero1"), GradientSync::kLastMicroBatch);
}

TEST(ParallelDefaults, HybridShardsFillANode) {
  std::string hybrid = "parallel: {data: {kind: fsdp, size: 16, sharding: hybrid_shard}}\n";
  EXPECT_EQ(Parsed(kGpt + hybrid + "cluster: {nodes: 2, devices_per_node: 8}\n").parallel.data.shard_size, 8);
  EXPECT_EQ(Parsed(kGpt + hybrid).parallel.data.shard_size, 16);
}

TEST(ParallelDefaults, VSchedulesHaveTwoStagesOnARank) {
  std::string v = "parallel: {pipeline: {size: 2, schedule: dualpipe_v}}\n";
  EXPECT_EQ(Parsed(kGpt + v).parallel.pipeline.virtual_stages, 2);
}

TEST(ClusterDefaults, OneNodeHasTheWholeWorld) {
  ClusterSpec cluster =
      Parsed(std::string(kGpt) + "parallel: {data: {size: 2}, tensor: {size: 3}}\n").cluster;
  EXPECT_EQ(cluster.nodes, 1);
  EXPECT_EQ(cluster.devices_per_node, 6);
  EXPECT_EQ(cluster.network.intra_node.kind, "loopback");
}

TEST(RunDefaults, FollowTheDevice) {
  EXPECT_EQ(Parsed(kMlp).run.backend, Backend::kGloo);
  Scenario gpu = Parsed(std::string(kMlp) + "cluster: {device: a100-sxm-80g}\n");
  EXPECT_EQ(gpu.run.backend, Backend::kNccl);
  EXPECT_EQ(gpu.cluster.network.intra_node, LinkSpec{});
}

TEST(FrameworkDefaults, MegatronCoreDropsNoTokens) {
  const std::string experts =
      "model: {preset: gpt2-124m, experts: {count: 4}}\ncluster: {device: h100-sxm-80g}\n";
  EXPECT_EQ(Parsed(experts).model.experts->capacity_factor, 1);
  EXPECT_EQ(Parsed(experts + "framework: megatron_core\n").model.experts->capacity_factor, 0);
  const std::vector<std::string> sets = {"model.experts.capacity_factor=2"};
  EXPECT_EQ(Parsed(experts + "framework: megatron_core\n", sets).model.experts->capacity_factor, 2);
}

TEST(FrameworkDefaults, ForeignFrameworksBringPytorchsAllocator) {
  EXPECT_EQ(Parsed(kMlp).allocator, AllocatorKind::kWindtunnel);
  EXPECT_EQ(Parsed(std::string(kMlp) + "framework: megatron\n").allocator, AllocatorKind::kPytorch);
}

TEST(NameDefault, IsTheFilesStem) { EXPECT_EQ(Parsed(kMlp).name, "s"); }

TEST(Defaults, NetworksThatAreKnownAreTheirParts) {
  const auto network = [](const std::string& text) {
    return Parsed(std::string(kMlp) +
                  "parallel: {data: {size: 72}}\ncluster: {device: h100-sxm-80g, network: " + text + "}\n")
        .cluster.network;
  };
  const NetworkSpec dgx = network("dgx-h100");
  EXPECT_EQ(dgx.intra_node.kind, "nvlink4");
  EXPECT_EQ(dgx.inter_node.kind, "infiniband");
  EXPECT_EQ(dgx.inter_node.gbits_per_nic, 400);
  EXPECT_EQ(dgx.nics_per_node, 8) << "though 72 devices share them";
  EXPECT_EQ(network("{preset: dgx-h100, nics_per_node: 4}").nics_per_node, 4);
  EXPECT_EQ(network("dgx-b200").intra_node.kind, "nvlink5");
  EXPECT_EQ(network("gb200-nvl72").nics_per_node, 72);
  EXPECT_EQ(network("gb300-nvl72").inter_node.gbits_per_nic, 800);
  EXPECT_EQ(network("dgx-b300").nics_per_node, 8);
  EXPECT_EQ(network("omnipath-4x100g").intra_node, LinkSpec{}) << "the device's";
  EXPECT_EQ(network("infiniband-8x400g").intra_node, LinkSpec{}) << "the device's";
  EXPECT_EQ(network("infiniband-8x400g").inter_node.gbits_per_nic, 400);
}

}  // namespace
}  // namespace windtunnel
