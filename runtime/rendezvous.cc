#include "runtime/rendezvous.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "base/format.h"
#include "base/host_name.h"
#include "runtime/socket.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;

constexpr char kVerdict[] = "rendezvous/verdict";
constexpr milliseconds kVerdictGrace{5'000};  // after the deadline, for all to hear the verdict
constexpr milliseconds kHolderTells{500};     // from a member's claim until it has said what it is

std::string KeyOf(int member) { return fmt::format("rendezvous/{}", member); }
std::string HeardKey(int member) { return fmt::format("rendezvous/heard/{}", member); }

// "2", "2 and 3", "2, 3 and 5"
std::string Listed(const std::vector<int>& members) {
  std::string text;
  for (size_t i = 0; i < members.size(); ++i)
    text += (i == 0 ? "" : i + 1 == members.size() ? " and " : ", ") + std::to_string(members[i]);
  return text;
}

std::string Trimmed(const std::string& line) {
  const size_t first = line.find_first_not_of(' ');
  return first == std::string::npos ? "" : line.substr(first);
}

// "'lr: 0.1' instead of 'lr: 0.01'": the first line of `theirs` that is not as in `ours`.
std::string FirstDifference(const std::string& theirs, const std::string& ours) {
  std::istringstream their_lines(theirs), our_lines(ours);
  std::string their_line, our_line;
  for (;;) {
    const bool more_theirs = static_cast<bool>(std::getline(their_lines, their_line)),
               more_ours = static_cast<bool>(std::getline(our_lines, our_line));
    if (!more_theirs) their_line.clear();
    if (!more_ours) our_line.clear();
    if (their_line != our_line || (!more_theirs && !more_ours))
      return fmt::format("'{}' instead of '{}'", Trimmed(their_line), Trimmed(our_line));
  }
}

class First {
 public:
  First(const Rendezvous& rendezvous, Store& store) : rendezvous_(rendezvous), store_(store) {}

  // Waits for the others and tells them how it went. If it went badly, waits until they have heard, since the
  // store ends with this process.
  Status Run() {
    const Status verdict = Judge();
    WT_RETURN_IF_ERROR(store_.Set(kVerdict, verdict ? "" : verdict.error().message));
    const auto deadline = std::chrono::steady_clock::now() + kVerdictGrace;
    for (int member = 1; member < rendezvous_.members && !verdict; ++member)
      if (!missing_[member]) (void)store_.Get(HeardKey(member), Until(deadline));
    return verdict;
  }

 private:
  static milliseconds Until(std::chrono::steady_clock::time_point deadline) {
    return std::max(std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now()),
                    milliseconds(0));
  }

  Status Judge() {
    const auto deadline = std::chrono::steady_clock::now() + rendezvous_.deadline;
    missing_.assign(static_cast<size_t>(rendezvous_.members), false);
    std::vector<int> missing;
    for (int member = 1; member < rendezvous_.members; ++member) {
      const auto told = store_.Get(KeyOf(member), Until(deadline));
      if (told) {
        WT_RETURN_IF_ERROR(Compare(member, *told));
      } else {
        missing_[member] = true;
        missing.push_back(member);
      }
    }
    if (missing.empty()) return Ok();
    return Failed("{} {} did not come to {}:{} within {:g} s{}{}",
                  NounFor(static_cast<int64_t>(missing.size()), rendezvous_.what), Listed(missing),
                  rendezvous_.host, rendezvous_.port,
                  static_cast<double>(rendezvous_.deadline.count()) / 1000,
                  rendezvous_.advice.empty() ? "" : "; ", rendezvous_.advice);
  }

  // `told`: the member's host name, then its scenario.
  Status Compare(int member, const std::string& told) const {
    const size_t end = std::min(told.find('\n'), told.size());
    const std::string host = told.substr(0, end), scenario = told.substr(std::min(end + 1, told.size()));
    if (scenario == rendezvous_.scenario) return Ok();
    return Failed("{} {} ({}) has another scenario or command line than {} 0: {}", rendezvous_.what, member,
                  host, rendezvous_.what, FirstDifference(scenario, rendezvous_.scenario));
  }

  const Rendezvous& rendezvous_;
  Store& store_;
  std::vector<bool> missing_;
};

// "rank 1 is there already (node1): …"
Error AlreadyThere(const Rendezvous& rendezvous, Store& store) {
  const auto told = store.Get(KeyOf(rendezvous.member), kHolderTells);
  const std::string holder = told ? fmt::format(" ({})", told->substr(0, told->find('\n'))) : "";
  return {ErrorKind::kFailed, fmt::format("{} {} is there already{}: each number is of one process",
                                          rendezvous.what, rendezvous.member, holder)};
}

bool AllHaveMet(Store& store) {
  if (!store.Has(kVerdict).value_or(false)) return false;
  const auto verdict = store.Get(kVerdict, milliseconds(0));
  return verdict && verdict->empty();
}

// Claims the member's number for this process. A process that had it before and has ended is followed, as
// long as the others are still expected.
Status Claim(const Rendezvous& rendezvous, Store& store) {
  for (int holder = 0;; ++holder) {
    const std::string key = fmt::format("rendezvous/claim/{}/{}", rendezvous.member, holder);
    const std::string ended = key + "/ended";
    WT_ASSIGN_OR_RETURN(const int64_t claims, store.Add(key, 1));
    if (claims == 1) return store.Bequeath(ended, "");
    WT_ASSIGN_OR_RETURN(const bool has_ended, store.Has(ended));
    if (!has_ended) return tl::unexpected(AlreadyThere(rendezvous, store));
    if (AllHaveMet(store))
      return Failed("{} {} has ended since all met, and cannot be followed: all begin together",
                    rendezvous.what, rendezvous.member);
  }
}

// Comes to member 0's store, tells the scenario, and hears how it went.
Status Come(const Rendezvous& rendezvous, Store& store) {
  WT_RETURN_IF_ERROR(Claim(rendezvous, store));
  WT_RETURN_IF_ERROR(store.Set(KeyOf(rendezvous.member), HostName() + "\n" + rendezvous.scenario));
  auto verdict = store.Get(kVerdict, rendezvous.deadline + kVerdictGrace);
  if (!verdict) return Failed("{} 0 does not answer: {}", rendezvous.what, verdict.error().message);
  (void)store.Set(HeardKey(rendezvous.member), "");
  return verdict->empty() ? Ok() : Status(Failed("{}", *verdict));
}

}  // namespace

Result<MemberMeeting> Meet(const Rendezvous& rendezvous) {
  MemberMeeting meeting;
  if (rendezvous.member == 0) {
    WT_ASSIGN_OR_RETURN(meeting.store, ServeStore(rendezvous.host, rendezvous.port, rendezvous.token));
    WT_RETURN_IF_ERROR(First(rendezvous, *meeting.store).Run());
  } else {
    WT_ASSIGN_OR_RETURN(
        meeting.store, ConnectStore(rendezvous.host, rendezvous.port, rendezvous.token, rendezvous.deadline));
    WT_RETURN_IF_ERROR(Come(rendezvous, *meeting.store));
  }
  WT_ASSIGN_OR_RETURN(meeting.interface, LocalAddressTowards(rendezvous.host, rendezvous.interfaces));
  return meeting;
}

}  // namespace windtunnel
