// NCCL's functions, loaded when they are first needed.
#pragma once

#include <nccl.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace windtunnel {

struct NcclApi {
  decltype(&ncclGetVersion) version = nullptr;
  decltype(&ncclGetUniqueId) unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommSplit) split = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclGetErrorString) error_text = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  std::string path, version_text;
};

// This version introduced NCCL_LAUNCH_ORDER_IMPLICIT, without which ranks that are in several groups may wait
// for each other for ever.
inline constexpr int kOldestNccl = 22600;

// Opens the first of `files` (if empty, of NCCL's usual places) that is new enough. Each list is opened once;
// later calls return the same result.
Result<const NcclApi*> OpenNccl(const std::vector<std::string>& files);

}  // namespace windtunnel
