#include "runtime/nccl/api.h"

#include <stdlib.h>

#include <map>
#include <memory>
#include <mutex>

#include "runtime/cuda/shared_library.h"

namespace windtunnel {
namespace {

using cuda::SharedLibrary;

Status LoadAll(const SharedLibrary& library, NcclApi& api) {
  WT_RETURN_IF_ERROR(library.Load("ncclGetVersion", api.version));
  int version = 0;
  if (api.version(&version) != ncclSuccess) return Failed("does not tell its version");
  api.version_text = cuda::NcclVersionText(version);
  if (version < kOldestNccl)
    return Failed("is version {}, expected {} or newer", api.version_text,
                  cuda::NcclVersionText(kOldestNccl));
  api.path = library.path();
  WT_RETURN_IF_ERROR(library.Load("ncclGetUniqueId", api.unique_id));
  WT_RETURN_IF_ERROR(library.Load("ncclCommInitRankConfig", api.init));
  WT_RETURN_IF_ERROR(library.Load("ncclCommSplit", api.split));
  WT_RETURN_IF_ERROR(library.Load("ncclCommFinalize", api.finalize));
  WT_RETURN_IF_ERROR(library.Load("ncclCommDestroy", api.destroy));
  WT_RETURN_IF_ERROR(library.Load("ncclCommAbort", api.abort));
  WT_RETURN_IF_ERROR(library.Load("ncclCommGetAsyncError", api.async_error));
  WT_RETURN_IF_ERROR(library.Load("ncclGetErrorString", api.error_text));
  WT_RETURN_IF_ERROR(library.Load("ncclGetLastError", api.last_error));
  WT_RETURN_IF_ERROR(library.Load("ncclAllReduce", api.all_reduce));
  WT_RETURN_IF_ERROR(library.Load("ncclAllGather", api.all_gather));
  WT_RETURN_IF_ERROR(library.Load("ncclReduceScatter", api.reduce_scatter));
  WT_RETURN_IF_ERROR(library.Load("ncclBroadcast", api.broadcast));
  WT_RETURN_IF_ERROR(library.Load("ncclReduce", api.reduce));
  WT_RETURN_IF_ERROR(library.Load("ncclSend", api.send));
  WT_RETURN_IF_ERROR(library.Load("ncclRecv", api.receive));
  WT_RETURN_IF_ERROR(library.Load("ncclGroupStart", api.group_start));
  return library.Load("ncclGroupEnd", api.group_end);
}

Result<const NcclApi*> Open(const std::vector<std::string>& files) {
  // With this, kernels of several communicators of one device run in the order in which the host issued them.
  // Otherwise two ranks could each begin a different one and wait for ever.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  auto api = std::make_unique<NcclApi>();
  const auto accept = [&](const SharedLibrary& library) { return LoadAll(library, *api); };
  const bool given = !files.empty();
  WT_ASSIGN_OR_RETURN(
      [[maybe_unused]] const SharedLibrary library,
      SharedLibrary::Open("NCCL", given ? files : std::vector<std::string>{"libnccl.so.2"},
                          given ? cuda::SearchPlaces{} : cuda::SearchPlaces::OfThisProcess(), accept));
  return api.release();  // never freed: the library stays open, too
}

}  // namespace

Result<const NcclApi*> OpenNccl(const std::vector<std::string>& files) {
  static std::mutex mutex;
  static std::map<std::vector<std::string>, Result<const NcclApi*>> opened;
  std::lock_guard lock(mutex);
  auto found = opened.find(files);
  if (found == opened.end()) found = opened.emplace(files, Open(files)).first;
  return found->second;
}

}  // namespace windtunnel
