// SPDX-License-Identifier: Apache-2.0
// The instructions are replayed here as their definitions have them; kernels' addresses and registers must then
// multiply matrices.
#include "archs/cuda/fragments.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>
#include <vector>

namespace tessera::cuda {
namespace {

constexpr int kLanes = 32;
using Registers = std::array<std::array<int, 2>, 4>;  // two numbers in each of four registers

// Rows of 16-bit numbers in shared memory, addressed in bytes.
struct Shared {
  std::vector<int> numbers;
  explicit Shared(int bytes) : numbers(static_cast<size_t>(bytes) / 2, -1000) {}
  int& at(int byte) { return numbers.at(static_cast<size_t>(byte) / 2); }
};

// ldmatrix.x4: lane t gives the address of row t % 8 of tile t / 8 and receives row t / 4, columns 2 * (t % 4) and + 1
// of every tile.
std::array<Registers, kLanes> load_matrices(Shared& shared, const std::array<int, kLanes>& address, bool transposed) {
  std::array<Registers, kLanes> out{};
  for (size_t tile = 0; tile < 4; ++tile) {
    for (int t = 0; t < kLanes; ++t) {
      for (int i = 0; i < 2; ++i) {
        const int row = transposed ? 2 * (t % 4) + i : t / 4, col = transposed ? t / 4 : 2 * (t % 4) + i;
        out[static_cast<size_t>(t)][tile][static_cast<size_t>(i)] =
            shared.at(address[8 * tile + static_cast<size_t>(row)] + 2 * col);
      }
    }
  }
  return out;
}

template <int kCols>
Shared random_tile(int rows, std::vector<std::vector<int>>& matrix, uint32_t seed) {
  std::mt19937 random(seed);
  Shared shared(PaddedTile<kCols>::bytes(rows));
  matrix.assign(static_cast<size_t>(rows), std::vector<int>(kCols));
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < kCols; ++c) {
      matrix[static_cast<size_t>(r)][static_cast<size_t>(c)] =
          shared.at(PaddedTile<kCols>::offset_bytes(r, c / 8) + 2 * (c % 8)) = static_cast<int>(random() % 199) - 99;
    }
  }
  return shared;
}

template <int kCols, class Source>
std::array<Registers, kLanes> load_block(Shared& shared, int row, int chunk, Source source, bool transposed) {
  std::array<int, kLanes> address{};
  for (int t = 0; t < kLanes; ++t) {
    const Cell from = source(t);
    address[static_cast<size_t>(t)] = PaddedTile<kCols>::offset_bytes(row + from.row, chunk + from.col);
  }
  return load_matrices(shared, address, transposed);
}

TEST(Fragments, EveryCellOfAProductBelongsToOneLane) {
  std::set<std::pair<int, int>> a, b, d;
  for (int t = 0; t < kLanes; ++t) {
    for (int r = 0; r < 4; ++r) {
      const Cell first = a_cell(t, r);
      a.insert({first.row, first.col});
      a.insert({first.row, first.col + 1});
      d.insert({accumulator_cell(t, r).row, accumulator_cell(t, r).col});
    }
    for (int r = 0; r < 2; ++r) {
      const Cell first = b_cell(t, r);
      b.insert({first.row, first.col});
      b.insert({first.row + 1, first.col});
    }
  }
  EXPECT_EQ(a.size(), 256u);
  EXPECT_EQ(b.size(), 128u);
  EXPECT_EQ(d.size(), 128u);
  EXPECT_EQ(*a.rbegin(), std::pair(15, 15));
  EXPECT_EQ(*b.rbegin(), std::pair(15, 7));
  EXPECT_EQ(*d.rbegin(), std::pair(15, 7));
}

TEST(Fragments, LoadsBringOperandsWhereTheInstructionWantsThem) {
  std::vector<std::vector<int>> m;
  Shared shared = random_tile<96>(48, m, 1);
  const int row = 16, chunk = 4;
  const auto number = [&](int r, int c) { return m[static_cast<size_t>(row + r)][static_cast<size_t>(8 * chunk + c)]; };
  const auto a = load_block<96>(shared, row, chunk, a_source, false);
  const auto by_column = load_block<96>(shared, row, chunk, b_source_by_column, false);
  const auto by_row = load_block<96>(shared, row, chunk, b_source_by_row, true);
  for (int t = 0; t < kLanes; ++t) {
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < 2; ++i) {
        const auto got = [&](const std::array<Registers, kLanes>& regs) {
          return regs[static_cast<size_t>(t)][static_cast<size_t>(r)][static_cast<size_t>(i)];
        };
        EXPECT_EQ(got(a), number(a_cell(t, r).row, a_cell(t, r).col + i));
        // B has k rows and 8 columns; registers 2 and 3 are a second B, 8 columns on.
        const Cell b = b_cell(t, r % 2);
        const int k = b.row + i, n = b.col + 8 * (r / 2);
        EXPECT_EQ(got(by_column), number(n, k)) << "stored a column of B per row";
        EXPECT_EQ(got(by_row), number(k, n)) << "stored a row of B per row";
      }
    }
  }
}

// What attention does between its two products: the accumulators of two neighbouring 8-column tiles are an A operand,
// pair by pair.
TEST(Fragments, AccumulatorsAreTheNextOperand) {
  for (int t = 0; t < kLanes; ++t) {
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < 2; ++i) {
        const Cell from = accumulator_cell(t, 2 * (r % 2) + i), to = a_cell(t, r);
        EXPECT_EQ(from.row, to.row);
        EXPECT_EQ(from.col + 8 * (r / 2), to.col + i);
      }
    }
  }
}

template <int kCols>
void expect_no_bank_conflicts() {
  for (int chunk = 0; chunk < kCols / 8; ++chunk) {
    std::set<int> groups;
    for (int row = 0; row < 8; ++row) {
      EXPECT_EQ(PaddedTile<kCols>::offset_bytes(row, chunk) % 16, 0);
      groups.insert(PaddedTile<kCols>::offset_bytes(row, chunk) / 16 % 8);
    }
    EXPECT_EQ(groups.size(), 8u) << kCols << " columns, chunk " << chunk;
  }
}
TEST(Fragments, EightRowsTouchAllBanks) {
  expect_no_bank_conflicts<16>();
  expect_no_bank_conflicts<64>();
  expect_no_bank_conflicts<96>();
  expect_no_bank_conflicts<128>();
  expect_no_bank_conflicts<256>();
}

}  // namespace
}  // namespace tessera::cuda
