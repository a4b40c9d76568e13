// The commands, one file each. Each returns an exit status, or an error whose kind decides it. The status is
// 0, or 3 if something is outside the tolerance or there is nothing to compare with it.
#pragma once

#include "base/result.h"
#include "cli/options.h"

namespace windtunnel {

inline constexpr int kOutsideTolerance = 3;

Result<int> PredictCommand(const Options& options);
Result<int> RunLiveCommand(const Options& options);
Result<int> CompareCommand(const Options& options);
Result<int> CalibrateCommand(const Options& options);
Result<int> SearchCommand(const Options& options);
Result<int> ExplainCommand(const Options& options);
Result<int> ListCommand(const Options& options);
Result<int> ValidateCommand(const Options& options);
Result<int> ProfileShowCommand(const Options& options);
Result<int> ProfileMergeCommand(const Options& options);
Result<int> ProfileCheckCommand(const Options& options);
Result<int> CompletionCommand(const Options& options);
Result<int> CheckpointShowCommand(const Options& options);
Result<int> CheckpointCheckCommand(const Options& options);
Result<int> CheckpointExportCommand(const Options& options);
Result<int> ImportCommand(const Options& options);

// The whole program except main(): parses, runs and reports. Returns the exit status.
int RunCommandLine(int argc, char** argv);

}  // namespace windtunnel
