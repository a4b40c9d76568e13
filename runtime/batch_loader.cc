#include "runtime/batch_loader.h"

#include <algorithm>

#include "base/ceil_divide.h"

namespace windtunnel {

Result<std::unique_ptr<BatchLoader>> BatchLoader::Make(const Scenario& scenario, int64_t replica,
                                                       int64_t replicas) {
  WT_ASSIGN_OR_RETURN(std::unique_ptr<DataSource> source, MakeDataSource(scenario));
  SamplerOptions options;
  options.replicas = replicas;
  options.rank = replica;
  options.seed = scenario.run.seed;
  return std::unique_ptr<BatchLoader>(new BatchLoader(std::move(source), options, scenario));
}

BatchLoader::BatchLoader(std::unique_ptr<DataSource> source, const SamplerOptions& options,
                         const Scenario& scenario)
    : source_(std::move(source)),
      options_(options),
      sampler_(source_->size(), options),
      accumulate_(scenario.batch.accumulate),
      batch_samples_(scenario.batch.micro * scenario.batch.accumulate * scenario.parallel.data.size),
      tokens_(scenario.model.kind == ModelKind::kTransformer) {}

void BatchLoader::GoOn(int64_t step, int64_t samples) {
  first_step_ = step;
  first_sample_ = CeilDivide(samples, options_.replicas);
}

int64_t BatchLoader::SamplesSeen(int64_t steps) const {
  return options_.replicas * first_sample_ + (steps - first_step_) * batch_samples_;
}

int64_t BatchLoader::SampleAt(int64_t position) {
  const int64_t epoch = position / sampler_.num_samples();
  if (epoch != epoch_) sampler_.set_epoch(epoch);
  epoch_ = epoch;
  return sampler_.indices()[position % sampler_.num_samples()];
}

void BatchLoader::LoadTokens(const LoadBatch& op, int64_t sample, int64_t row, int context_rank,
                             std::span<const TensorRef> writes) {
  const auto of_row = [&](size_t tensor) { return writes[tensor].i32() + row * op.columns; };
  if (op.context.ranks == 1 && op.further == 0 && op.source == 0) {
    const auto tokens = static_cast<size_t>(op.columns);
    source_->Tokens(sample, {of_row(0), tokens}, {of_row(1), tokens});
    return;
  }
  const int64_t tokens = op.columns * op.context.ranks + op.source;
  ids_.resize(static_cast<size_t>(tokens));
  targets_.resize(static_cast<size_t>(tokens));
  source_->Tokens(sample, ids_, targets_);
  if (op.source > 0) {  // goes with neither context ranks nor further targets
    const auto own = ids_.begin() + op.source;
    std::copy(ids_.begin(), own, writes[2].i32() + row * op.source);
    std::copy(own, ids_.end(), of_row(0));
    std::copy(targets_.begin() + op.source, targets_.end(), of_row(1));
    return;
  }
  for (int64_t token = 0; token < op.columns; ++token) {
    const int64_t whole = WholePosition(op.context, context_rank, op.columns, token);
    of_row(0)[token] = ids_[static_cast<size_t>(whole)];
    for (int64_t further = 0; further <= op.further; ++further) {
      const int64_t at = whole + further;
      of_row(static_cast<size_t>(1 + further))[token] =
          at < tokens ? targets_[static_cast<size_t>(at)] : kNoToken;
    }
  }
}

void BatchLoader::LoadSample(const LoadBatch& op, int64_t sample, int64_t row, int context_rank,
                             std::span<const TensorRef> writes) {
  if (tokens_) return LoadTokens(op, sample, row, context_rank, writes);
  source_->Features(sample, {writes[0].f32() + row * op.columns, static_cast<size_t>(op.columns)},
                    {writes[1].f32() + row * op.targets, static_cast<size_t>(op.targets)});
}

void BatchLoader::Load(const LoadBatch& op, int64_t step, int context_rank,
                       std::span<const TensorRef> writes) {
  const int64_t first = first_sample_ + ((step - first_step_) * accumulate_ + op.micro_batch) * op.rows;
  for (int64_t row = 0; row < op.rows; ++row)
    LoadSample(op, SampleAt(first + row), row, context_rank, writes);
}

// In the order of the data: within a micro-batch, one replica's rows come after another's.
void BatchLoader::LoadHeldOut(const LoadBatch& op, int64_t batch, int context_rank,
                              std::span<const TensorRef> writes) {
  const int64_t micro_batch = batch * accumulate_ + op.micro_batch;
  const int64_t first = source_->size() + (micro_batch * options_.replicas + options_.rank) * op.rows;
  for (int64_t row = 0; row < op.rows; ++row) LoadSample(op, first + row, row, context_rank, writes);
}

}  // namespace windtunnel
