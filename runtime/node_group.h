// The nodes of a job that windtunnel itself launches. Each has a launcher of its own; the first
// one says what is to be run.
//
//   WT_ASSIGN_OR_RETURN(auto nodes, NodeGroup::Meet({.node = 0, .nodes = 2, .ranks_per_node = 1, .master_addr = "10.0.0.1"}, scenario));
//   WT_RETURN_IF_ERROR(nodes->Announce(job));                   // node 0
//   while (auto job = *nodes->Next()) …                         // the others
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/store.h"

namespace windtunnel {

struct NodeOptions {
  int node = 0, nodes = 1;
  int ranks_per_node = 1;                 // rank r is on node r / ranks_per_node
  std::string master_addr = "127.0.0.1";  // of node 0
  int master_port = 29500;
  std::string token;
  std::chrono::milliseconds deadline{60'000};  // for all nodes to come
};

// How a job failed on a node.
struct JobFailure {
  std::string message;
  bool input_wrong = false;      // a rank found its input wrong: the job would fail again
  bool rank_was_killed = false;  // by a signal, so that others may miss it
};

class NodeGroup {
 public:
  // Every node calls it, with the same scenario. Errors: those of Meet (runtime/rendezvous.h).
  static Result<std::unique_ptr<NodeGroup>> Meet(const NodeOptions& options, const std::string& scenario);
  // On node 0: tells the others that there is no more to do.
  ~NodeGroup();

  int node() const { return options_.node; }
  int nodes() const { return options_.nodes; }
  int ranks_per_node() const { return options_.ranks_per_node; }
  const std::string& master_addr() const { return options_.master_addr; }
  const std::string& interface() const { return interface_; }  // this node's address
  // Ranks of earlier nodes that are on this machine.
  int ranks_before() const { return ranks_before_; }
  // The cores that each rank of this machine may use (UsableCoresText), of whichever node.
  const std::vector<std::string>& cores_here() const { return cores_here_; }
  // Whether all nodes are one machine, whose clock they share.
  bool shares_clock() const { return shares_clock_; }

  // On node 0: the next job, for all to begin.
  Status Announce(const std::string& job);
  // On the others: the next job; nullopt when there is none any more. Failed: node 0 is gone.
  Result<std::optional<std::string>> Next();

  // Tells all nodes that the current job has failed on this one.
  void Fail(const JobFailure& failure);
  // Beyond node 0: tells all nodes that this one takes no further part. Does not wait
  // long for node 0 to hear it.
  void Leave(const std::string& message);
  // Once the descriptor (-1: none) is readable, node 0 is waited for only briefly (Store::SetInterrupt).
  void SetInterrupt(int descriptor) { store_->SetInterrupt(descriptor); }
  // Why the current job is to end: another node has told of a failure, or is gone. Empty while all is well.
  std::string ReasonToEnd();
  // After a failure on this node: the message that explains it best, of all nodes'. A node that is gone or a
  // rank that was killed goes before ranks that miss it. Waits some time for the others.
  std::string BestExplanation(const JobFailure& own);
  // Whether a node found the current job's input wrong.
  bool FoundInputWrong();
  // Whether all nodes are there for another job.
  bool AllThere();

 private:
  explicit NodeGroup(const NodeOptions& options) : options_(options) {}
  Status LeaveWill();
  Status CompareMachines();
  std::string GoneMessage();
  static std::string LeftKey(int node) { return fmt::format("left/{}", node); }
  std::string JobKey() const { return fmt::format("job/{}", job_); }
  std::string FailedKey(int node) const {
    return fmt::format("{}/failed/{}", JobKey(), node < 0 ? "any" : std::to_string(node));
  }
  std::string KilledKey(int node) const { return FailedKey(node) + "/killed"; }

  NodeOptions options_;
  std::unique_ptr<Store> store_;
  std::string interface_;
  bool shares_clock_ = true;
  int ranks_before_ = 0;
  std::vector<std::string> cores_here_;
  int job_ = 0;  // the current one's number, from 1
};

}  // namespace windtunnel
