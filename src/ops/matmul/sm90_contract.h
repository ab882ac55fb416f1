// SPDX-License-Identifier: Apache-2.0
// What the matmuls on Hopper's wgmma share before anything runs, beside what all products on it do
// (ops/wgmma_contract.h): which operands TMA can load, norms that are folded, heads, tiles that share K or keep w.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "archs/sm90/chip.h"
#include "op/extra_results.h"
#include "ops/matmul/emulate.h"
#include "ops/matmul/matmul.h"
#include "ops/wgmma_contract.h"
#include "steps/rotary.h"
#include "tiles/sm90/gemm_tiles.h"
#include "tiles/sm90/head_columns.h"
#include "tiles/sm90/k_slices.h"
#include "tiles/sm90/swapped_shape.h"

namespace tessera {

// Programs beside the plain one: of a kernel that folds, gated, of heads.
inline constexpr StepSet kFoldingWgmmaSteps = {StepKind::normalise, StepKind::bias,     StepKind::act,
                                               StepKind::scale,     StepKind::residual, StepKind::quantize};
inline constexpr StepSet kGatedWgmmaSteps = {StepKind::bias, StepKind::gate, StepKind::quantize};
inline constexpr StepSet kFoldingGatedWgmmaSteps = {StepKind::normalise, StepKind::bias, StepKind::gate,
                                                    StepKind::quantize};
inline constexpr StepSet kHeadsWgmmaSteps = {StepKind::normalise, StepKind::bias, StepKind::scale, StepKind::rotary,
                                             StepKind::quantize};

inline bool finishes_heads(const Problem& p) { return p.then.find(StepKind::rotary) != nullptr || keeps_columns(p); }
constexpr size_t kMostKeptColumns = 2;  // keys and values

inline Verdict accepts_heads(const Problem& problem, const MatmulProblem& p) {
  const ExtraResults extra = ExtraResults::of(problem.attrs);
  TS_REQUIRE(extra.codes == 0 && extra.moments == 0, "turns heads and keeps columns beside no codes and moments");
  if (const Step* step = p.then->find(StepKind::rotary)) {
    const Operand& angles = problem.step_operand(*step);
    const RotaryStep rotary = RotaryStep::of(*step, angles.shape.back());
    const RowView rows = angles.rows();
    TS_REQUIRE(sm90::HeadColumns::fits(rotary.head, rotary.pairs),
               "turns 8, 16 or a multiple of 32 pairs of heads that are whole multiples of both halves (of 64, from 32 "
               "pairs on), here ",
               rotary.pairs, " of ", rotary.head);
    TS_REQUIRE(angles.type == QuantType(Element::f32) || (is_half(angles.type.element) && !angles.type.scaled()),
               "reads angles of f32, f16 or bf16, not ", to_string(angles.type));
    TS_REQUIRE(rows.uniform && rows.row_stride % 8 == 0 && rows.row_stride < (int64_t{1} << 31),
               "reads angles whose rows follow each other at one distance, a multiple of 8");
  }
  const std::vector<KeptColumns> kept = kept_columns(problem.attrs);
  TS_REQUIRE(kept.empty() || p.m > 0, "keeps columns of one row at least");
  TS_REQUIRE(kept.size() <= kMostKeptColumns, "keeps columns in at most ", kMostKeptColumns, " tensors");
  for (const KeptColumns& k : kept) {
    const Operand& before = problem.in[static_cast<size_t>(k.before)];
    TS_REQUIRE(k.first % 8 == 0 && k.count % 8 == 0 && kept_rows(problem, k).run % 8 == 0,
               "keeps columns in pieces of eight, which follow each other");
    TS_REQUIRE((is_half(before.type.element) && !before.type.scaled()) || before.type == kE4m3PerTensor,
               "keeps f16, bf16, or e4m3 with one static scale, not ", to_string(before.type));
    TS_REQUIRE(before.dense(), "keeps columns in dense tensors");
  }
  return {};
}

// All but the types of x, w and y.
inline Verdict accepts_for_wgmma(const Problem& problem, const MatmulProblem& p, WgmmaKernel kernel) {
  TS_REQUIRE(!is_sparse24(problem), kNotSparse);
  TS_REQUIRE(kernel.promotes || !is_promoted(problem), kFastSums);
  TS_REQUIRE(p.batch == 1 && p.constant_w, "multiplies by one constant weight");
  const int64_t unit = copy_unit(p.x.element);
  TS_REQUIRE(p.k % unit == 0 && p.x_row_stride % unit == 0, "rows of x must be multiples of 16 bytes: k is ", p.k);
  TS_REQUIRE(kernel.folds || !has_folded_norm(problem), kNoFoldedNorm);
  TS_REQUIRE(kernel.heads || !keeps_columns(problem), kNoKeptColumns);
  if (problem.out.size() > 1) TS_REQUIRE(is_half(p.y.element), "writes other results beside 16-bit ones only");
  const bool gated = p.then->gated(), heads = kernel.heads && finishes_heads(problem);
  TS_REQUIRE(kernel.gates || !gated, "runs no gate");
  TS_REQUIRE(!gated || problem.out.size() == 1, "writes no other results beside what a gate leaves");
  const StepSet& steps = heads          ? kHeadsWgmmaSteps
                         : gated        ? kernel.folds ? kFoldingGatedWgmmaSteps : kGatedWgmmaSteps
                         : kernel.folds ? kFoldingWgmmaSteps
                                        : kWgmmaSteps;
  if (Verdict v = accepts_epilogue(problem, p, vector_of_wgmma(p), kernel, steps); !v || !heads) return v;
  return accepts_heads(problem, p);
}

inline Verdict accepts_on_wgmma(const Problem& problem, const MatmulProblem& p, WgmmaKernel kernel = {}) {
  if (Verdict v = accepts_wgmma_types(p, kernel); !v) return v;
  return accepts_for_wgmma(problem, p, kernel);
}

inline int64_t stored_w_rows(const Problem& problem) { return stored_w_rows(problem, MatmulProblem::of(problem)); }
inline Arithmetic gemm_arithmetic(const Problem& problem) { return gemm_arithmetic(MatmulProblem::of(problem)); }

// Tiles of 128 x 192 whose blocks keep their rows of w (tiles/sm90/gemm.cuh, kResident): codes to such codes, k of a
// few blocks of 128 bytes, a block for each column of tiles.
inline constexpr const char* kResidentConfig = "128x192 w";
inline bool may_keep_w(const Product& p) {
  return info(p.x.element).bits == 8 && p.y.element == p.x.element && !p.then->gated() &&
         p.k <= sm90::kResidentBlocks * 128 && p.n <= sm90::kSms * 192;
}

// Tiles whose K is split over the blocks of a cluster ("128x192/2", tiles/sm90/gemm_share.cuh): for problems with fewer
// tiles than SMs. 16-bit results, no activation.
inline std::string gemm_name(int cols, int split) { return cat("128x", cols, split > 1 ? cat("/", split) : ""); }
inline int split_of(const std::string& config) {
  const size_t slash = config.find('/');
  return slash == std::string::npos ? 1 : std::atoi(config.c_str() + slash + 1);
}
inline int64_t gemm_blocks_of_k(const Product& p) { return divide_up(p.k * info(p.x.element).bits / 8, 128); }
inline bool may_split(const Product& p) {
  return is_half(p.y.element) && p.then->find(StepKind::act) == nullptr && !p.then->gated();
}

// Nanoseconds of a tile shape on an H200: the products of a block of K take 2.4 for each column of a tile and block;
// beside them there are a launch, a program, and slices that meet, which takes longer with more blocks (fitted to the
// problems of assets/tuning/h200.json).
constexpr double kMeetingBlock = 23;
inline double gemm_cost(const Product& p, int cols, int split) {
  const int64_t tiles = divide_up(p.m, 128) * divide_up(p.n, cols),
                rounds = divide_up(tiles, sm90::clusters_at_once(split));
  const double products = 2.4 * static_cast<double>(divide_up(gemm_blocks_of_k(p), split) * cols);
  return 2500 + static_cast<double>(rounds) * products * (cols == 128 ? 1.1 : 1.0) +
         (split > 1 ? 800 + 200 * split + kMeetingBlock * static_cast<double>(tiles * split) : 0);
}

inline double whole_tiles_cost(const Product& p) { return std::min(gemm_cost(p, 192, 1), gemm_cost(p, 128, 1)); }

// The split shapes that leave no block without K and no second round of blocks, best guess first. Left out are those
// that would be slower than whole tiles even if slices met in no time.
inline std::vector<std::string> split_configs(const Product& p) {
  std::vector<std::pair<double, std::string>> ranked;
  for (const int cols : {192, 128}) {
    const int64_t tiles = divide_up(p.m, 128) * divide_up(p.n, cols);
    for (int split = 2; may_split(p) && split <= sm90::most_split(cols); ++split) {
      if (tiles <= sm90::clusters_at_once(split) && gemm_blocks_of_k(p) >= 4 * split &&
          gemm_cost(p, cols, split) < whole_tiles_cost(p) + kMeetingBlock * static_cast<double>(tiles * split))
        ranked.emplace_back(gemm_cost(p, cols, split), gemm_name(cols, split));
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (auto& [cost, name] : ranked) names.push_back(std::move(name));
  return names;
}

// Tile shapes of the normal mainloop for a problem, best guess first: the one whose last round of tiles leaves fewer of
// the chip's SMs idle. 192 columns read less from shared memory for each product: 128x128 takes 1.1 times as
// long for the same area. Products of 8 bits are so short beside an activation that the registers it has in 128x128
// count for more (ViT-B b64, fc1: 50.3 against 51.1 us; in 16 bits 95.6 against 90.7). Blocks that keep w take 0.9
// times as long, activations aside, once they have several tiles each and their grid, so many blocks for every column,
// leaves no more SMs idle.
inline std::vector<std::string> gemm_configs(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  const auto cost = [&](int64_t cols) { return columns_in_turn(p, cols); };
  const bool act = p.then->find(StepKind::act) != nullptr;
  const bool more = p.then->find(StepKind::scale) != nullptr || p.then->find(StepKind::residual) != nullptr;
  // GemmShape::kRunsAny
  if ((act && more) || (p.then->gated() && is_half(p.y.element)) || runs_relu(*p.then)) return {"128x128"};
  std::vector<std::string> names = {"128x192", "128x128"};
  if (cost(192) > (act && !is_half(p.x.element) ? 0.95 : 1.1) * cost(128)) std::swap(names[0], names[1]);
  if (may_keep_w(p)) {
    const int64_t rows = (p.m + 127) / 128, cols = (p.n + 191) / 192;
    bool first = !act && rows * cols >= 4 * sm90::kSms;
    if (first) {
      const int64_t blocks =
          sm90::blocks_per_column(static_cast<uint32_t>(rows), static_cast<uint32_t>(cols), sm90::kSms);
      first = 0.9 * static_cast<double>((rows + blocks - 1) / blocks * 192) <= std::min(cost(192), 1.1 * cost(128));
    }
    names.insert(first ? names.begin() : names.end(), kResidentConfig);
  }
  std::ptrdiff_t faster = 0;
  for (const std::string& split : split_configs(p)) {
    const int cols = split.rfind(gemm_name(128, 1), 0) == 0 ? 128 : 192;
    const bool first = gemm_cost(p, cols, split_of(split)) < whole_tiles_cost(p);
    names.insert(first ? names.begin() + faster++ : names.end(), split);
  }
  return names;
}

// Where rows are few the swapped mainloop is faster, or the normal one with slices of K: as their costs say, where the
// difference is larger than the estimates' own error.
inline Verdict worthwhile_for_gemm(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  if (p.m > 512 || p.m == 0 || p.n == 0) return {};
  const std::string best = gemm_configs(problem)[0];
  const double own = gemm_cost(p, best.rfind(gemm_name(128, 1), 0) == 0 ? 128 : 192, split_of(best));
  const int blocks = static_cast<int>(gemm_blocks_of_k(p));
  const auto swapped = static_cast<double>(
      sm90::swapped_cost(sm90::rank_swapped_shapes(p.m, p.n, blocks, sm90::kSms)[0], p.m, p.n, blocks, sm90::kSms));
  TS_REQUIRE(1.15 * own < swapped, "not clearly faster than the swapped mainloop at ", p.m, " rows: some ",
             std::lround(own / 1000), " us against ", std::lround(swapped / 1000));
  return {};
}

// The normal mainloop walks k, or each slice of it, from its first number on in one accumulator; slices are added up in
// f32, the first one first.
inline Emulation emulate_gemm(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out) {
  const MatmulProblem p = MatmulProblem::of(problem);
  const std::string config = problem.config.empty() ? gemm_configs(problem)[0] : problem.config;
  SumOrder order{wgmma_core(p.x.element)};
  const int split = split_of(config), block = 128 * 8 / info(p.x.element).bits;
  for (int s = 0; split > 1 && s < split; ++s)
    order.slices.push_back(int64_t{sm90::slice_begin(static_cast<int>(gemm_blocks_of_k(p)), split, s)} * block);
  return emulate_wgmma(problem, in, out, order, Mainloop::kNormal);
}

// A variant on the normal mainloop. `bind` is null where only contracts are compiled.
inline Variant gemm_variant(const char* name, Verdict (*accepts)(const Problem&),
                            Result<std::unique_ptr<Kernel>> (*bind)(const Problem&), SassPromise sass) {
  return {.name = name,
          .arch = Arch::sm90,
          .accepts = accepts,
          .arithmetic = gemm_arithmetic,
          .worthwhile = worthwhile_for_gemm,
          .configs = gemm_configs,
          .layouts = layouts_for_wgmma,
          .emulate = emulate_gemm,
          .operand_align = 16,
          .sass = std::move(sass),
          .bind = bind};
}

}  // namespace tessera
