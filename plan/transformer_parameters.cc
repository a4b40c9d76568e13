// The parameters and modules of a stage of a transformer.
#include <cmath>
#include <numeric>
#include <utility>

#include "plan/relative_buckets.h"
#include "plan/transformer.h"

namespace windtunnel {
namespace {

using Distribution = InitializeParameter::Distribution;
constexpr double kInitDeviation = 0.02;  // GPT-2 and Llama: weights from N(0, 0.02^2)

// The block's GEMMs use 16 bits, even if other blocks use fp8.
void LeaveIn16Bits(TransformerBlock& block) {
  if (block.latent)
    for (Linear* layer : block.latent->layers()) layer->is_fp8 = false;
  for (std::vector<Linear>* layers : {&block.qkv.layers, &block.up.layers})
    for (Linear& layer : *layers) layer.is_fp8 = false;
  block.projection.is_fp8 = block.down.is_fp8 = false;
  if (!block.experts) return;
  block.experts->up.is_fp8 = block.experts->down.is_fp8 = false;
  for (std::optional<Linear>* layer : {&block.experts->latent_down, &block.experts->latent_up})
    if (*layer) (*layer)->is_fp8 = false;
}

// Whole on every tensor rank, with gradients from the rank's own tokens.
const ParameterSplit kOfOwnTokens{ParameterSplit::By::kNothing, {}, true};

}  // namespace

// A layer with several outputs side by side, of `outputs` columns. Tensor ranks have equal parts of each.
Linear Transformer::RegisterColumnParallel(Role& role, ModuleId module, const std::string& name, int64_t in,
                                           const std::vector<int64_t>& outputs, bool bias) {
  const int64_t out = std::accumulate(outputs.begin(), outputs.end(), int64_t{0});
  const ParameterSplit split{ParameterSplit::By::kRows, outputs};
  Linear linear{name, in, out / tensor_.ranks()};
  linear.is_frozen = freezes_;
  linear.weight =
      AddParameter(role, module, name + ".weight", {out, in}, {Distribution::kNormal, kInitDeviation}, split);
  NoteShape(role, linear);
  Pack(role, linear);
  if (bias) linear.bias = AddParameter(role, module, name + ".bias", {out}, {}, split);
  if (tensor_.splits()) linear.split = LinearSplit::kColumnParallel;
  return linear;
}

// Of a layer in a block or a predictor: not of the head.
void Transformer::NoteShape(Role& role, const Linear& linear) const {
  if (linear.weight < 0 || !is_hidden_) return;
  Parameter& weight = role.parameters[linear.weight];
  weight.linear_shape = {weight.shape[0], weight.shape[1]};
}

// Marks the weight of a layer, if it is in a block and to be stored in 4 bits. (bitsandbytes leaves the
// head.)
void Transformer::Pack(Role& role, const Linear& linear) const {
  if (linear.weight < 0 || layer_ < 0 || !linear.is_frozen) return;
  switch (spec_.lora->quantize) {
    case Quantization::kNone:
      return;
    case Quantization::kNf4:
      role.parameters[linear.weight].packed = DType::kNf4;
      return;
    case Quantization::kNf4Double:
      role.parameters[linear.weight].packed = DType::kNf4Double;
  }
}

// PyTorch's Llamas have a module for each output; its other models stack them, as all of Megatron's do.
Projections Transformer::RegisterProjections(Role& role, ModuleId module, const std::string& prefix,
                                             const Stacked& stacked, const std::vector<Output>& outputs,
                                             bool bias) {
  if (is_pytorch() && gated()) {
    std::vector<Linear> layers;
    for (const Output& output : outputs) {
      layers.push_back(
          RegisterColumnParallel(role, module, prefix + output.name, spec_.hidden, {output.columns}, bias));
      if (output.target) RegisterAdapter(role, module, *output.target, layers.back(), {output.columns});
    }
    return ProjectionsOf(std::move(layers));
  }
  std::vector<int64_t> columns;
  for (const Output& output : outputs) columns.push_back(output.columns);
  Linear layer = RegisterColumnParallel(role, module, prefix + stacked.name, spec_.hidden, columns, bias);
  if (stacked.target) RegisterAdapter(role, module, *stacked.target, layer, columns);
  return ProjectionsOf({std::move(layer)});
}

Projections Transformer::ProjectionsOf(std::vector<Linear> layers) const {
  if (!is_pytorch()) return {Projections::Style::kStacked, std::move(layers)};
  for (Linear& layer : layers) layer.input_is_gathered = true;
  return {Projections::Style::kModules, std::move(layers), framework_ == Framework::kPytorchCompile};
}

// Where frameworks scale an adapter's output.
Adapter::Scales Transformer::ScalesOfAdapters() const {
  if (framework_ == Framework::kWindtunnel) return Adapter::Scales::kHidden;
  return framework_ == Framework::kPytorchCompile ? Adapter::Scales::kOneKernel : Adapter::Scales::kOutput;
}

void Transformer::RegisterAdapter(Role& role, ModuleId module, LoraTarget target, Linear& linear,
                                  const std::vector<int64_t>& outputs) {
  if (!spec_.HasAdapter(target)) return;
  const LoraSpec& spec = *spec_.lora;
  const bool has_rows = !outputs.empty();  // column-parallel: tensor ranks have rows of B, else columns of A
  const int64_t in = linear.in * (has_rows ? 1 : tensor_.ranks());
  const int64_t out = linear.out * (has_rows ? tensor_.ranks() : 1);
  ParameterSplit whole;
  whole.sees_partial_sums = true;
  const ParameterInit uniform{Distribution::kUniform, 1.0 / std::sqrt(static_cast<double>(in))};
  Adapter adapter{.rank = spec.rank, .scale = spec.Scale(), .scales = ScalesOfAdapters()};
  adapter.dropout = {.site = {.share = spec.dropout},
                     .columns = linear.in,
                     .seq = stream_.seq,
                     .context = context_.tokens(),
                     .splits_columns = linear.split == LinearSplit::kRowParallel};
  freezes_ = false;
  of_adapter_ = true;
  adapter.a = AddParameter(role, module, linear.name + ".lora_a.weight", {spec.rank, in}, uniform,
                           has_rows ? whole : ParameterSplit{ParameterSplit::By::kColumns});
  adapter.b = AddParameter(role, module, linear.name + ".lora_b.weight", {out, spec.rank}, {},
                           has_rows ? ParameterSplit{ParameterSplit::By::kRows, outputs} : whole);
  freezes_ = true;
  of_adapter_ = false;
  linear.adapter = adapter;
}

// A projection into the residual stream. GPT-2: its initial weights are scaled by 1 / sqrt(residual layers).
Linear Transformer::RegisterRowParallel(Role& role, ModuleId module, const std::string& name, int64_t in,
                                        bool bias) {
  const double deviation = kInitDeviation / std::sqrt(2.0 * static_cast<double>(spec_.layers));
  Linear linear{name, in / tensor_.ranks(), spec_.hidden};
  linear.is_frozen = freezes_;
  linear.weight = AddParameter(role, module, name + ".weight", {spec_.hidden, in},
                               {Distribution::kNormal, deviation}, {ParameterSplit::By::kColumns});
  NoteShape(role, linear);
  Pack(role, linear);
  if (bias) linear.bias = AddParameter(role, module, name + ".bias", {spec_.hidden}, {}, kOfOwnTokens);
  if (tensor_.splits()) linear.split = LinearSplit::kRowParallel;
  return linear;
}

Norm Transformer::RegisterNorm(Role& role, ModuleId module, const std::string& name, int64_t columns) {
  Norm norm{name, spec_.norm, columns, spec_.norm_epsilon};
  norm.is_frozen = freezes_;
  norm.gamma =
      AddParameter(role, module, name + ".weight", {columns}, {Distribution::kOnes, 0}, kOfOwnTokens);
  if (spec_.bias && spec_.norm == NormKind::kLayerNorm) {
    norm.beta = AddParameter(role, module, name + ".bias", {columns}, {}, kOfOwnTokens);
  }
  return norm;
}

// A layer applied token by token, with its weights whole on every tensor rank.
Linear Transformer::RegisterWhole(Role& role, ModuleId module, const std::string& name, int64_t in,
                                  int64_t out, const ParameterSplit& split,
                                  std::optional<ParameterInit> init) {
  Linear linear{name, in, out};
  linear.is_frozen = freezes_;
  linear.weight = AddParameter(role, module, name + ".weight", {out, in},
                               init.value_or(ParameterInit{Distribution::kNormal, kInitDeviation}), split);
  NoteShape(role, linear);
  return linear;
}

LatentProjections Transformer::RegisterLatents(Role& role, ModuleId module, const std::string& prefix) {
  const LatentAttentionSpec& spec = *spec_.latent_attention;
  const int64_t unrotated = spec_.head_dim - spec.rope_dim, values = spec_.ValueDim();
  const auto up = [&](const char* what, int64_t in, int64_t of_head) {
    return RegisterColumnParallel(role, module, prefix + what, in, {spec_.heads * of_head}, /*bias=*/false);
  };
  LatentProjections latent;
  latent.name = prefix.substr(0, prefix.size() - 1);
  latent.join = {.batch = batch_,
                 .seq = stream_.seq,
                 .heads = heads_,
                 .head_dim = spec_.head_dim,
                 .rope_dim = spec.rope_dim,
                 .value_dim = values,
                 .dtype = types_.activations,
                 .context = context_.tokens(),
                 .theta = spec_.rope_theta};
  if (spec.q_rank > 0) {
    latent.q_down = RegisterWhole(role, module, prefix + "q_down", spec_.hidden, spec.q_rank, kOfOwnTokens);
    latent.q_norm = RegisterNorm(role, module, prefix + "q_norm", spec.q_rank);
  }
  latent.q_up = up("q_up", spec.q_rank > 0 ? spec.q_rank : spec_.hidden, spec_.head_dim);
  latent.kv_down = RegisterWhole(role, module, prefix + "kv_down", spec_.hidden, spec.kv_rank + spec.rope_dim,
                                 kOfOwnTokens);
  latent.kv_norm = RegisterNorm(role, module, prefix + "kv_norm", spec.kv_rank);
  latent.kv_up = up("kv_up", spec.kv_rank, unrotated + values);
  if (types_.fp8 != Fp8Recipe::kNone)
    for (Linear* layer : latent.layers()) layer->is_fp8 = true;
  return latent;
}

HeadNorm Transformer::RegisterHeadNorm(Role& role, ModuleId module, const std::string& prefix) {
  HeadNorm norm{prefix + "qk_norm", heads_, kv_heads_, spec_.head_dim, spec_.norm_epsilon};
  norm.is_frozen = freezes_;
  norm.whole = spec_.qk_norm_over == QkNormSpan::kAllHeads;
  const ParameterInit ones{Distribution::kOnes, 0};
  ParameterSplit of_own_heads;
  of_own_heads.sees_partial_sums = true;
  norm.query_gamma =
      AddParameter(role, module, prefix + "q_norm.weight", {norm.query_weights()}, ones, of_own_heads);
  norm.key_gamma =
      AddParameter(role, module, prefix + "k_norm.weight", {norm.key_weights()}, ones, of_own_heads);
  return norm;
}

TransformerBlock Transformer::RegisterBlock(Role& role, const std::string& name, ModuleId parent,
                                            const LayerKind& kind) {
  const std::string prefix = name + ".";
  TransformerBlock block;
  block.stream = stream_;
  block.causal = spec_.causal;
  block.window = kind.window;
  block.has_mlp = kind.has_mlp;
  block.has_mixer = kind.has_mixer();
  block.module = AddModule(name, parent);
  if (kind.has_mixer())
    block.attention_module = AddModule(prefix + (kind.is_recurrent() ? "mixer" : "attn"), block.module);
  const ModuleId cross = kind.is_of_decoder ? AddModule(prefix + "cross", block.module) : -1;
  if (kind.has_mlp) block.mlp_module = AddModule(prefix + "mlp", block.module);
  if (kind.has_mixer() && spec_.pre_norm)
    block.norm1 = RegisterNorm(role, block.module, prefix + "norm1", spec_.hidden);
  if (kind.mixer == Mixer::kMamba) RegisterStateSpace(role, prefix + "mixer.", block);
  else if (kind.mixer == Mixer::kDeltaNet) RegisterDeltaNet(role, prefix + "mixer.", block);
  else if (kind.has_mixer()) RegisterAttention(role, prefix + "attn.", block);
  if (kind.has_mixer() && spec_.post_norm)
    block.attention_post_norm = RegisterNorm(role, block.module, prefix + "attn_post_norm", spec_.hidden);
  if (kind.is_of_decoder) block.cross = RegisterCrossAttention(role, prefix, block.module, cross);
  block.parallel = spec_.parallel_residual;
  if (kind.has_mlp) {
    if (spec_.pre_norm && block.parallel != ParallelResidual::kOneNorm)
      block.norm2 = RegisterNorm(role, block.module, prefix + "norm2", spec_.hidden);
    RegisterMlp(role, prefix, kind.has_experts, block);
    if (spec_.post_norm)
      block.mlp_post_norm = RegisterNorm(role, block.module, prefix + "mlp_post_norm", spec_.hidden);
  } else {
    block.has_dense = false;
  }
  for (std::vector<Linear>* layers : {&block.qkv.layers, &block.up.layers})
    for (Linear& layer : *layers) layer.is_fp8 = types_.fp8 != Fp8Recipe::kNone;
  block.projection.is_fp8 = block.down.is_fp8 = types_.fp8 != Fp8Recipe::kNone;
  return block;
}

void Transformer::RegisterAttention(Role& role, const std::string& prefix, TransformerBlock& block) {
  const int64_t queries = spec_.heads * spec_.head_dim, keys = spec_.kv_heads * spec_.head_dim;
  const ModuleId module = block.attention_module;
  if (spec_.latent_attention) block.latent = RegisterLatents(role, module, prefix);
  else {
    std::vector<Output> outputs = {{"q", queries, LoraTarget::kQueries},
                                   {"k", keys, LoraTarget::kKeys},
                                   {"v", keys, LoraTarget::kValues}};
    if (spec_.attention_gate) outputs.push_back({"gate", queries});
    block.qkv = RegisterProjections(role, module, prefix, {"qkv", LoraTarget::kQkv}, outputs, spec_.qkv_bias);
  }
  if (spec_.qk_norm) block.head_norm = RegisterHeadNorm(role, module, prefix);
  block.projection =
      RegisterRowParallel(role, module, prefix + "proj", spec_.heads * spec_.ValueDim(), spec_.bias);
  RegisterAdapter(role, module, LoraTarget::kProjection, block.projection, {});
}

// The shared expert has no biases.
void Transformer::RegisterMlp(Role& role, const std::string& prefix, bool has_experts,
                              TransformerBlock& block) {
  if (!has_experts) return RegisterDense(role, prefix + "mlp.", block, spec_.DenseFfn(), spec_.bias);
  block.experts = RegisterExperts(role, prefix, block.mlp_module);
  block.has_dense = spec_.experts->shared_ffn > 0;
  if (block.has_dense)
    RegisterDense(role, prefix + "mlp.shared.", block, spec_.experts->shared_ffn, /*bias=*/false);
  if (spec_.experts->shared_gate)
    block.shared_gate =
        RegisterWhole(role, block.mlp_module, prefix + "mlp.shared.gate", spec_.hidden, 1, kOfOwnTokens);
}

void Transformer::RegisterDense(Role& role, const std::string& prefix, TransformerBlock& block, int64_t ffn,
                                bool bias) {
  std::vector<Output> outputs;
  if (gated()) outputs.push_back({"gate", ffn, LoraTarget::kGate});
  outputs.push_back({"up", ffn, LoraTarget::kUp});
  const Stacked stacked = gated() ? Stacked{"gate_up", LoraTarget::kGateUp} : Stacked{"up", LoraTarget::kUp};
  block.up = RegisterProjections(role, block.mlp_module, prefix, stacked, outputs, bias);
  block.down = RegisterRowParallel(role, block.mlp_module, prefix + "down", ffn, bias);
  RegisterAdapter(role, block.mlp_module, LoraTarget::kDown, block.down, {});
}

ExpertMlp Transformer::RegisterExperts(Role& role, const std::string& prefix, ModuleId mlp) {
  const ExpertsSpec& spec = *spec_.experts;
  const int count = spec.count;
  const int64_t columns = gated() ? 2 * spec_.ffn : spec_.ffn, own = count / expert_.ranks();
  const ParameterInit into{Distribution::kNormal, kInitDeviation};
  const ParameterInit out_of{Distribution::kNormal,
                             kInitDeviation / std::sqrt(2.0 * static_cast<double>(spec_.layers))};
  ExpertMlp experts{
      .name = prefix + "mlp", .activation = spec_.activation, .spec = spec, .parallel = expert_};
  experts.weighs_activations = framework_ == Framework::kMegatronCore;
  experts.kept_between = kept_between();
  experts.router = Linear{prefix + "mlp.router", spec_.hidden, count};
  experts.router.is_frozen = freezes_;
  experts.sends_own_tokens = expert_.splits() && tensor_.splits_tokens();
  // The number of tensor ranks that share an expert.
  const int sharing = expert_.with_tensor_ranks ? 1 : tensor_.ranks();
  if (experts.sends_own_tokens) experts.senders = sharing;
  ParameterSplit of_routed;
  if (experts.sends_own_tokens) of_routed = kOfOwnTokens;
  else of_routed.sees_partial_sums = true;
  experts.router.weight =
      AddParameter(role, mlp, prefix + "mlp.router.weight", {count, spec_.hidden}, into, of_routed);
  const int64_t width = spec_.ExpertWidth();
  if (spec.latent > 0) {
    experts.latent_down =
        RegisterWhole(role, mlp, prefix + "mlp.latent_down", spec_.hidden, width, of_routed);
    experts.latent_up =
        RegisterWhole(role, mlp, prefix + "mlp.latent_up", width, spec_.hidden, kOfOwnTokens, out_of);
    experts.latent_down->is_fp8 = experts.latent_up->is_fp8 = types_.fp8 != Fp8Recipe::kNone;
  }
  experts.module = AddModule(prefix + "mlp.experts", mlp);
  ParameterSplit by_rows{ParameterSplit::By::kRows, {spec_.ffn}};
  if (gated()) by_rows.blocks.push_back(spec_.ffn);
  by_rows.experts = count;
  experts.up = ExpertLinear{prefix + "mlp.experts.up", own, width, columns / sharing};
  experts.up.is_frozen = freezes_;
  experts.up.weight = AddParameter(role, experts.module, experts.up.name + ".weight",
                                   {count * columns, width}, into, by_rows);
  if (spec.bias)
    experts.up.bias =
        AddParameter(role, experts.module, experts.up.name + ".bias", {count * columns}, {}, by_rows);
  ParameterSplit by_columns{ParameterSplit::By::kColumns};
  by_columns.experts = count;
  experts.down = ExpertLinear{prefix + "mlp.experts.down", own, spec_.ffn / sharing, width};
  experts.down.is_frozen = freezes_;
  // Transformer Engine's grouped linear layers support fp8; torchao's conversion leaves experts in 16 bits.
  experts.up.is_fp8 = experts.down.is_fp8 =
      types_.fp8 != Fp8Recipe::kNone && types_.fp8 != Fp8Recipe::kRowwise && types_.fp8_weights_shared_by > 0;
  experts.down.weight = AddParameter(role, experts.module, experts.down.name + ".weight",
                                     {count * width, spec_.ffn}, out_of, by_columns);
  if (spec.bias) {
    ParameterSplit whole;
    whole.experts = count;
    experts.down.bias =
        AddParameter(role, experts.module, experts.down.name + ".bias", {count * width}, {}, whole);
    experts.down.adds_bias_apart = framework_ == Framework::kMegatronCore;
  }
  experts.load = ExpertLoad::Of(
      spec, experts.sends_own_tokens ? stream_.tokens / tensor_.ranks() : stream_.tokens, expert_.ranks());
  return experts;
}

namespace {

// Parameters, by index in the role, that are weights of fp8 products. (A block with experts has no MLP of its
// own, and so no weights of one.)
void AddFp8Weight(const Linear& layer, std::vector<int>& weights) {
  if (layer.is_fp8 && layer.weight >= 0) weights.push_back(layer.weight);
}
void AddFp8Weights(TransformerBlock& block, std::vector<int>& weights) {
  AddFp8Weight(block.projection, weights);
  AddFp8Weight(block.down, weights);
  if (block.latent)
    for (const Linear* layer : block.latent->layers()) AddFp8Weight(*layer, weights);
  for (const std::vector<Linear>* layers : {&block.qkv.layers, &block.up.layers})
    for (const Linear& layer : *layers) AddFp8Weight(layer, weights);
  if (block.cross) {
    AddFp8Weight(block.cross->projection, weights);
    for (const std::vector<Linear>* layers : {&block.cross->queries.layers, &block.cross->keys.layers})
      for (const Linear& layer : *layers) AddFp8Weight(layer, weights);
  }
  if (!block.experts) return;
  for (const std::optional<Linear>* layer : {&block.experts->latent_down, &block.experts->latent_up})
    if (*layer) AddFp8Weight(**layer, weights);
  for (const ExpertLinear* layer : {&block.experts->up, &block.experts->down})
    if (layer->is_fp8) weights.push_back(layer->weight);
}

}  // namespace

// Marks the fp8 weights if they are stored so, and adds buffers for what is kept of them besides: each as it
// lies (unless that is what is stored) and transposed.
void Transformer::KeepWeightsInFp8(Role& role) {
  if (types_.fp8 == Fp8Recipe::kNone) return;
  std::vector<int> of_blocks, of_predictors;
  for (std::vector<TransformerBlock>* blocks : {&encoder_.blocks, &blocks_})
    for (TransformerBlock& block : *blocks) AddFp8Weights(block, of_blocks);
  for (TokenPredictor& predictor : predictors_) {
    AddFp8Weight(predictor.projection, of_predictors);
    AddFp8Weights(predictor.block, of_predictors);
  }
  if (types_.stores_weights_in_fp8)
    for (const std::vector<int>* weights : {&of_blocks, &of_predictors})
      for (const int weight : *weights) role.parameters[weight].is_factor = true;
  if (!types_.keeps_weights_in_fp8) return;
  const auto keep = [&](const std::vector<int>& weights, const std::string& of) {
    int64_t elements = 0;
    for (const int weight : weights) elements += role.parameters[weight].elements;
    if (elements == 0) return;
    const int forms = types_.stores_weights_in_fp8 ? 1 : 2;
    kept_buffers_.push_back(NewBuffer(role, of + ".weights.fp8", forms * FactorBytes(types_.fp8, elements),
                                      Category::kParameters, types_.factor())
                                .buffer);
  };
  keep(of_blocks, fmt::format("blocks.{}-{}", stage_.first, stage_.end - 1));
  keep(of_predictors, "mtp");
}

// With fp4, Transformer Engine leaves these modules in 16 bits
// (megatron/core/transformer/multi_token_prediction.py).
TokenPredictor Transformer::RegisterPredictor(Role& role, int64_t index) {
  const std::string name = fmt::format("mtp.{}", index);
  const bool is_fp8 = types_.fp8 != Fp8Recipe::kNone && types_.fp8 != Fp8Recipe::kNvfp4 && spec_.mtp->fp8;
  const int64_t elements_before = registered_elements_;
  TokenPredictor predictor;
  predictor.name = name;
  predictor.module = AddModule(name, kRootModule);
  predictor.embedding_norm = RegisterNorm(role, predictor.module, name + ".enorm", spec_.hidden);
  predictor.hidden_norm = RegisterNorm(role, predictor.module, name + ".hnorm", spec_.hidden);
  predictor.projection =
      RegisterWhole(role, predictor.module, name + ".eh_proj", 2 * spec_.hidden, spec_.hidden, kOfOwnTokens);
  predictor.projection.is_fp8 = is_fp8;
  predictor.block = RegisterBlock(role, name + ".block", predictor.module, spec_.KindOfModules());
  predictor.block.recompute = recompute_of_predictors_;
  if (!is_fp8) LeaveIn16Bits(predictor.block);
  predictor.final_norm = RegisterNorm(role, predictor.module, name + ".norm_f", spec_.hidden);
  predictor_elements_ = registered_elements_ - elements_before;
  return predictor;
}

// Adds the predictors after the last layer, with a copy of the embedding if the stage does not have it.
void Transformer::RegisterPredictors(Role& role, int64_t table_ordinal) {
  if (!spec_.mtp) return;
  if (ends_model() && !stage_.is_first) {
    embedding_module_ = AddModule("embedding", kRootModule);
    table_ = AddTied(role, embedding_module_, "wte.weight", {spec_.vocab, spec_.hidden},
                     {Distribution::kNormal, kInitDeviation}, table_ordinal,
                     {ParameterSplit::By::kRows, {spec_.vocab}});
  }
  is_hidden_ = true;
  for (int64_t i = 0; i < spec_.mtp->Modules(); ++i) {
    TokenPredictor predictor = RegisterPredictor(role, i);
    if (ends_model()) predictors_.push_back(std::move(predictor));
  }
  is_hidden_ = false;
}

std::optional<RelativePositions> Transformer::RegisterRelative(Role& role, const std::string& name,
                                                               const TokenStream& stream, bool causal) {
  if (spec_.position != PositionKind::kRelative) return std::nullopt;
  RelativePositions relative{name, AddModule(name, kRootModule)};
  relative.table =
      AddParameter(role, relative.module, name + ".weight", {spec_.heads, RelativeBuckets::kCount},
                   {Distribution::kNormal, kInitDeviation}, {ParameterSplit::By::kRows, {spec_.heads}});
  relative.batch = batch_;
  relative.seq = stream.seq;
  relative.heads = heads_;
  relative.causal = causal;
  return relative;
}

void Transformer::Register(Role& role) {
  AddModule("", -1);
  freezes_ = spec_.lora.has_value();
  is_in_stage_ = stage_.is_first;
  embedding_module_ = AddModule("embedding", kRootModule);
  const ParameterInit weight{Distribution::kNormal, kInitDeviation};
  const ParameterSplit by_vocabulary{ParameterSplit::By::kRows, {spec_.vocab}};
  table_ =
      AddParameter(role, embedding_module_, "wte.weight", {spec_.vocab, spec_.hidden}, weight, by_vocabulary);
  const int64_t table_ordinal = next_ordinal_ - 1;
  if (learned_positions()) {
    const auto positions = [&](const char* name, int64_t seq) {
      return AddParameter(role, embedding_module_, name, {seq, spec_.hidden}, weight);
    };
    if (spec_.encoder) encoder_.positions = positions("encoder.wpe.weight", spec_.encoder->seq_len);
    positions_ = positions("wpe.weight", spec_.seq_len);
  }
  RegisterEncoder(role);
  relative_ = RegisterRelative(role, "relative", stream_, spec_.causal);
  is_hidden_ = true;
  for (int64_t index = 0; index < spec_.layers; ++index) {
    const int64_t layer = spec_.EncoderLayers() + index;
    is_in_stage_ = stage_.first <= layer && layer < stage_.end;
    layer_ = static_cast<int>(layer);
    TransformerBlock block =
        RegisterBlock(role, fmt::format("blocks.{}", index), kRootModule, spec_.KindOf(index));
    if (!is_in_stage_) continue;
    block.recompute = recompute_of_layer_[encoder_.blocks.size() + blocks_.size()];
    block.input_has_gradient = !spec_.lora || !stage_.is_first || !blocks_.empty();
    blocks_.push_back(std::move(block));
  }
  is_in_stage_ = ends_model();
  layer_ = -1;
  is_hidden_ = false;
  norm_module_ = AddModule("norm_f", kRootModule);
  final_norm_ = RegisterNorm(role, norm_module_, "norm_f", spec_.hidden);
  RegisterPredictors(role, table_ordinal);
  KeepWeightsInFp8(role);
  is_in_stage_ = stage_.is_last;
  head_module_ = AddModule("head", kRootModule);
  if (spec_.tie_embeddings) {
    if (stage_.is_last && !stage_.is_first && !spec_.mtp)
      table_ = AddTied(role, head_module_, "wte.weight", {spec_.vocab, spec_.hidden}, weight, table_ordinal,
                       by_vocabulary);
    Linear head{"head", spec_.hidden, vocab_, table_, -1};
    head.is_frozen = freezes_;
    if (tensor_.splits()) head.split = LinearSplit::kColumnParallel;
    head_ = ProjectionsOf({head});
  } else {
    head_ = RegisterProjections(role, head_module_, "", {"head"}, {{"head", spec_.vocab}}, false);
  }
}

}  // namespace windtunnel
