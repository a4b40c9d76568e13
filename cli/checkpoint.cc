#include "runtime/checkpoint/checkpoint.h"

#include "base/format.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/paths.h"
#include "runtime/checkpoint/hugging_face_weights.h"

namespace windtunnel {
namespace {

std::string Summary(const Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  return fmt::format("{}: step {}, {} samples seen, {} tensors, {}, saved by {}", checkpoint.path(),
                     info.step, info.samples, checkpoint.Tensors().size(),
                     FormatBytes(Bytes(checkpoint.bytes())), Counted(info.world_size, "rank"));
}

}  // namespace

Result<int> CheckpointShowCommand(const Options& options) {
  for (const std::string& path : options.files) {
    WT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(path));
    std::string text = Summary(checkpoint) + "\n";
    for (const std::string& name : checkpoint.Tensors())
      text += fmt::format("  {}  {}\n", name, FormatShape(*checkpoint.ShapeOf(name)));
    WT_RETURN_IF_ERROR(Print(text));
  }
  return 0;
}

Result<int> CheckpointCheckCommand(const Options& options) {
  for (const std::string& path : options.files) {
    WT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(path));
    WT_RETURN_IF_ERROR(checkpoint.Check());
    WT_RETURN_IF_ERROR(Print(Summary(checkpoint) + "\n"));
  }
  return 0;
}

Result<int> CheckpointExportCommand(const Options& options) {
  WT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.files.front()));
  WT_RETURN_IF_ERROR(CheckOutputDirectory("--out", options.out));
  WT_RETURN_IF_ERROR(ExportHuggingFace(checkpoint, options.out));
  return 0;
}

}  // namespace windtunnel
