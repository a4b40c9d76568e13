#include "runtime/node_group.h"

#include <algorithm>

#include "runtime/cores.h"
#include "runtime/neighbors.h"
#include "runtime/rank_environment.h"
#include "runtime/rendezvous.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNoEnd{int64_t{1} << 30};  // a job may come at any time
constexpr milliseconds kFarewell{2'000};
// Time for a node's own last message. After it, the store's bequest says that the node is gone.
constexpr milliseconds kLastWord{500};
constexpr char kGone[] = "gone";  // the message of the first node that has gone

}  // namespace

Result<std::unique_ptr<NodeGroup>> NodeGroup::Meet(const NodeOptions& options, const std::string& scenario) {
  Rendezvous rendezvous;
  rendezvous.what = "node";
  rendezvous.member = options.node;
  rendezvous.members = options.nodes;
  rendezvous.host = options.master_addr;
  rendezvous.port = options.master_port;
  rendezvous.token = options.token;
  rendezvous.scenario = scenario;
  rendezvous.deadline = options.deadline;
  rendezvous.interfaces = GlooInterfaces();
  WT_ASSIGN_OR_RETURN(MemberMeeting meeting, windtunnel::Meet(rendezvous));
  std::unique_ptr<NodeGroup> group(new NodeGroup(options));
  group->store_ = std::move(meeting.store);
  group->interface_ = std::move(meeting.interface);
  WT_RETURN_IF_ERROR(group->LeaveWill());
  WT_RETURN_IF_ERROR(group->CompareMachines());
  return group;
}

// Bequeaths what the store tells the others once this process has ended, for whatever reason.
Status NodeGroup::LeaveWill() {
  if (options_.node == 0) return Ok();
  WT_RETURN_IF_ERROR(store_->Bequeath(
      kGone, fmt::format("node {} is gone: its launcher has ended, or does not answer", options_.node)));
  return store_->Bequeath(LeftKey(options_.node), "");
}

Status NodeGroup::CompareMachines() {
  WT_ASSIGN_OR_RETURN(
      const Neighbors here,
      TellNeighbors(*store_, {options_.node, options_.nodes, options_.deadline}, "cores", UsableCoresText()));
  shares_clock_ = here.said.size() == static_cast<size_t>(options_.nodes);
  ranks_before_ = here.own * options_.ranks_per_node;
  for (const std::string& cores : here.said)
    cores_here_.insert(cores_here_.end(), static_cast<size_t>(options_.ranks_per_node), cores);
  return Ok();
}

NodeGroup::~NodeGroup() {
  if (options_.node > 0 || !Announce("")) return;
  for (int node = 1; node < options_.nodes; ++node) (void)store_->Get(LeftKey(node), kFarewell);
}

Status NodeGroup::Announce(const std::string& job) {
  ++job_;
  return store_->Set(JobKey(), job);
}

Result<std::optional<std::string>> NodeGroup::Next() {
  ++job_;
  auto job = store_->Get(JobKey(), kNoEnd);
  if (!job) return Failed("node 0 is gone: {}", job.error().message);
  if (!job->empty()) return std::optional<std::string>(*std::move(job));
  (void)store_->Set(LeftKey(options_.node), "");
  return std::optional<std::string>();
}

std::string NodeGroup::GoneMessage() {
  const Result<bool> gone = store_->Has(kGone);
  if (!gone) return fmt::format("node 0 is gone: {}", gone.error().message);
  if (!*gone) return "";
  const auto message = store_->Get(kGone, milliseconds(0));
  return message ? *message : message.error().message;
}

bool NodeGroup::AllThere() { return GoneMessage().empty(); }

void NodeGroup::Leave(const std::string& message) {
  store_->SetPatience(kLastWord);
  (void)store_->Set(kGone, fmt::format("node {} is gone: {}", options_.node, message));
}

bool NodeGroup::FoundInputWrong() { return store_->Has(JobKey() + "/input_wrong").value_or(false); }

// What others ask for once they know of the failure comes before it.
void NodeGroup::Fail(const JobFailure& failure) {
  if (failure.input_wrong) (void)store_->Set(JobKey() + "/input_wrong", "");
  if (failure.rank_was_killed) (void)store_->Set(KilledKey(options_.node), "");
  (void)store_->Set(FailedKey(options_.node), failure.message);
  (void)store_->Set(FailedKey(-1), fmt::format("node {}: {}", options_.node, failure.message));
}

std::string NodeGroup::ReasonToEnd() {
  if (std::string gone = GoneMessage(); !gone.empty()) return gone;
  const Result<bool> failed = store_->Has(FailedKey(-1));
  if (!failed) return fmt::format("node 0 is gone: {}", failed.error().message);
  if (!*failed) return "";
  const auto message = store_->Get(FailedKey(-1), milliseconds(0));
  return message ? *message : message.error().message;
}

std::string NodeGroup::BestExplanation(const JobFailure& own) {
  if (std::string gone = GoneMessage(); !gone.empty()) return gone;
  if (own.rank_was_killed) return own.message;
  const auto deadline = std::chrono::steady_clock::now() + kFarewell;
  for (int node = 0; node < options_.nodes; ++node) {
    if (node == options_.node) continue;
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
    const auto theirs = store_->Get(FailedKey(node), std::max(left, milliseconds(0)));
    if (theirs && store_->Has(KilledKey(node)).value_or(false))
      return fmt::format("node {}: {}", node, *theirs);
  }
  return own.message;
}

}  // namespace windtunnel
