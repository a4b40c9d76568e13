// Checkpoints on the disk (docs/contract.md, "Checkpoints").
//
//   DIR/step_00000040/metadata.json              every tensor's whole shape, and its pieces: in which file, which elements, CRC-32
//                     rank_00000.safetensors     the pieces that rank 0 saved: of a DistributedDataParallel job, all
//   DIR/latest                                   "step_00000040"
//
// A checkpoint is written under another name, forced to the disk and then renamed, so that whatever has the name step_… is complete.
//
//   CheckpointDirectory directory("checkpoints");
//   WT_RETURN_IF_ERROR(SaveCheckpoint(directory, info, plan, rank, values, barrier));
//   WT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open("checkpoints"));
//   WT_ASSIGN_OR_RETURN(const std::vector<float> table, checkpoint.Read("model.wte.weight"));
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/tensor_pieces.h"
#include "runtime/checkpoint/tensor_source.h"

namespace windtunnel {

// What a checkpoint says beside its tensors. The state of the sampler and of all random numbers is in it: they are functions of the
// seed, the step and the number of samples seen.
struct CheckpointInfo {
  int64_t step = 0;       // done when it was saved
  int64_t samples = 0;    // that all ranks together have trained on
  uint64_t seed = 0;      // run.seed
  int world_size = 1;     // of the job that saved it
  std::string optimizer;  // optimizer.kind
  std::string scenario;   // resolved, YAML
  // Loss scaling; a job that does not scale its loss leaves scale 0, and keeps the number of steps that were skipped before it.
  LossScaleState loss_scale = {};
};

class Checkpoint : public TensorSource {
 public:
  // `path` is a checkpoint (a directory step_…), or a directory of them, of which the latest is taken. Errors: InvalidInput, naming the
  // file: none there, or damaged.
  static Result<Checkpoint> Open(const std::string& path);

  const CheckpointInfo& info() const { return info_; }
  std::string path() const override { return path_; }
  // "step_00000040", and a CRC-32 of all that its metadata say, which has those of the pieces: what tells it from others.
  std::string identity() const;
  std::vector<std::string> Tensors() const;
  // Of all files together.
  int64_t bytes() const { return bytes_; }

  std::optional<std::vector<int64_t>> ShapeOf(const std::string& tensor) const override;
  Result<std::vector<float>> Read(const std::string& tensor) const override;
  // Reads everything. The first damage found.
  Status Check() const;

 private:
  struct Piece {
    std::string file, key;
    std::vector<StridedRuns> runs;
    uint32_t crc32 = 0;
  };
  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<Piece> pieces;
  };
  friend struct CheckpointFormat;

  Status OpenFiles();
  Status CheckCoverage() const;

  std::string path_;
  uint32_t crc32_ = 0;  // of the metadata
  CheckpointInfo info_;
  int64_t bytes_ = 0;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, SafetensorsFile> files_;
};

// The text of a metadata.json, with the CRC-32 that it should have. InvalidInput where it is no JSON object. (Whoever changes metadata
// by hand, and tests, need it.)
Result<std::string> SealMetadata(const std::string& text);

// Whether a directory is a checkpoint, whole or damaged.
bool IsCheckpoint(const std::string& path);

// A directory of checkpoints.
class CheckpointDirectory {
 public:
  explicit CheckpointDirectory(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }

  // The newest complete checkpoint; nullopt where there is none.
  std::optional<std::string> Latest() const;
  // InvalidInput where the one that was saved last is there without its metadata.
  Status CheckWhole() const;
  // Steps of the complete checkpoints, ascending.
  std::vector<int64_t> Steps() const;
  std::string PathOf(int64_t step) const;
  std::string UnfinishedPathOf(int64_t step) const;

  // Makes an empty directory for the checkpoint of `step`, and takes away what interrupted jobs left. Failed.
  Status Begin(int64_t step) const;
  // Gives it its name, points `latest` to it, and takes away all but the `keep` newest (0: none).
  Status Finish(int64_t step, int64_t keep) const;
  // After a failure: what this rank has written of it, which may be what has filled the disk.
  void Abandon(int64_t step, int rank) const;

 private:
  void RemoveLeftovers() const;
  // The name that the file `latest` has.
  std::optional<std::string> NameOfLatest() const;
  std::string path_;
};

struct SaveOptions {
  CheckpointInfo info;
  int64_t keep = 2;
  std::function<Result<std::vector<float>>(const Slice&)> values;  // of this rank's slice
  std::function<Status()> barrier;                                 // of all ranks that take part
};
// Saves this rank's part; all ranks call it. Rank 0 finishes the checkpoint, and when the call returns it is complete. The bytes that
// this rank wrote. Errors: Failed (a file cannot be written: names it), those of the barrier.
Result<int64_t> SaveCheckpoint(const CheckpointDirectory& directory, const Plan& plan, int rank,
                               const SaveOptions& options);

// Puts what rank `rank` holds into place: values, and with_optimizer their states. `put` takes a slice of this rank and its values.
// Errors: InvalidInput (a tensor that the source lacks, or has in another shape: names both), those of reading.
Status LoadPieces(const TensorSource& source, const Plan& plan, int rank, bool with_optimizer,
                  const std::function<void(const Slice&, std::span<const float>)>& put);

}  // namespace windtunnel
