#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/paths.h"
#include "cost_models/device_spec.h"

namespace windtunnel {

Result<int> CompletionCommand(const Options& options) {
  WT_ASSIGN_OR_RETURN(const std::string script,
                      CompletionScript(options.files.front(), DescribeCommands(), EmbeddedProfileNames()));
  WT_RETURN_IF_ERROR(Print(script));
  return 0;
}

}  // namespace windtunnel
