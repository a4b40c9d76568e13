#include "cli/terminal.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cli/notes.h"

namespace windtunnel {

namespace {

// mpirun gives its processes a terminal, wherever its own output goes.
bool IsTerminalOfUsers(std::FILE* file) {
  return IsTerminal(file) && std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr;
}

}  // namespace

Ink StandardInk() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  bool refused = (no_color && *no_color) || (terminal && std::string_view(terminal) == "dumb");
  return Ink(!refused && IsTerminalOfUsers(stdout));
}

bool ShowsProgress(const Options& options) {
  return options.progress && !options.quiet && IsTerminalOfUsers(stderr);
}

LiveOptions LiveOptionsFor(const Options& options, Progress& progress) {
  LiveOptions live;
  if (ShowsProgress(options))
    live.progress = [&progress](const std::string& what, double share) { progress.Show(what, share); };
  if (options.verbose) live.log = [&progress](const std::string& line) { progress.Log(line); };
  live.note = [&options, &progress](const std::string& line) {
    progress.Clear();
    Note(options, line);
  };
  return live;
}

}  // namespace windtunnel
