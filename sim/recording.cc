#include "sim/recording.h"

#include <algorithm>

#include "base/check.h"

namespace windtunnel {

StepRecording::StepRecording(const StepSchedule& schedule)
    : schedule_(schedule),
      pieces_(schedule.ranks.size()),
      item_starts_(schedule.items),
      item_ends_(schedule.items),
      starts_(schedule.transfer_of_position.size()),
      ends_(schedule.transfer_of_position.size()) {}

void StepRecording::BeginPiece(int32_t rank, Duration time, Duration done) {
  pieces_[rank].push_back({time, done});
}

void StepRecording::EndSegment(int32_t rank, int32_t first_item, int32_t end_item,
                               const std::vector<Duration>& work, Duration now) {
  const int32_t offset = schedule_.ranks[rank].first_item;
  std::vector<Piece>& pieces = pieces_[rank];
  Duration total;
  for (int32_t item = first_item; item < end_item; ++item) total += work[offset + item];
  if (pieces.empty()) pieces.push_back({now, Duration()});  // no work at all
  pieces.push_back({now, total});

  size_t piece = 0;
  Duration done, time = pieces.front().time;
  for (int32_t item = first_item; item < end_item; ++item) {
    item_starts_[offset + item] = time;
    done += work[offset + item];
    while (piece + 2 < pieces.size() && pieces[piece + 1].done < done) ++piece;
    const Piece& from = pieces[piece];
    const Piece& to = pieces[piece + 1];
    // Within a piece the speed is constant, so time is linear in work.
    if (to.done > from.done && done > from.done) {
      time = from.time +
             Picoseconds(MulDiv((done - from.done).picoseconds(), (to.time - from.time).picoseconds(),
                                (to.done - from.done).picoseconds()));
    }
    if (done == total) time = now;  // a piece may have begun with less than a picosecond's work left
    item_ends_[offset + item] = time;
  }
  pieces.clear();
}

void StepRecording::AddHostSpans(int32_t rank, const RoleMemory* memory, Timeline& timeline) const {
  const RoleSchedule& role = schedule_.RoleOf(rank);
  const int32_t offset = schedule_.ranks[rank].first_item;
  size_t sample = 0;
  for (size_t i = 0; i < role.items.size(); ++i) {
    const WorkItem& item = role.items[i];
    const Duration start = item_starts_[offset + i], end = item_ends_[offset + i];
    timeline.end = std::max(timeline.end, end);
    if (item.kind == WorkItem::Kind::kKernel) {
      timeline.spans.push_back({item.op, schedule_.OpOf(rank, item.op).stream, start, end});
    } else if (item.kind == WorkItem::Kind::kMemory && memory != nullptr) {
      WT_CHECK_EQ(memory->samples[sample].index, item.op);
      timeline.memory.push_back(memory->samples[sample++]);
      timeline.memory.back().time = end;
    }
  }
}

void StepRecording::AddTransferSpans(int32_t rank, Timeline& timeline) const {
  const RoleSchedule& role = schedule_.RoleOf(rank);
  for (size_t q = 0; q < role.queues.size(); ++q) {
    const int32_t queue = schedule_.ranks[rank].first_queue + static_cast<int32_t>(q);
    for (size_t position = 0; position < role.queues[q].ops.size(); ++position) {
      const int32_t index = Index(queue, static_cast<int32_t>(position));
      timeline.spans.push_back(
          {role.queues[q].ops[position], role.queues[q].stream, starts_[index], ends_[index]});
      timeline.end = std::max(timeline.end, ends_[index]);
    }
  }
}

Timeline StepRecording::TimelineOf(int32_t rank, const RoleMemory* memory) const {
  Timeline timeline;
  timeline.rank = schedule_.ranks[rank].rank;
  timeline.stands_for = schedule_.folding.sizes[rank];
  timeline.host_computes = schedule_.host == HostRole::kComputes;
  AddHostSpans(rank, memory, timeline);
  AddTransferSpans(rank, timeline);
  // Operators of one stream begin in program order, so this keeps each stream's own order.
  std::sort(timeline.spans.begin(), timeline.spans.end(), [](const Span& a, const Span& b) {
    return a.start != b.start ? a.start < b.start : a.op < b.op;
  });
  return timeline;
}

Duration StepRecording::SlowedOn(int32_t rank, const std::vector<Duration>& items,
                                 const std::vector<Duration>& transfers) const {
  const RoleSchedule& role = schedule_.RoleOf(rank);
  Duration slowed;
  for (size_t i = 0; i < role.items.size(); ++i) {
    if (role.items[i].kind != WorkItem::Kind::kKernel) continue;
    const size_t item = schedule_.ranks[rank].first_item + i;
    slowed += item_ends_[item] - item_starts_[item] - items[item];
  }
  for (size_t q = 0; q < role.queues.size(); ++q) {
    if (role.queues[q].stream != kComputeStream) continue;
    const int32_t queue = schedule_.ranks[rank].first_queue + static_cast<int32_t>(q);
    for (size_t position = 0; position < role.queues[q].ops.size(); ++position) {
      const int32_t index = Index(queue, static_cast<int32_t>(position));
      slowed += ends_[index] - starts_[index] - transfers[schedule_.transfer_of_position[index]];
    }
  }
  return std::max(slowed, Duration());
}

Duration StepRecording::Slowed(const std::vector<Duration>& items,
                               const std::vector<Duration>& transfers) const {
  double sum = 0;  // seconds
  int64_t ranks = 0;
  for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
    const int64_t stands_for = schedule_.folding.sizes[rank];
    sum +=
        static_cast<double>(stands_for) * ToSeconds(SlowedOn(static_cast<int32_t>(rank), items, transfers));
    ranks += stands_for;
  }
  return ranks > 0 ? Seconds(sum / static_cast<double>(ranks)) : Duration();
}

std::vector<Timeline> StepRecording::Timelines(const std::vector<RoleMemory>& memory) const {
  std::vector<Timeline> timelines;
  for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
    const RoleMemory* of_role = memory.empty() ? nullptr : &memory[schedule_.ranks[rank].role];
    timelines.push_back(TimelineOf(static_cast<int32_t>(rank), of_role));
  }
  return timelines;
}

}  // namespace windtunnel
