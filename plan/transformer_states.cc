// The parameters of a transformer's layers whose heads have states: Mamba-2's and gated delta networks.
#include <cmath>
#include <utility>

#include "plan/transformer.h"

namespace windtunnel {
namespace {

using Distribution = InitializeParameter::Distribution;

}  // namespace

// What both kinds have in common; the shape and the parameters are left.
StateSpace Transformer::BeginStateSpace(const std::string& prefix) const {
  StateSpace model;
  model.name = prefix.substr(0, prefix.size() - 1);
  model.context = context_;
  model.epsilon = spec_.norm_epsilon;
  model.by_chunks = framework_ != Framework::kWindtunnel;
  if (IsMegatronOrDeepspeed(framework_)) model.style = StateSpace::Style::kNormApart;
  return model;
}

// `blocks`: rows that tensor ranks divide.
void Transformer::AddStateParameter(Role& role, ModuleId module, StateSpace& model, const char* suffix,
                                    std::vector<int64_t> shape, ParameterInit init,
                                    std::vector<int64_t> blocks) {
  const int64_t of_row = shape.size() > 1 ? shape[1] : 1;
  const int index = AddParameter(role, module, model.name + suffix, std::move(shape), init,
                                 {ParameterSplit::By::kRows, blocks});
  for (int64_t& rows : blocks) rows = rows / tensor_.ranks() * of_row;
  model.parameters.push_back({index, std::move(blocks), suffix});
}

// mamba_ssm's Mamba2 and its initial values. Its projections have no biases.
void Transformer::RegisterStateSpace(Role& role, const std::string& prefix, TransformerBlock& block) {
  const MambaSpec& spec = *spec_.mamba;
  const ModuleId module = block.attention_module;
  const int64_t inner = spec.inner(), shared = spec.groups * spec.state;
  const int64_t sharing = tensor_.ranks() * context_.ranks();  // the ranks that share heads within the model
  const std::vector<int64_t> convolved = {inner, shared, shared};
  StateSpace model = BeginStateSpace(prefix);
  model.shape = StateSpaceShape{.batch = batch_,
                                .seq = stream_.seq * context_.ranks(),
                                .heads = spec.heads / sharing,
                                .groups = spec.groups / sharing,
                                .head_dim = spec.head_dim,
                                .state = spec.state,
                                .conv = spec.conv,
                                .chunk = spec.chunk,
                                .dtype = types_.activations};
  if (is_pytorch()) model.style = StateSpace::Style::kOutputAgain;
  // Megatron-Core's Muon leaves the first projection to AdamW.
  const bool were_hidden = std::exchange(is_hidden_, false);
  Linear in = RegisterColumnParallel(role, module, prefix + "in_proj", spec_.hidden,
                                     {inner, inner, shared, shared, spec.heads}, /*bias=*/false);
  block.qkv = ProjectionsOf({std::move(in)});
  const double bound = 1 / std::sqrt(static_cast<double>(spec.conv));
  AddStateParameter(role, module, model, ".conv.weight", {inner + 2 * shared, spec.conv},
                    {Distribution::kUniform, bound}, convolved);
  AddStateParameter(role, module, model, ".conv.bias", {inner + 2 * shared}, {Distribution::kUniform, bound},
                    convolved);
  AddStateParameter(role, module, model, ".dt_bias", {spec.heads}, {Distribution::kStepSize, 0},
                    {spec.heads});
  AddStateParameter(role, module, model, ".A_log", {spec.heads}, {Distribution::kDecay, 0}, {spec.heads});
  AddStateParameter(role, module, model, ".D", {spec.heads}, {Distribution::kOnes, 0}, {spec.heads});
  AddStateParameter(role, module, model, ".norm.weight", {inner}, {Distribution::kOnes, 0}, {inner});
  is_hidden_ = were_hidden;
  block.state_space = std::move(model);
  block.projection = RegisterRowParallel(role, module, prefix + "out_proj", inner, /*bias=*/false);
}

// Qwen3-Next's (transformers, modeling_qwen3_next.py; Megatron-Core, gated_delta_net.py), whose projections
// have no biases. All heads share the norm's weight.
void Transformer::RegisterDeltaNet(Role& role, const std::string& prefix, TransformerBlock& block) {
  const DeltaNetSpec& spec = *spec_.delta_net;
  const ModuleId module = block.attention_module;
  const int64_t keys = spec.keys(), inner = spec.inner(), heads = spec.value_heads;
  const int64_t sharing = tensor_.ranks() * context_.ranks();
  StateSpace model = BeginStateSpace(prefix);
  model.shape = DeltaNetShape{.batch = batch_,
                              .seq = stream_.seq * context_.ranks(),
                              .key_heads = spec.key_heads / sharing,
                              .value_heads = heads / sharing,
                              .key_dim = spec.key_dim,
                              .value_dim = spec.value_dim,
                              .conv = spec.conv,
                              .dtype = types_.activations};
  if (is_pytorch()) model.kept = DeltaNetKept::kByTransformers;
  const bool were_hidden = std::exchange(is_hidden_, false);
  if (is_pytorch()) {
    std::vector<Linear> layers;
    layers.push_back(RegisterColumnParallel(role, module, prefix + "in_proj_qkvz", spec_.hidden,
                                            {keys, keys, inner, inner}, /*bias=*/false));
    layers.push_back(RegisterColumnParallel(role, module, prefix + "in_proj_ba", spec_.hidden, {heads, heads},
                                            /*bias=*/false));
    block.qkv = ProjectionsOf(std::move(layers));
  } else {
    block.qkv = ProjectionsOf({RegisterColumnParallel(role, module, prefix + "in_proj", spec_.hidden,
                                                      {keys, keys, inner, inner, heads, heads},
                                                      /*bias=*/false)});
  }
  const double bound = 1 / std::sqrt(static_cast<double>(spec.conv));
  AddStateParameter(role, module, model, ".conv.weight", {spec.convolved(), spec.conv},
                    {Distribution::kUniform, bound}, {keys, keys, inner});
  AddStateParameter(role, module, model, ".A_log", {heads}, {Distribution::kDecay, 0}, {heads});
  AddStateParameter(role, module, model, ".dt_bias", {heads}, {Distribution::kOnes, 0}, {heads});
  ParameterSplit of_own_heads;
  of_own_heads.sees_partial_sums = true;
  model.parameters.push_back({AddParameter(role, module, model.name + ".norm.weight", {spec.value_dim},
                                           {Distribution::kOnes, 0}, of_own_heads),
                              {spec.value_dim},
                              ".norm.weight",
                              /*is_shared=*/true});
  is_hidden_ = were_hidden;
  block.state_space = std::move(model);
  block.projection = RegisterRowParallel(role, module, prefix + "out_proj", inner, /*bias=*/false);
}

}  // namespace windtunnel
