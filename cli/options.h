// What the command line asks for, as values. Parsing (command_line.h) is separate from execution
// (commands.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace windtunnel {

enum class Command {
  kPrint,  // --help or --version: prints `text`
  kPredict,
  kRun,
  kCompare,
  kCalibrate,
  kSearch,
  kValidate,
  kExplain,
  kList,
  kProfileShow,
  kProfileMerge,
  kProfileCheck,
  kCompletion,
  kCheckpointShow,
  kCheckpointCheck,
  kCheckpointExport,
  kImport,
  kRank,  // hidden: one rank of a job that this program launched
};

struct Options {
  Command command = Command::kPrint;
  std::string text;

  std::vector<std::string> files;  // scenarios, profiles, rows, lists, the job, or the shell
  std::string profile;             // a file or a name; empty: this machine's cache
  std::string framework_profile;   // a file; empty: the built-in profile of the scenario's framework
  std::vector<std::string> steps;  // calibrate: files of validation rows to fit a framework profile to
  // validate: the share of each source's rows to fit to.
  std::optional<double> cross_fit;
  int64_t seeds = 5;                   // of cross_fit: number of draws
  std::string json, html, trace, svg;  // empty: not asked for; "-": standard output
  std::string out;                     // calibrate, import, profile merge, checkpoint export
  std::string tensorboard;             // run: a directory for event files; empty: none
  int64_t log_every = 1;               // run: report the first step and every step that this number divides
  std::vector<std::string> sets;       // KEY=VALUE
  // import: whose settings the file holds (empty: its ending says it), NAME=VALUE of the shell's variables,
  // and the words of a command instead of a file.
  std::string from;
  std::vector<std::string> defines, launch;
  std::optional<uint64_t> seed;
  bool recalibrate = false;
  int top = 10;                           // search: how many of the fastest to show
  int threads = 0;                        // search; 0: one for each core
  bool quick = false, full = false;       // search: predict nothing, or the whole Pareto front, in full
  std::string state;                      // search: the file of results, which it resumes from
  double tokens = 0;                      // predict: of a whole training to report on; 0: none
  bool fold = true;                       // predict, compare, explain: simulate identical ranks once
  bool resolved = false, memory = false, schedule = false;  // explain

  // run
  std::string checkpoint_dir, resume_from, import_weights, export_weights, flight_record;
  std::optional<int64_t> checkpoint_every;
  int64_t keep = 2;
  bool resume = false, evaluate = false;
  int max_restarts = 0;
  std::optional<double> collective_timeout_s;

  // run, compare, calibrate on several nodes
  std::optional<int> nnodes, nproc_per_node, node_rank;
  std::string master_addr, rdzv_id;
  int master_port = 29500;
  std::string rdzv_backend;  // without effect
  bool standalone = false;
  double rendezvous_timeout_s = 60;

  bool quiet = false, verbose = false, progress = true;
};

// Whether the options say which node of a job this is.
inline bool NamesNodes(const Options& options) {
  return options.nnodes || options.node_rank || !options.master_addr.empty();
}

}  // namespace windtunnel
