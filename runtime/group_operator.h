// One operator of a process group, as the algorithms see it: op.h's kinds flattened, the operands located and
// checked.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/op.h"
#include "plan/ops.h"
#include "runtime/kernel_context.h"

namespace windtunnel {

enum class GroupOperation : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kShift,
  kBarrier,
  kSend,
  kReceive
};
std::string_view Name(GroupOperation operation);

// What ranks must agree on about one operator. Sent in front of small messages and hashed into the tags of
// large ones, so that ranks which disagree get an error and never each other's data.
struct Fingerprint {
  static constexpr uint16_t kOfMaximum = 0x8000;

  uint32_t number = 0;  // of the group's collectives, or of the messages from one rank to another
  GroupOperation operation = GroupOperation::kBarrier;  // kSend for both ends of a message
  DType dtype = DType::kFloat32;
  // HasRoot(kind): the root; send and receive: the sender; shift: the distance; with the bit
  // kOfMaximum: maxima instead of sums.
  uint16_t root = 0;
  int64_t elements = 0;

  bool operator==(const Fingerprint&) const = default;
};
static_assert(sizeof(Fingerprint) == 16, "compared and sent as bytes: no padding");

// "number 12, all_reduce of 1024 x fp32"
std::string Describe(const Fingerprint& fingerprint);

struct GroupOperator {
  GroupOperation operation = GroupOperation::kBarrier;
  DType dtype = DType::kFloat32;
  int64_t elements = 0;  // of the whole message (Collective::elements)
  Reduction reduction = Reduction::kSum;
  int peer = 0;      // the root where there is one; the other end of a send or receive
  int distance = 1;  // shift: x goes to the rank this far ahead
  const void* in = nullptr;
  void* out = nullptr;
  void* scratch = nullptr;
  int64_t scratch_elements = 0;
  Fingerprint fingerprint;
  std::string name;

  int64_t element_bytes() const { return SizeOf(dtype).count(); }
  int64_t bytes() const { return elements * element_bytes(); }
  // For a shift: the ranks that `rank` of `size` sends to and receives from.
  int ShiftsTo(int rank, int size) const { return (rank + distance) % size; }
  int ShiftsFrom(int rank, int size) const { return (rank + size - distance) % size; }
};

// Part `index` of `elements` split over `parts` ranks: the first elements % parts parts have one more.
struct Part {
  int64_t begin = 0, elements = 0;
};
Part PartOf(int64_t elements, int parts, int index);

// Numbers the operators of one rank as its peers do: collectives in order, messages in order for each pair
// and direction.
class OperatorNumbers {
 public:
  explicit OperatorNumbers(int size)
      : sent_(static_cast<size_t>(size)), received_(static_cast<size_t>(size)) {}
  uint32_t Next(const GroupOperator& op);

 private:
  uint32_t collectives_ = 0;
  std::vector<uint32_t> sent_, received_;
};

// Fills everything but the fingerprint's number. Errors: Unsupported (not an operator of a group, a type that
// cannot be reduced), Failed (operands that are missing or too small, a peer outside the group).
Status DescribeOperator(const OpKind& kind, std::span<const TensorRef> reads,
                        std::span<const TensorRef> writes, std::string_view name, int rank, int size,
                        GroupOperator& op);

}  // namespace windtunnel
