#include "scenarios/defaults.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "scenarios/derived.h"
#include "scenarios/known_names.h"
#include "scenarios/rules.h"

namespace windtunnel {
namespace {

// Which keys the file gives. A null counts as not given.
class Given {
 public:
  explicit Given(const YamlNode& root) : root_(root) {}
  bool operator()(std::string_view path) const {
    const YamlNode* node = root_.FindPath(path);
    return node != nullptr && !node->is_null();
  }

 private:
  const YamlNode& root_;
};

// Llama's rule: two thirds of 4 x hidden, rounded up to 256. So three matrices cost as much as two of 4 x
// hidden.
int64_t GatedWidth(int64_t hidden) {
  constexpr int64_t kMultiple = 256;
  return (8 * hidden / 3 + kMultiple - 1) / kMultiple * kMultiple;
}

void CompleteMamba(const Given& given, bool has_base, ModelSpec& model) {
  MambaSpec& mamba = *model.mamba;
  if (model.layers == 0) model.layers = LayersInPattern(mamba.pattern);
  if (mamba.heads == 0 && mamba.head_dim > 0) mamba.heads = 2 * model.hidden / mamba.head_dim;
  if (!has_base && !given("model.position")) model.position = PositionKind::kNone;
  if (mamba.pattern.find('*') != std::string::npos || model.heads > 0) return;
  model.heads = std::max<int64_t>(mamba.heads, 1);  // no layer has attention
  model.head_dim = mamba.head_dim;
}

void CompleteDeltaNet(const Given& given, bool has_base, ModelSpec& model) {
  const DeltaNetSpec& net = *model.delta_net;
  if (model.layers == 0) model.layers = LayersInPattern(net.pattern);
  if (!has_base && !given("model.position")) model.position = PositionKind::kRope;
  if (net.pattern.find('*') != std::string::npos || model.heads > 0) return;
  model.heads = net.value_heads;  // no layer has attention
  model.head_dim = net.value_dim;
}

void CompleteTransformer(const Given& given, bool has_base, ModelSpec& model) {
  if (!given("model.widths")) model.widths.clear();
  if (model.mamba) CompleteMamba(given, has_base, model);
  if (model.delta_net) CompleteDeltaNet(given, has_base, model);
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.encoder && model.encoder->seq_len == 0) model.encoder->seq_len = model.seq_len;
  const bool gated = IsGated(model.activation);
  if (model.head_dim == 0 && model.heads > 0 && model.hidden % model.heads == 0)
    model.head_dim = model.hidden / model.heads;
  if (model.ffn == 0) model.ffn = gated ? GatedWidth(model.hidden) : 4 * model.hidden;
  if (!has_base && !given("model.bias")) model.bias = model.norm == NormKind::kLayerNorm;
  if (!given("model.qkv_bias") && model.latent_attention) model.qkv_bias = false;
  else if (!given("model.qkv_bias") && (!has_base || given("model.bias"))) model.qkv_bias = model.bias;
  if (has_base) return;
  if (!given("model.tie_embeddings")) model.tie_embeddings = model.position == PositionKind::kLearned;
}

// Keeps only the keys that describe an MLP.
void CompleteMlp(const Given& given, bool has_base, ModelSpec& model) {
  ModelSpec mlp;
  mlp.kind = ModelKind::kMlp;
  mlp.preset = model.preset;
  mlp.widths = model.widths;
  mlp.dropout = model.dropout;
  mlp.activation = has_base || given("model.activation") ? model.activation : ActivationKind::kRelu;
  mlp.bias = has_base || given("model.bias") ? model.bias : true;
  model = mlp;
}

void CompleteModel(const Given& given, ModelSpec& model) {
  bool has_base = given("model.preset") || given("model.config");
  if (model.kind == ModelKind::kMlp) return CompleteMlp(given, has_base, model);
  CompleteTransformer(given, has_base, model);
}

// Megatron-Core drops no tokens unless it is told to. (Live on a CPU, experts need a capacity.)
void CompleteExperts(const Given& given, const Scenario& scenario, ExpertsSpec& experts) {
  const bool is_megatron = scenario.framework == Framework::kMegatronCore && scenario.cluster.device != "cpu";
  if (is_megatron && !given("model.experts.capacity_factor")) experts.capacity_factor = 0;
}

void CompletePrecision(const Given& given, PrecisionSpec& precision) {
  if (!given("precision.compute")) precision.compute = precision.param;
  bool fp8 = precision.compute == Precision::kFp8;
  if (fp8 && !given("precision.fp8_recipe")) precision.fp8_recipe = Fp8Recipe::kTensorwise;
  const bool fp4 = precision.compute == Precision::kFp4;
  if (fp4 && !given("precision.fp8_recipe")) precision.fp8_recipe = Fp8Recipe::kNvfp4;
  // Gradients of fp16 underflow without loss scaling: the smallest fp16 number is 6e-8.
  bool fp16 = precision.param == Precision::kFp16 || precision.compute == Precision::kFp16;
  if (fp16 && !given("precision.loss_scale")) precision.loss_scale = LossScale::kDynamic;
}

// Parts that are given override those of the preset, be it the network's own or its topology's.
void CompleteNetwork(const Given& given, const ClusterSpec& cluster, NetworkSpec& network) {
  const bool has_topology = cluster.device != "cpu" && FindKnownNetwork(cluster.topology.preset) != nullptr;
  if (network.preset.empty() && has_topology) network.preset = cluster.topology.preset;
  const KnownNetwork* known = FindKnownNetwork(network.preset);
  if (known == nullptr) return;
  if (!given("cluster.network.intra_node")) network.intra_node.kind = known->intra;
  LinkSpec& between = network.inter_node;
  if (between.kind.empty()) between.kind = known->inter;
  if (between.gbits_per_nic == 0 && between.gbytes_per_s == 0) between.gbits_per_nic = known->gbits;
  if (!given("cluster.network.nics_per_node"))
    network.nics_per_node = known->CardsOf(cluster.devices_per_node);
}

void CompleteCluster(const Given& given, const ParallelSpec& parallel, ClusterSpec& cluster) {
  double world = UncheckedWorldSize(parallel);
  bool has_shape = given("cluster.nodes") || given("cluster.devices_per_node");
  if (!has_shape && world <= kRanks.max) cluster.devices_per_node = static_cast<int64_t>(world);
  CompleteNetwork(given, cluster, cluster.network);
  bool has_link = !cluster.network.preset.empty() || cluster.network.intra_node != LinkSpec{};
  if (cluster.device == "cpu" && !has_link) cluster.network.intra_node.kind = "loopback";
}

DerivedKeys NotGiven(const Given& given, const ParallelSpec& parallel) {
  return {.kind = !given("parallel.data.kind"),
          .sync = !given("parallel.data.sync"),
          .reshard_after_forward = !given("parallel.data.reshard_after_forward"),
          .shard_size = parallel.data.shard_size == 0,
          .virtual_stages = !given("parallel.pipeline.virtual_stages"),
          .reduce = !given("precision.reduce")};
}

// torch.optim's defaults: AdamW decays by 0.01, Muon by 0.1, Adam and SGD do not.
void CompleteOptimizer(Given& given, OptimizerSpec& optimizer) {
  const bool is_muon = optimizer.kind == OptimizerKind::kMuon;
  const bool decays = is_muon || optimizer.kind == OptimizerKind::kAdamW;
  if (decays && !given("optimizer.weight_decay")) optimizer.weight_decay = is_muon ? 0.1 : 0.01;
  if (is_muon && !given("optimizer.momentum")) optimizer.momentum = 0.95;
}

}  // namespace

double UncheckedWorldSize(const ParallelSpec& parallel) {
  return static_cast<double>(parallel.data.size) * static_cast<double>(parallel.pipeline.size) *
         static_cast<double>(parallel.tensor.size) * static_cast<double>(parallel.context.size);
}

void CompleteDefaults(const YamlNode& root, const std::string& name, Scenario& scenario) {
  Given given(root);
  if (scenario.name.empty()) scenario.name = std::filesystem::path(name).stem().string();
  CompleteModel(given, scenario.model);
  if (scenario.model.experts) CompleteExperts(given, scenario, *scenario.model.experts);
  CompletePrecision(given, scenario.precision);
  CompleteOptimizer(given, scenario.optimizer);
  // Beside parameters that are updated in bf16, torch.optim has moments in bf16.
  if (scenario.precision.optimizer == Precision::kBf16 && !given("optimizer.moments"))
    scenario.optimizer.moments = MomentsType::kBf16;
  CompleteCluster(given, scenario.parallel, scenario.cluster);
  scenario.derived = NotGiven(given, scenario.parallel);
  DataParallelSpec& data = scenario.parallel.data;
  // The other derived keys follow from the kind.
  if (scenario.derived.kind) data.kind = DerivedKind(data.size * scenario.parallel.context.size);
  scenario.parallel = WithDerivedKeys(scenario.derived, scenario.cluster, std::move(scenario.parallel));
  if (scenario.derived.reduce) scenario.precision.reduce = DerivedReduce(scenario);
  bool on_cpu = scenario.cluster.device == "cpu";
  if (!given("run.backend")) scenario.run.backend = on_cpu ? Backend::kGloo : Backend::kNccl;
  bool foreign = scenario.framework != Framework::kWindtunnel;
  if (foreign && !given("allocator")) scenario.allocator = AllocatorKind::kPytorch;
}

}  // namespace windtunnel
