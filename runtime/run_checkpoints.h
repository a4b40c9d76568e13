// What one rank's run begins with, and the checkpoints that it saves. All ranks call the same
// functions at the same steps.
//
//   RunCheckpoints checkpoints(session, store, options, /*steps=*/100);
//   WT_ASSIGN_OR_RETURN(const int64_t first, checkpoints.Begin());  // after Initialize
//   for (int64_t step = first; step < 100; ++step) {
//     WT_RETURN_IF_ERROR(session.Step());
//     WT_RETURN_IF_ERROR(checkpoints.AfterStep());
//   }
#pragma once

#include <utility>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/input_files.h"
#include "runtime/job.h"
#include "runtime/rank_session.h"
#include "runtime/run_options.h"
#include "runtime/store.h"

namespace windtunnel {

class RunCheckpoints {
 public:
  // `steps` is the number of steps of the whole run. Session and store outlive this object.
  RunCheckpoints(RankSession& session, Store& store, RunOptions options, int64_t steps)
      : session_(session),
        store_(store),
        options_(std::move(options)),
        steps_(steps),
        data_(DigestOfData(session.plan().scenario)) {}

  // Loads the checkpoint that the run resumes from, or the weights that it imports. Returns the run's first
  // step. Errors: InvalidInput (a checkpoint that is damaged, of another model, optimizer or seed, of more
  // steps than the run has, or not the one that rank 0 finds; a directory to save in that some rank does not
  // see), those of the restore program.
  Result<int64_t> Begin();
  // Saves when a checkpoint is due. Failed: names the file.
  Status AfterStep();

  // Whether the step that comes next follows a save, which leaves caches cold and the disk busy.
  bool HasJustSaved() const { return !saves_.empty() && saves_.back().step == session_.steps_done(); }
  const std::vector<RankRun::Save>& saves() const { return saves_; }

 private:
  Status Resume();
  Status AgreeThatThereIsOne();
  Status AgreeOnDirectory();
  Result<Checkpoint> OpenTheSame();
  // Waits until all ranks are here. Ranks count their meetings in the store: each rank in a key of its own,
  // and all together in one that the waiting ranks watch. A meeting adds no key, so the store does not grow
  // with the number of checkpoints. Every attempt of a job has a store of its own, so counts begin at 0.
  Status Meet();
  // Failed: a rank could not write its part, which rank, and why.
  Status FirstFailure();
  Status NobodyWrites(int64_t meeting);
  Status Import();

  RankSession& session_;
  Store& store_;
  const RunOptions options_;
  int64_t steps_;
  const std::string data_;  // the digest of the text, as the run began with it
  std::vector<RankRun::Save> saves_;
};

}  // namespace windtunnel
