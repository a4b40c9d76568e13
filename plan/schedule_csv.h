// Schedule files, as torch.distributed.pipelining reads and writes them: a row for each rank, a cell for each
// action (stage, F B I or W, micro-batch), and empty cells where torch shows a rank as idle:
//
//   0F0,0F1,,,0B0,,0B1
//   ,1F0,1B0,1F1,1B1
//
// Idle cells carry no meaning and are not kept. torch's pair "(0F1;3B0)OVERLAP_F_B" is read as its actions
// one after the other.
// Communication ("compute_comms": 0UNSHARD, 0SEND_F0, …) is skipped: it follows from schedule and strategy.
#pragma once

#include <string>

#include "base/result.h"
#include "plan/schedule.h"

namespace windtunnel {

// Rows become ranks, and a stage belongs to the rank in whose row it stands. The schedule is checked as in
// plan/schedule_check.h. Errors begin with NAME:LINE:COLUMN of the cell, or of the row that lacks an action.
// `ranks` and `micro_batches` are those of the pipeline that the schedule is for.
Result<Schedule> ParseScheduleCsv(const std::string& name, const std::string& text, int ranks,
                                  int64_t micro_batches);

// A row per rank, no idle cells.
std::string PrintScheduleCsv(const Schedule& schedule);

}  // namespace windtunnel
