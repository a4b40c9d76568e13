#include <cctype>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "base/errors_of.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/load_plan.h"
#include "cli/paths.h"
#include "runtime/live.h"
#include "scenarios/characters.h"

namespace windtunnel {
namespace {

Result<int> RunCommand(const Options& options) {
  switch (options.command) {
    case Command::kPrint:
      WT_RETURN_IF_ERROR(Print(options.text));
      return 0;
    case Command::kPredict:
      return PredictCommand(options);
    case Command::kRun:
      return RunLiveCommand(options);
    case Command::kCompare:
      return CompareCommand(options);
    case Command::kCalibrate:
      return CalibrateCommand(options);
    case Command::kSearch:
      return SearchCommand(options);
    case Command::kValidate:
      return ValidateCommand(options);
    case Command::kExplain:
      return ExplainCommand(options);
    case Command::kList:
      return ListCommand(options);
    case Command::kProfileShow:
      return ProfileShowCommand(options);
    case Command::kProfileMerge:
      return ProfileMergeCommand(options);
    case Command::kProfileCheck:
      return ProfileCheckCommand(options);
    case Command::kCompletion:
      return CompletionCommand(options);
    case Command::kCheckpointShow:
      return CheckpointShowCommand(options);
    case Command::kCheckpointCheck:
      return CheckpointCheckCommand(options);
    case Command::kCheckpointExport:
      return CheckpointExportCommand(options);
    case Command::kImport:
      return ImportCommand(options);
    case Command::kRank:
      return RunRank(options.files.front());
  }
  return 0;
}

bool TakesScenario(Command command) {
  return command == Command::kPredict || command == Command::kRun || command == Command::kCompare ||
         command == Command::kCalibrate || command == Command::kSearch || command == Command::kExplain;
}

// Whether `message` starts with FILE:LINE:COLUMN:, which editors know how to follow.
bool StartsWithPlace(std::string_view message) {
  size_t end = message.find(": ");
  if (end == std::string_view::npos) return false;
  for (int part = 0; part < 2; ++part) {
    size_t digits = end;
    while (digits > 0 && std::isdigit(static_cast<unsigned char>(message[digits - 1]))) --digits;
    if (digits == end || digits < 2 || message[digits - 1] != ':') return false;
    end = digits - 1;
  }
  return true;
}

void PrintError(const std::string& text) {
  std::fprintf(stderr, "%s%s\n", StartsWithPlace(text) ? "" : "windtunnel: ", text.c_str());
}

}  // namespace

int RunCommandLine(int argc, char** argv) {
  auto run = [&]() -> Result<int> {
    WT_RETURN_IF_ERROR(EnterUserDirectory());
    WT_ASSIGN_OR_RETURN(Options options, ParseCommandLine({argv + std::min(argc, 1), argv + argc}));
    const Result<int> status = RunCommand(options);
    if (status || !TakesScenario(options.command) || options.files.size() != 1) return status;
    return tl::unexpected(Placed(options, options.files.front(), status.error()));
  };
  const Result<int> status = [&]() -> Result<int> {
    try {
      return run();
    } catch (const std::bad_alloc&) {
      return Failed("this machine's memory is exhausted");
    } catch (const std::exception& error) {  // such as no threads left, or an unwritable standard output
      return Failed("{}", Printable(MessageOf(error)));
    }
  }();
  if (status) return *status;
  const Error& error = status.error();
  if (error.kind == ErrorKind::kFailed) {
    PrintError(error.message);
    return 1;
  }
  // Each mistake is one line, whatever characters the input's names contain.
  PrintError(Printable(error.message));
  for (const std::string& other : error.others) PrintError(Printable(other));
  return 2;
}

}  // namespace windtunnel
