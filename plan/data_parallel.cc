#include "plan/data_parallel.h"

namespace windtunnel {

// A shard group has all experts, unless it has fewer ranks than there are expert ranks. The expert ranks then
// hold what the shard group holds of everything else several times.
NormRanks NormRanksOf(const StrategyContext& context) {
  const bool lacks_experts = context.expert.ranks() > context.dense.shard.ranks();
  NormRanks ranks{context.model_parts,
                  lacks_experts ? context.expert.ranks() / context.dense.shard.ranks() : 1};
  ranks.axes.insert(ranks.axes.begin(), lacks_experts ? &context.expert : &context.dense.shard);
  return ranks;
}

Slice OwnShard(const CollectiveStream& shard, Slice whole, int64_t elements) {
  if (shard.ranks() == 1) return Slice{whole.buffer, 0, elements};
  return Slice{whole.buffer, 0, elements, elements, shard.axis()};
}

OpIndex AddBeside(ProgramBuilder& b, StreamId stream, OpKind kind, std::string name, Slice from, Slice to,
                  std::vector<OpIndex> after) {
  std::erase_if(after, [&](OpIndex index) { return index < 0 || b.StreamOf(index) == stream; });
  return b.Add(std::move(kind), std::move(name), {from}, {to}, std::move(after), stream);
}

Slice ValuesBuffer(Role& role, const Parameter& parameter, DType type) {
  if (!parameter.packed)
    return NewBuffer(role, parameter.name, parameter.elements, Category::kParameters, type);
  return NewBuffer(role, parameter.name, parameter.Packed(parameter.elements), Category::kParameters,
                   *parameter.packed);
}

void AddFrozenValues(ProgramBuilder& b, int index, Slice place) {
  const DType type = b.role().buffers[place.buffer].dtype;
  if (type == DType::kFloat32) return AddInitialValues(b, {index}, {place});
  const std::string name = b.role().parameters[index].name;
  const int64_t numbers = b.role().parameters[index].elements;
  const Slice first = b.Temporary(name + " (fp32)", numbers, Category::kParameters);
  AddInitialValues(b, {index}, {first});
  if (IsPacked(type)) b.Add(Quantize{numbers, type}, name, {first}, {place});
  else b.Add(Copy{.elements = place.elements, .to = type}, name, {first}, {place});
}

void AddInitialValues(ProgramBuilder& b, const std::vector<int>& indices, const std::vector<Slice>& places) {
  for (size_t i = 0; i < indices.size(); ++i) {
    const Parameter& parameter = b.role().parameters[indices[i]];
    b.Add(InitializeParameter{parameter.init.distribution, parameter.elements, parameter.init.scale,
                              static_cast<uint64_t>(parameter.random_stream), parameter.part,
                              parameter.expert_stride},
          parameter.name, {}, {places[i]});
  }
}

}  // namespace windtunnel
