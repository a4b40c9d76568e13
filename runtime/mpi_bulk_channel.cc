#include "runtime/mpi_bulk_channel.h"

#include <algorithm>
#include <span>

#include "base/check.h"

namespace windtunnel {
namespace {

constexpr int kFirstTag = 16;  // beyond those of runtime/mpi_channel.cc and mpi_collectives.cc

}  // namespace

void MpiBulkChannel::BeginOperator() { operands_.clear(); }

uint64_t MpiBulkChannel::TagOf(const Fingerprint&) const { return kFirstTag; }

BulkChannel::Region& MpiBulkChannel::RegionOf(const void* data, int64_t) {
  for (Operand& operand : operands_)
    if (operand.data == data) return operand;
  Operand& operand = operands_.emplace_back();
  operand.data = static_cast<char*>(const_cast<void*>(data));
  return operand;
}

// The next wait returns MPI's error.
template <typename Start>
void MpiBulkChannel::Post(Transfers& transfers, int peer, Start start) {
  transfers.push_back({peer});
  const Status posted = channel_.Start([&] { return start(transfers.back().request); });
  if (!posted && !failure_) failure_ = posted.error();
}

void MpiBulkChannel::PostReceive(Region& region, int peer, uint64_t tag, int64_t offset, int64_t bytes) {
  WT_CHECK_LT(tag, uint64_t{kFirstTag} + kTags);
  Operand& operand = static_cast<Operand&>(region);
  Post(operand.receives, peer, [&](MPI_Request& request) {
    return MPI_Irecv(operand.data + offset, static_cast<int>(bytes), MPI_BYTE, peer, static_cast<int>(tag),
                     channel_.communicator(), &request);
  });
}

void MpiBulkChannel::PostSend(Region& region, int peer, uint64_t tag, int64_t offset, int64_t bytes) {
  WT_CHECK_LT(tag, uint64_t{kFirstTag} + kTags);
  Operand& operand = static_cast<Operand&>(region);
  Post(operand.sends, peer, [&](MPI_Request& request) {
    return MPI_Isend(operand.data + offset, static_cast<int>(bytes), MPI_BYTE, peer, static_cast<int>(tag),
                     channel_.communicator(), &request);
  });
}

Status MpiBulkChannel::WaitForFirst(Transfers& transfers, int peer, const char* what) {
  if (failure_) return tl::unexpected(*failure_);
  const auto first = std::ranges::find(transfers, peer, &Transfer::peer);
  WT_CHECK(first != transfers.end());
  WT_RETURN_IF_ERROR(channel_.Await({&first->request, 1}, fmt::format("rank {} {}", peer, what)));
  transfers.erase(first);
  return Ok();
}

Status MpiBulkChannel::WaitReceived(Region& region, int peer) {
  return WaitForFirst(static_cast<Operand&>(region).receives, peer, "sent nothing");
}

Status MpiBulkChannel::WaitSent(Region& region, int peer) {
  return WaitForFirst(static_cast<Operand&>(region).sends, peer, "took nothing");
}

}  // namespace windtunnel
