// The emulator itself, which must expose errors that a GPU would leave to chance; and the fragments of
// products on tensor cores, tile by tile.
#include "runtime/cuda/emulator/block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "runtime/cuda/kernels/flash_tile.h"
#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/simt.h"

namespace windtunnel::cuda_emulated {
namespace {

using emulator::RunBlocks;

TEST(EmulatedBlock, RunsEveryThreadOfEveryBlock) {
  std::vector<int> visits(3 * 2 * 64);
  RunBlocks({3, 2, 1}, 64, 0,
            [&] { ++visits[static_cast<size_t>((BlockY() * 3 + BlockX()) * 64 + Thread())]; });
  for (int count : visits) EXPECT_EQ(count, 1);
}

TEST(EmulatedBlock, ReducesOverABlock) {
  std::vector<float> sums(96);
  RunBlocks({1, 1, 1}, 96, 32, [&] {
    const float mine = static_cast<float>(Thread());
    sums[static_cast<size_t>(Thread())] = ReduceBlock<96>(mine, 0.0f, SharedMemory<float>(), Sum());
  });
  for (float sum : sums) EXPECT_EQ(sum, 95 * 96 / 2);
}

TEST(EmulatedBlock, BallotsAndShufflesByLane) {
  RunBlocks({1, 1, 1}, 64, 0, [] {
    EXPECT_EQ(Ballot(Lane() % 3 == 0), 0x49249249u);
    EXPECT_EQ(ShuffleXor(Thread(), 5), Thread() ^ 5);
  });
}

TEST(EmulatedBlock, SharedMemoryBeginsAsNaN) {
  RunBlocks({1, 1, 1}, 32, 128, [] { EXPECT_TRUE(std::isnan(SharedMemory<float>()[Thread()])); });
}

TEST(EmulatedBlock, AsynchronousCopiesArriveAtTheWait) {
  alignas(16) const float source[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  RunBlocks({1, 1, 1}, 32, 32 * 32, [&] {
    float* const own = SharedMemory<float>() + Thread() * 8;
    AsyncCopy16(own, source, true);
    AsyncCommit();
    AsyncCopy16(own + 4, source + 4, false);
    AsyncCommit();
    EXPECT_TRUE(std::isnan(own[0]));
    AsyncWait<1>();
    EXPECT_EQ(own[3], 4.0f);
    EXPECT_TRUE(std::isnan(own[4]));
    AsyncWait<0>();
    EXPECT_EQ(own[4], 0.0f);
  });
}

// A thread that reads its neighbour's value without a barrier gets another result when threads run in reverse
// order.
TEST(EmulatedBlock, AMissingBarrierShows) {
  std::vector<float> once(64), again(64);
  const auto race = [](std::vector<float>& out) {
    RunBlocks({1, 1, 1}, 64, 64 * 4, [&] {
      float* const shared = SharedMemory<float>();
      shared[Thread()] = 1.0f;
      const float neighbour = shared[(Thread() + 1) % 64];
      out[static_cast<size_t>(Thread())] = std::isnan(neighbour) ? 0.0f : neighbour;
    });
  };
  race(once);
  emulator::StartReversed(true);
  race(again);
  emulator::StartReversed(false);
  EXPECT_NE(once, again);
}

TEST(EmulatedBlockDeathTest, ABarrierThatSomeThreadsNeverReachAborts) {
  EXPECT_DEATH(RunBlocks({1, 1, 1}, 64, 0,
                         [] {
                           if (Thread() < 32) SyncThreads();
                         }),
               "others never reach");
}

TEST(EmulatedBlockDeathTest, AnExchangeThatSomeLanesSkipAborts) {
  EXPECT_DEATH(RunBlocks({1, 1, 1}, 32, 0,
                         [] {
                           if (Lane() != 7) SyncWarp();
                         }),
               "take no part");
}

// Tiles of 16 x 16 and 32 x 16 numbers that bf16 holds exactly.
struct Matrices {
  std::vector<float> a = Numbers(1, 16 * 16), b = Numbers(2, 32 * 16);

  static std::vector<float> Numbers(uint64_t stream, int n) {
    RandomStream random(5, stream);
    std::vector<float> numbers(static_cast<size_t>(n));
    for (float& number : numbers) number = static_cast<float>(static_cast<int>(random.Below(15)) - 7);
    return numbers;
  }
};

template <int kRows>
FlashTile<BFloat16, kRows, 16> TileOf(const std::vector<float>& values, BFloat16* at) {
  const FlashTile<BFloat16, kRows, 16> tile{at};
  for (int i = Thread(); i < kRows * 16; i += kFlashThreads)
    at[i / 16 * tile.kStride + i % 16] = Rounded<BFloat16>(values[static_cast<size_t>(i)]);
  return tile;
}

TEST(FlashTile, ProductWithTheTransposedIsTheMatrices) {
  const Matrices m;
  RunBlocks({1, 1, 1}, kFlashThreads, 4096, [&] {
    auto* const shared = SharedMemory<BFloat16>();
    const auto a = TileOf<16>(m.a, shared);
    const auto b = TileOf<32>(m.b, shared + a.kElements);
    SyncThreads();
    Results<4> sums[1];
    ClearResults(sums);
    AddTimesTransposed<BFloat16>(a, 0, b, 16, sums);
    for (int n = 0; n < 4; ++n) {
      for (int i = 0; i < 4; ++i) {
        float expected = 0.0f;
        for (int k = 0; k < 16; ++k)
          expected += m.a[RowOfElement(i) * 16 + k] * m.b[ColumnOfElement(n, i) * 16 + k];
        EXPECT_EQ(sums[0][n][i], expected);
      }
    }
  });
}

TEST(FlashTile, ResultsTimesATileAreTheProductOfThree) {
  const Matrices m;
  RunBlocks({1, 1, 1}, kFlashThreads, 4096, [&] {
    auto* const shared = SharedMemory<BFloat16>();
    const auto b = TileOf<32>(m.b, shared);
    SyncThreads();
    Results<4> left[1];  // 16 x 32: element (r, c) is r - c
    for (int n = 0; n < 4; ++n) {
      for (int i = 0; i < 4; ++i) left[0][n][i] = static_cast<float>(RowOfElement(i) - ColumnOfElement(n, i));
    }
    Results<2> sums[1];
    ClearResults(sums);
    AddResultsTimes<BFloat16>(left, b, sums);
    for (int n = 0; n < 2; ++n) {
      for (int i = 0; i < 4; ++i) {
        float expected = 0.0f;
        for (int k = 0; k < 32; ++k)
          expected += static_cast<float>(RowOfElement(i) - k) * m.b[k * 16 + ColumnOfElement(n, i)];
        EXPECT_EQ(sums[0][n][i], expected);
      }
    }
  });
}

// Checks every pair of query and key: the tiles must cover each visible pair exactly once.
void ExpectCovered(const AttentionShape& shape) {
  const Chunks &queries = shape.queries, &keys = shape.keys;
  const int all_keys = keys.count * keys.length;
  std::vector<int> from_queries(static_cast<size_t>(queries.count * queries.length * all_keys)),
      from_keys = from_queries;
  const auto count = [&](std::vector<int>& pairs, const Tile& q, const Tile& k) {
    for (int i = 0; i < q.rows; ++i) {
      for (int j = 0; j < k.rows; ++j) {
        if (!shape.Sees(q.position + i, k.position + j)) continue;
        ++pairs[static_cast<size_t>((q.chunk * queries.length + q.first + i) * all_keys +
                                    k.chunk * keys.length + k.first + j)];
      }
    }
  };
  const auto tiles = [](const Chunks& chunks) { return chunks.count * ((chunks.length + 7) / 8); };
  for (int t = 0; t < tiles(queries); ++t) {
    const Tile q = TileAt(queries, 8, t);
    for (VisibleKeys k(shape, 16, q); !k.done(); k.Next()) count(from_queries, q, k.tile());
  }
  for (int t = 0; t < tiles(keys); ++t) {
    const Tile k = TileAt(keys, 8, t);
    for (SeeingQueries q(shape, 16, k); !q.done(); q.Next()) {
      if (q.tile().head == 1) count(from_keys, q.tile(), k);
    }
  }
  for (int i = 0; i < queries.count * queries.length; ++i) {
    for (int j = 0; j < all_keys; ++j) {
      const int key = keys.Position(j / keys.length) + j % keys.length;
      const int query = queries.Position(i / queries.length) + i % queries.length;
      const int visible =
          !shape.causal || (key <= query && (shape.window == 0 || query - key < shape.window));
      EXPECT_EQ(from_queries[static_cast<size_t>(i * all_keys + j)], visible);
      EXPECT_EQ(from_keys[static_cast<size_t>(i * all_keys + j)], visible);
    }
  }
}

TEST(VisibleTiles, CoverEveryVisiblePairOnce) {
  AttentionShape shape;
  shape.heads = 2, shape.kv_heads = 1;
  for (int ranks : {1, 2, 3}) {
    shape.keys = {2 * ranks, 21, ranks, 0};
    for (int rank = 0; rank < ranks; ++rank) {
      shape.queries = {2, 21, ranks, rank};
      for (bool causal : {true, false}) {
        shape.causal = causal;
        ExpectCovered(shape);
      }
    }
  }
  shape.queries = shape.keys = {1, 50};
  ExpectCovered(shape);
  shape.causal = true;
  for (int window : {0, 1, 3, 8, 16, 17, 33, 49}) {
    shape.window = window;
    ExpectCovered(shape);
  }
}

// Tiles that lie outside the window are skipped.
TEST(VisibleTiles, AreFewWithinAWindow) {
  AttentionShape shape;
  shape.heads = shape.kv_heads = 1;
  shape.queries = shape.keys = {1, 1024};
  shape.window = 17;
  int of_queries = 0, of_keys = 0;
  for (VisibleKeys k(shape, 16, TileAt(shape.queries, 16, 20)); !k.done(); k.Next()) ++of_queries;
  for (SeeingQueries q(shape, 16, TileAt(shape.keys, 16, 20)); !q.done(); q.Next()) ++of_keys;
  EXPECT_EQ(of_queries, 2);
  EXPECT_EQ(of_keys, 2);
}

}  // namespace
}  // namespace windtunnel::cuda_emulated
