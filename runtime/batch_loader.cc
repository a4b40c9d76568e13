#include "runtime/batch_loader.h"

namespace windtunnel {

Result<std::unique_ptr<BatchLoader>> BatchLoader::Make(const Scenario& scenario, int64_t replica,
                                                       int64_t replicas) {
  WT_ASSIGN_OR_RETURN(std::unique_ptr<DataSource> source, MakeDataSource(scenario));
  SamplerOptions options;
  options.replicas = replicas;
  options.rank = replica;
  options.seed = scenario.run.seed;
  DistributedSampler sampler(source->size(), options);
  return std::unique_ptr<BatchLoader>(new BatchLoader(std::move(source), std::move(sampler),
                                                      scenario.batch.accumulate,
                                                      scenario.model.kind == ModelKind::kTransformer));
}

int64_t BatchLoader::SampleAt(int64_t position) {
  const int64_t epoch = position / sampler_.num_samples();
  if (epoch != epoch_) sampler_.set_epoch(epoch);
  epoch_ = epoch;
  return sampler_.indices()[position % sampler_.num_samples()];
}

void BatchLoader::LoadPart(const LoadBatch& op, int64_t sample, int context_rank, int32_t* ids,
                           int32_t* targets) {
  const size_t tokens = static_cast<size_t>(op.columns * op.context.ranks);
  sequence_.resize(2 * tokens);
  source_->Tokens(sample, {sequence_.data(), tokens}, {sequence_.data() + tokens, tokens});
  for (int64_t token = 0; token < op.columns; ++token) {
    const size_t whole = static_cast<size_t>(WholePosition(op.context, context_rank, op.columns, token));
    ids[token] = sequence_[whole];
    targets[token] = sequence_[tokens + whole];
  }
}

void BatchLoader::Load(const LoadBatch& op, int64_t step, int context_rank,
                       std::span<const TensorRef> writes) {
  const int64_t first = (step * accumulate_ + op.micro_batch) * op.rows;
  const int64_t outputs = tokens_ ? op.columns : op.targets;
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t sample = SampleAt(first + row);
    if (op.context.ranks > 1) {
      LoadPart(op, sample, context_rank, writes[0].i32() + row * op.columns,
               writes[1].i32() + row * op.columns);
    } else if (tokens_) {
      source_->Tokens(sample, {writes[0].i32() + row * op.columns, static_cast<size_t>(op.columns)},
                      {writes[1].i32() + row * outputs, static_cast<size_t>(outputs)});
    } else {
      source_->Features(sample, {writes[0].f32() + row * op.columns, static_cast<size_t>(op.columns)},
                        {writes[1].f32() + row * outputs, static_cast<size_t>(outputs)});
    }
  }
}

}  // namespace windtunnel
