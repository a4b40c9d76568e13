#include "runtime/ring.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "base/ceil_divide.h"
#include "runtime/reduce.h"

namespace windtunnel {
namespace {

using Region = BulkChannel::Region;

// A segment of what is passed on unchanged (plan/scratch.cc has the reason).
constexpr int64_t kForwardedSegmentBytes = int64_t{1} << 20;

struct Neighbours {
  int rank, size, left, right;
  explicit Neighbours(const BulkChannel& channel)
      : rank(channel.rank()),
        size(channel.size()),
        left((rank + size - 1) % size),
        right((rank + 1) % size) {}
  int Wrap(int part) const { return (part % size + size) % size; }
};

// Segment `index` of a part; empty beyond the part's end.
Part SegmentOf(const Part& part, int64_t segment, int64_t index) {
  const int64_t begin = std::min(index * segment, part.elements);
  return {part.begin + begin, std::min(segment, part.elements - begin)};
}

char* At(const void* memory, int64_t offset) {
  return static_cast<char*>(const_cast<void*>(memory)) + offset;
}

// Waits for `count` sends of a region.
Status WaitAllSent(BulkChannel& channel, Region& region, int peer, int64_t count) {
  for (int64_t i = 0; i < count; ++i) WT_RETURN_IF_ERROR(channel.WaitSent(region, peer));
  return Ok();
}

// Parts of one buffer that go around the ring: in step s a rank passes part rank - s on and gets part rank -
// s - 1. In the first `summing` steps what comes is added to the part, afterwards it replaces it.
class PassingRing {
 public:
  PassingRing(const GroupOperator& op, BulkChannel& channel, int summing, int steps, int64_t segment)
      : op_(op),
        channel_(channel),
        ring_(channel),
        summing_(summing),
        steps_(steps),
        segment_(segment),
        tag_(channel.TagOf(op.fingerprint)),
        x_(channel.RegionOf(op.out, op.bytes())),
        scratch_(summing > 0 ? &channel.RegionOf(op.scratch, op.scratch_elements * op.element_bytes())
                             : nullptr) {}

  Status Run() {
    // What replaces a part may be received right away: it is sent only after this rank has passed
    // on its own sum of that part.
    for (int step = summing_; step < steps_; ++step) PostReceives(step);
    for (int slot = 0; slot < 2; ++slot) PostScratch();
    for (int64_t j = 0; j < Segments(ring_.rank); ++j)
      PostSend(0, SegmentOf(PartAt(ring_.rank), segment_, j));
    channel_.Flush();
    for (int step = 0; step < steps_; ++step) WT_RETURN_IF_ERROR(Take(step));
    return WaitAllSent(channel_, x_, ring_.right, sent_);
  }

 private:
  Part PartAt(int index) const { return PartOf(op_.elements, ring_.size, ring_.Wrap(index)); }
  int Incoming(int step) const { return ring_.rank - step - 1; }
  int64_t Segments(int part) const { return CeilDivide(PartAt(part).elements, segment_); }
  int64_t Slots() const { return op_.scratch_elements / segment_; }  // segments that fit the scratch: 1 or 2

  void PostSend(int step, const Part& segment) {
    if (step >= steps_) return;
    channel_.PostSend(x_, ring_.right, tag_ + static_cast<uint64_t>(step),
                      segment.begin * op_.element_bytes(), segment.elements * op_.element_bytes());
    ++sent_;
  }

  void PostReceives(int step) {
    for (int64_t j = 0; j < Segments(Incoming(step)); ++j) {
      const Part segment = SegmentOf(PartAt(Incoming(step)), segment_, j);
      channel_.PostReceive(x_, ring_.left, tag_ + static_cast<uint64_t>(step),
                           segment.begin * op_.element_bytes(), segment.elements * op_.element_bytes());
    }
  }

  // The next segment to be added goes to the next free place in the scratch.
  void PostScratch() {
    while (post_step_ < summing_ && post_segment_ == Segments(Incoming(post_step_))) {
      ++post_step_;
      post_segment_ = 0;
    }
    if (post_step_ == summing_ || posted_ - added_ >= Slots()) return;
    const Part segment = SegmentOf(PartAt(Incoming(post_step_)), segment_, post_segment_++);
    channel_.PostReceive(*scratch_, ring_.left, tag_ + static_cast<uint64_t>(post_step_),
                         posted_++ % Slots() * segment_ * op_.element_bytes(),
                         segment.elements * op_.element_bytes());
  }

  Status Take(int step) {
    const int part = Incoming(step);
    for (int64_t j = 0; j < Segments(part); ++j) {
      const Part segment = SegmentOf(PartAt(part), segment_, j);
      if (step < summing_) {
        WT_RETURN_IF_ERROR(channel_.WaitReceived(*scratch_, ring_.left));
        ReduceInto(op_.reduction, op_.dtype, At(op_.out, segment.begin * op_.element_bytes()),
                   At(op_.scratch, added_ % Slots() * segment_ * op_.element_bytes()), segment.elements);
        ++added_;
        PostScratch();
      } else {
        WT_RETURN_IF_ERROR(channel_.WaitReceived(x_, ring_.left));
      }
      PostSend(step + 1, segment);
      channel_.Flush();
    }
    return Ok();
  }

  const GroupOperator& op_;
  BulkChannel& channel_;
  Neighbours ring_;
  int summing_, steps_;
  int64_t segment_;
  uint64_t tag_;
  Region& x_;
  Region* scratch_;
  int64_t sent_ = 0, posted_ = 0, added_ = 0;
  int post_step_ = 0;
  int64_t post_segment_ = 0;
};

int64_t LargestPart(const GroupOperator& op, int size) { return PartOf(op.elements, size, 0).elements; }

// Elements of a segment of what is summed: the scratch holds a whole part, or two segments.
int64_t SummedSegment(const GroupOperator& op, int size) {
  const bool forwards_from_scratch = op.operation == GroupOperation::kReduceScatter && size > 2;
  const bool holds_part = !forwards_from_scratch && op.scratch_elements >= LargestPart(op, size);
  return holds_part ? op.scratch_elements : op.scratch_elements / 2;
}

// After the first half of the steps rank r has summed part r + 1, which it passes on around
// the ring in the second half.
Status RingAllReduce(const GroupOperator& op, BulkChannel& channel) {
  const int steps = channel.size() - 1;
  return PassingRing(op, channel, steps, 2 * steps, SummedSegment(op, channel.size())).Run();
}

Status RingAllGather(const GroupOperator& op, BulkChannel& channel) {
  const int size = channel.size();
  const Part own = PartOf(op.elements, size, channel.rank());
  char* place = At(op.out, own.begin * op.element_bytes());
  if (place != op.in && own.elements > 0)
    memmove(place, op.in, static_cast<size_t>(own.elements * op.element_bytes()));
  // Two ranks pass nothing on, so nothing is gained by segments.
  const int64_t segment = size == 2 ? LargestPart(op, size) : kForwardedSegmentBytes / op.element_bytes();
  return PassingRing(op, channel, 0, size - 1, segment).Run();
}

// Unlike all-reduce's, the input is left alone: partial sums live in the scratch until they have been passed
// on. Each piece (a segment of every part) goes all the way around before the piece after the next begins, so
// that two segments suffice. In step s a rank passes part rank - s - 1 on and gets part rank - s - 2; the
// last is its own.
class ScatteringRing {
 public:
  ScatteringRing(const GroupOperator& op, BulkChannel& channel)
      : op_(op),
        channel_(channel),
        ring_(channel),
        tag_(channel.TagOf(op.fingerprint)),
        segment_(SummedSegment(op, ring_.size)),
        slots_(op.scratch_elements / segment_),
        pieces_(CeilDivide(LargestPart(op, ring_.size), segment_)),
        items_(pieces_ * (ring_.size - 1)),
        ahead_(ring_.size == 2 ? slots_ : 1),
        whole_(channel.RegionOf(op.in, op.bytes())),
        scratch_(channel.RegionOf(op.scratch, op.scratch_elements * op.element_bytes())) {}

  Status Run() {
    int64_t first_sends = 0;
    for (int64_t item = 0; item < ahead_; ++item) WT_RETURN_IF_ERROR(PostReceive(item));
    for (int64_t piece = 0; piece < pieces_; ++piece) {
      const Part segment = SegmentOf(PartOf(op_.elements, ring_.size, ring_.left), segment_, piece);
      if (segment.elements == 0) continue;
      channel_.PostSend(whole_, ring_.right, Tag(piece * (ring_.size - 1)), BytesOf(segment.begin),
                        BytesOf(segment.elements));
      ++first_sends;
    }
    channel_.Flush();
    for (int64_t item = 0; item < items_; ++item) WT_RETURN_IF_ERROR(Take(item));
    WT_RETURN_IF_ERROR(WaitAllSent(channel_, whole_, ring_.right, first_sends));
    return WaitAllSent(channel_, scratch_, ring_.right, unsent_);
  }

 private:
  // Item i is piece i / (n - 1) in step i mod (n - 1).
  int StepOf(int64_t item) const { return static_cast<int>(item % (ring_.size - 1)); }
  bool IsLast(int64_t item) const { return StepOf(item) == ring_.size - 2; }
  Part Incoming(int64_t item) const {
    const int part = ring_.Wrap(ring_.rank - StepOf(item) - 2);
    return SegmentOf(PartOf(op_.elements, ring_.size, part), segment_, item / (ring_.size - 1));
  }
  int64_t BytesOf(int64_t elements) const { return elements * op_.element_bytes(); }
  int64_t Slot(int64_t item) const { return item % slots_ * BytesOf(segment_); }
  uint64_t Tag(int64_t item) const { return tag_ + static_cast<uint64_t>(item); }

  // Posts the receive into the place of an earlier item, whose sum must have left it.
  Status PostReceive(int64_t item) {
    if (item >= items_ || Incoming(item).elements == 0) return Ok();
    WT_RETURN_IF_ERROR(WaitAllSent(channel_, scratch_, ring_.right, std::exchange(unsent_, 0)));
    channel_.PostReceive(scratch_, ring_.left, Tag(item), Slot(item), BytesOf(Incoming(item).elements));
    return Ok();
  }

  Status Take(int64_t item) {
    const Part segment = Incoming(item);
    if (segment.elements > 0) WT_RETURN_IF_ERROR(channel_.WaitReceived(scratch_, ring_.left));
    // Two ranks pass nothing on: a place is free once its segment is added. Else the other place serves
    // meanwhile.
    if (ring_.size > 2) WT_RETURN_IF_ERROR(PostReceive(item + 1));
    channel_.Flush();
    if (segment.elements > 0) AddOwn(item, segment);
    if (ring_.size == 2) WT_RETURN_IF_ERROR(PostReceive(item + slots_));
    channel_.Flush();
    return Ok();
  }

  void AddOwn(int64_t item, const Part& segment) {
    char* sum = At(op_.scratch, Slot(item));
    const char* own = At(op_.in, BytesOf(segment.begin));
    if (IsLast(item)) {
      const int64_t offset = segment.begin - PartOf(op_.elements, ring_.size, ring_.rank).begin;
      return Reduce(op_.reduction, op_.dtype, At(op_.out, BytesOf(offset)), sum, own, segment.elements);
    }
    ReduceInto(op_.reduction, op_.dtype, sum, own, segment.elements);
    channel_.PostSend(scratch_, ring_.right, Tag(item + 1), Slot(item), BytesOf(segment.elements));
    ++unsent_;
  }

  const GroupOperator& op_;
  BulkChannel& channel_;
  Neighbours ring_;
  uint64_t tag_;
  int64_t segment_, slots_, pieces_, items_;
  int64_t ahead_;  // receives that are posted before the first item is taken
  Region& whole_;
  Region& scratch_;
  int64_t unsent_ = 0;  // sums passed on and not known to have left
};

Status ChainBroadcast(const GroupOperator& op, BulkChannel& channel) {
  const Neighbours ring(channel);
  const int position = ring.Wrap(ring.rank - op.peer);
  const bool receives = position > 0, sends = position < ring.size - 1;
  const int64_t segment = ring.size == 2 ? op.bytes() : kForwardedSegmentBytes;
  const int64_t count = CeilDivide(op.bytes(), segment);
  const uint64_t tag = channel.TagOf(op.fingerprint);
  Region& x = channel.RegionOf(op.out, op.bytes());
  const Part all = {0, op.bytes()};
  for (int64_t j = 0; j < count; ++j) {
    const Part part = SegmentOf(all, segment, j);
    if (receives) channel.PostReceive(x, ring.left, tag, part.begin, part.elements);
    else channel.PostSend(x, ring.right, tag, part.begin, part.elements);
  }
  channel.Flush();
  for (int64_t j = 0; receives && j < count; ++j) {
    const Part part = SegmentOf(all, segment, j);
    WT_RETURN_IF_ERROR(channel.WaitReceived(x, ring.left));
    if (sends) channel.PostSend(x, ring.right, tag, part.begin, part.elements);
    channel.Flush();
  }
  return sends ? WaitAllSent(channel, x, ring.right, count) : Ok();
}

Status MeshAllToAll(const GroupOperator& op, BulkChannel& channel) {
  const Neighbours ring(channel);
  const int64_t bytes = op.bytes() / ring.size;
  const uint64_t tag = channel.TagOf(op.fingerprint);
  Region& in = channel.RegionOf(op.in, op.bytes());
  Region& out = channel.RegionOf(op.out, op.bytes());
  for (int i = 1; i < ring.size; ++i) {
    const int from = ring.Wrap(ring.rank - i), to = ring.Wrap(ring.rank + i);
    channel.PostReceive(out, from, tag, from * bytes, bytes);
    channel.PostSend(in, to, tag, to * bytes, bytes);
  }
  channel.Flush();
  memcpy(At(op.out, ring.rank * bytes), At(op.in, ring.rank * bytes), static_cast<size_t>(bytes));
  for (int i = 1; i < ring.size; ++i) WT_RETURN_IF_ERROR(channel.WaitReceived(out, ring.Wrap(ring.rank - i)));
  for (int i = 1; i < ring.size; ++i) WT_RETURN_IF_ERROR(channel.WaitSent(in, ring.Wrap(ring.rank + i)));
  return Ok();
}

Status ShiftAround(const GroupOperator& op, BulkChannel& channel) {
  const int to = op.ShiftsTo(channel.rank(), channel.size());
  const int from = op.ShiftsFrom(channel.rank(), channel.size());
  const uint64_t tag = channel.TagOf(op.fingerprint);
  Region& in = channel.RegionOf(op.in, op.bytes());
  Region& out = channel.RegionOf(op.out, op.bytes());
  channel.PostReceive(out, from, tag, 0, op.bytes());
  channel.PostSend(in, to, tag, 0, op.bytes());
  channel.Flush();
  WT_RETURN_IF_ERROR(channel.WaitReceived(out, from));
  return channel.WaitSent(in, to);
}

Status SendMessage(const GroupOperator& op, BulkChannel& channel) {
  Region& x = channel.RegionOf(op.in, op.bytes());
  channel.PostSend(x, op.peer, channel.TagOf(op.fingerprint), 0, op.bytes());
  channel.Flush();
  return channel.WaitSent(x, op.peer);
}

Status ReceiveMessage(const GroupOperator& op, BulkChannel& channel) {
  Region& x = channel.RegionOf(op.out, op.bytes());
  channel.PostReceive(x, op.peer, channel.TagOf(op.fingerprint), 0, op.bytes());
  channel.Flush();
  return channel.WaitReceived(x, op.peer);
}

}  // namespace

Status RunBulk(const GroupOperator& op, BulkChannel& channel) {
  channel.BeginOperator();
  if (op.elements == 0) return Ok();
  switch (op.operation) {
    case GroupOperation::kAllReduce:
      return RingAllReduce(op, channel);
    case GroupOperation::kAllGather:
      return RingAllGather(op, channel);
    case GroupOperation::kReduceScatter:
      return ScatteringRing(op, channel).Run();
    case GroupOperation::kBroadcast:
      return ChainBroadcast(op, channel);
    case GroupOperation::kAllToAll:
      return MeshAllToAll(op, channel);
    case GroupOperation::kShift:
      return ShiftAround(op, channel);
    case GroupOperation::kSend:
      return SendMessage(op, channel);
    case GroupOperation::kReceive:
      return ReceiveMessage(op, channel);
    case GroupOperation::kBarrier:
      return Failed("a barrier goes the direct way");
    case GroupOperation::kReduce:
    case GroupOperation::kGather:
    case GroupOperation::kScatter:
      return Unsupported("{} around a ring", Name(op.operation));
  }
  return Ok();
}

}  // namespace windtunnel
