// Lets processes that something else has started find each other: the first one serves a store, the others
// come to it, and all check that they are about to do the same.
//
//   WT_ASSIGN_OR_RETURN(MemberMeeting meeting, Meet({.what = "rank", .member = rank, .members = 2, .host = "node0", .port = 29500,
//                                              .token = token, .scenario = ResolvedYaml(scenario)}));
//   meeting.store->Set(…)
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/result.h"
#include "runtime/store.h"

namespace windtunnel {

struct Rendezvous {
  std::string what = "rank";  // what errors call a member: "rank", "node"
  int member = 0, members = 1;
  std::string host = "127.0.0.1";  // where member 0 is
  int port = 29500;
  std::string token;       // of the job; whoever has another one is turned away
  std::string scenario;    // must be equal on all members; text of lines
  std::string interfaces;  // of this machine, for others to connect to (LocalAddressTowards); may be empty
  std::chrono::milliseconds deadline{60'000};
  std::string advice;  // added to the error when others do not come; may be empty
};

struct MemberMeeting {
  std::unique_ptr<Store> store;
  std::string interface;  // this machine's address on the way to member 0
};

// Errors, on every member: Failed (the port is taken; nobody answers there; "ranks 2 and 3 did not come
// to node0:29500 within 60 s"; "rank 1 (node1) has another scenario or command line than rank 0: 'lr:
// 0.1' instead of 'lr: 0.01'"). On a second process with a member's number, and there alone: Failed
// ("rank 1 is there already (node1): each number is of one process"). Another process may take the number
// of one that has ended, but not once all have met. The next attempt of a job has another first member,
// which serves another store.
Result<MemberMeeting> Meet(const Rendezvous& rendezvous);

}  // namespace windtunnel
