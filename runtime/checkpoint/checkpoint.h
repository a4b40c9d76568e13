// Checkpoints on the disk (docs/contract.md, "Checkpoints").
//
//   DIR/step_00000040/metadata.json            every tensor's whole shape, and its pieces: each one's file,
//                                              elements and CRC-32
//                     rank_00000.safetensors   the pieces of rank 0; of a DistributedDataParallel job all
//   DIR/latest                                 "step_00000040"
//
// A checkpoint is written under a temporary name, forced to the disk and then renamed, so every directory
// named step_… is complete.
//
//   CheckpointDirectory directory("checkpoints");
//   WT_RETURN_IF_ERROR(SaveCheckpoint(directory, plan, rank,
//                                     {.info = info, .values = values, .barrier = barrier}));
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
#include "plan/ops.h"
#include "plan/plan.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/tensor_source.h"

namespace windtunnel {

// What a checkpoint holds besides its tensors. This includes the state of the sampler and of all random
// numbers: they are functions of the seed, the step and the number of samples seen.
struct CheckpointInfo {
  int64_t step = 0;       // steps done when it was saved
  int64_t samples = 0;    // trained on by all ranks together
  uint64_t seed = 0;      // run.seed
  int world_size = 1;     // of the job that saved it
  std::string optimizer;  // optimizer.kind
  std::string scenario;   // resolved, YAML
  std::string data = {};  // DigestOfData; empty if unknown
  // Loss scaling. A job that does not scale its loss leaves scale at 0 and keeps the number of steps that
  // were skipped before.
  LossScaleState loss_scale = {};
};

class Checkpoint : public TensorSource {
 public:
  // `path` is a checkpoint (a directory step_…) or a directory of checkpoints (or the file `latest` in it),
  // of which the latest is opened. Errors: InvalidInput, naming the file: no checkpoint is there, or it is
  // damaged (of a directory: the one that was saved last, CheckpointDirectory::CheckWhole).
  static Result<Checkpoint> Open(const std::string& path);

  const CheckpointInfo& info() const { return info_; }
  std::string path() const override { return path_; }
  // Identifies the checkpoint: "step_00000040" and a CRC-32 of its metadata, which include the CRC-32 of
  // every piece.
  std::string identity() const;
  std::vector<std::string> Tensors() const;
  // The size of all files together.
  int64_t bytes() const { return bytes_; }

  std::optional<std::vector<int64_t>> ShapeOf(const std::string& tensor) const override;
  Result<std::vector<float>> Read(const std::string& tensor) const override;
  // Reads only the saved pieces that hold some of the elements. So a rank that has the part that it had when
  // the checkpoint was saved reads that alone.
  Result<std::vector<float>> ReadRuns(const std::string& tensor,
                                      const std::vector<StridedRuns>& runs) const override;
  // Reads everything. Returns the first damage found.
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

  Result<std::vector<float>> ReadPiece(const std::string& tensor, const Piece& piece) const;
  Status CheckCounts() const;
  Status OpenFiles();
  Status CheckCoverage() const;

  std::string path_;
  uint32_t crc32_ = 0;  // of the metadata
  CheckpointInfo info_;
  int64_t bytes_ = 0;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, SafetensorsFile> files_;
};

// Returns the text of a metadata.json with its CRC-32 set to the right value. InvalidInput if it is no JSON
// object. For tests and for editing metadata by hand.
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
  // InvalidInput if the checkpoint that was saved last (the file `latest` names it) exists but lacks its
  // metadata, or is missing and there is no other.
  Status CheckWhole() const;
  // Steps of the complete checkpoints, ascending.
  std::vector<int64_t> Steps() const;
  std::string PathOf(int64_t step) const;
  std::string UnfinishedPathOf(int64_t step) const;

  // Makes an empty directory for the checkpoint of `step` and removes what interrupted jobs left. Errors:
  // Failed.
  Status Begin(int64_t step) const;
  // Gives the checkpoint its final name, points `latest` to it, and removes all but the `keep` newest (0:
  // keeps all).
  Status Finish(int64_t step, int64_t keep) const;
  // After a failure: removes what this rank has written of the checkpoint, which may be what filled the disk.
  void Abandon(int64_t step, int rank) const;

 private:
  void RemoveLeftovers() const;
  // The name in the file `latest`.
  std::optional<std::string> NameOfLatest() const;
  std::string path_;
};

struct SaveOptions {
  CheckpointInfo info;
  int64_t keep = 2;
  std::function<Result<std::vector<float>>(const Slice&)> values;  // the values of one of this rank's slices
  std::function<Status()> barrier;                                 // of all ranks that take part
};
// Saves this rank's part; all ranks call it. Rank 0 finishes the checkpoint: when the call returns it is
// complete. Returns the bytes that this rank wrote. Errors: Failed (a file cannot be written; names it),
// those of the barrier.
Result<int64_t> SaveCheckpoint(const CheckpointDirectory& directory, const Plan& plan, int rank,
                               const SaveOptions& options);

// Loads what rank `rank` holds: parameter values and, if `with_optimizer`, their optimizer states. `put`
// takes a slice of this rank and its values. Errors: InvalidInput (the source lacks a tensor, or has it in
// another shape; names both), those of reading.
Status LoadPieces(const TensorSource& source, const Plan& plan, int rank, bool with_optimizer,
                  const std::function<void(const Slice&, std::span<const float>)>& put);

}  // namespace windtunnel
