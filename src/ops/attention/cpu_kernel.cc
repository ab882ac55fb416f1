// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/cpu_kernel.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "archs/cpu/simd.h"
#include "base/parallel.h"
#include "op/cpu_program.h"
#include "ops/attention/attention.h"
#include "tiles/cpu/rows.h"
#include "tiles/cpu/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/cpu_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tiles/cpu/math.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

// For each of the 16 columns of s[keys][16]: brings maximum and sum up to date, turns scores into probabilities (to be
// divided by the sum at the end), and multiplies what was collected so far, o[rows][16], by exp(old maximum - maximum).
void softmax_columns_simd(float* s, int64_t keys, float scale, float* maximum, float* sum, float* o, int64_t rows) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V factor = hn::Set(d, scale), lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t c = 0; c < kPanelCols; c += lanes) {
    float* column = s + c;
    const V before = hn::LoadU(d, maximum + c);
    V top = before;
    for (int64_t j = 0; j < keys; ++j) top = hn::Max(top, hn::Mul(hn::LoadU(d, column + j * kPanelCols), factor));
    // Where every key so far is masked, the maximum is -Inf: subtract 0 instead, so that p = 0 and not NaN.
    const V base = hn::IfThenElse(hn::Eq(top, lowest), hn::Zero(d), top);
    const auto probability = [&](float* at) HWY_ATTR {
      const V p = vector_exp_down(d, hn::Sub(hn::Mul(hn::LoadU(d, at), factor), base));
      hn::StoreU(p, d, at);
      return p;
    };
    V s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    int64_t j = 0;
    for (; j + 4 <= keys; j += 4) {
      float* at = column + j * kPanelCols;
      s0 = hn::Add(s0, probability(at));
      s1 = hn::Add(s1, probability(at + kPanelCols));
      s2 = hn::Add(s2, probability(at + 2 * kPanelCols));
      s3 = hn::Add(s3, probability(at + 3 * kPanelCols));
    }
    for (; j < keys; ++j) s0 = hn::Add(s0, probability(column + j * kPanelCols));
    const V shrink = vector_exp_down(d, hn::Sub(before, base));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + c), shrink, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))), d, sum + c);
    hn::StoreU(top, d, maximum + c);
    for (int64_t r = 0; r < rows; ++r)
      hn::StoreU(hn::Mul(hn::LoadU(d, o + r * kPanelCols + c), shrink), d, o + r * kPanelCols + c);
  }
}

// The maximum of each column of scale * s[keys][16], where it is above the one found so far.
void raise_maximum_simd(const float* s, int64_t keys, float scale, float* maximum) {
  const D d;
  const V factor = hn::Set(d, scale);
  for (int64_t c = 0; c < kPanelCols; c += static_cast<int64_t>(hn::Lanes(d))) {
    V top = hn::LoadU(d, maximum + c);
    for (int64_t j = 0; j < keys; ++j) top = hn::Max(top, hn::Mul(hn::LoadU(d, s + j * kPanelCols + c), factor));
    hn::StoreU(top, d, maximum + c);
  }
}

// Scores to rounded probabilities against the maximum of the whole row: s = round(p max), p added to the sums before it
// is rounded. Adding 2^(exponent of the number + fraction bits dropped) makes the f32 addition itself round, to nearest
// even; below the smallest normal its exponent stays, and so does the step.
void round_columns_simd(float* s, int64_t keys, float scale, const WeightType& type, const float* maximum, float* sum) {
  const D d;
  const hn::RebindToSigned<D> di;
  const V factor = hn::Set(d, scale), lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const V most = hn::Set(d, type.max);
  const auto normal = hn::Set(di, (127 + type.min_exponent) << 23), exponent = hn::Set(di, 0x7f800000),
             dropped = hn::Set(di, (23 - type.mantissa_bits) << 23);
  for (int64_t c = 0; c < kPanelCols; c += static_cast<int64_t>(hn::Lanes(d))) {
    const V top = hn::LoadU(d, maximum + c);
    const V base = hn::IfThenElse(hn::Eq(top, lowest), hn::Zero(d), top);
    const auto probability = [&](float* at) HWY_ATTR {
      const V p = vector_exp_down(d, hn::Sub(hn::Mul(hn::LoadU(d, at), factor), base));
      const V x = hn::Mul(p, most);
      const V shift = hn::BitCast(d, hn::Add(hn::And(hn::Max(hn::BitCast(di, x), normal), exponent), dropped));
      hn::StoreU(hn::Sub(hn::Add(x, shift), shift), d, at);
      return p;
    };
    V s0 = hn::LoadU(d, sum + c), s1 = hn::Zero(d);
    int64_t j = 0;
    for (float* at = s + c; j + 2 <= keys; j += 2, at += 2 * kPanelCols) {
      s0 = hn::Add(s0, probability(at));
      s1 = hn::Add(s1, probability(at + kPanelCols));
    }
    if (j < keys) s0 = hn::Add(s0, probability(s + j * kPanelCols + c));
    hn::StoreU(hn::Add(s0, s1), d, sum + c);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {

HWY_EXPORT(softmax_columns_simd);
HWY_EXPORT(raise_maximum_simd);
HWY_EXPORT(round_columns_simd);

// The scores of a panel are 31.5 KiB: half of a 64 KiB first-level cache.
constexpr int64_t kMostKeys = 504;
// Packed keys and packed values: 128 KiB each at most, in the second-level cache.
constexpr int64_t kBlockFloats = 32 * 1024;
// Queries that share one packing of keys and values.
constexpr int64_t kMostRows = 256, kLeastRows = 64;
constexpr int64_t kPiecesPerThread = 4;
// Weights are rounded against the maximum of the row: all scores of a piece are kept until it is known.
constexpr int64_t kScoreFloats = 512 * 1024;

class AttentionKernel final : public Kernel {
 public:
  AttentionKernel(const Problem& problem, const PanelProduct& product)
      : problem_(problem),
        product_(product),
        p_(AttentionProblem::of(problem_)),
        program_(problem_),
        group_(p_.heads / p_.kv_heads),
        rows_(group_ * p_.queries) {
    // Blocks of equal size, so that the last is not a small rest.
    const int64_t size = std::max<int64_t>({1, p_.head_size, p_.value_size});
    const int64_t most = std::max<int64_t>(1, std::min(kMostKeys, kBlockFloats / size));
    block_keys_ = divide_up(p_.keys, divide_up(p_.keys, most));
    if (p_.has_bias) bias_element_ = problem_.in[3].type.element;
    if (p_.p) {
      const ElementInfo& e = info(p_.p->element);
      weights_ = {.max = static_cast<float>(e.max), .mantissa_bits = e.mantissa_bits, .min_exponent = e.min_exponent};
      most_rows_ = std::clamp(kScoreFloats / p_.keys / kPanelCols * kPanelCols, kPanelCols, kMostRows);
    }
    Scratch::reserve(scratch_bytes(std::min(most_rows_, round_up(rows_, kPanelCols))));
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    const int64_t keyed = p_.batch * p_.kv_heads;
    if (keyed * rows_ * p_.value_size == 0) return {};
    const int64_t fewest = divide_up(rows_, most_rows_);
    const int64_t wanted = divide_up(kPiecesPerThread * threads(), keyed);
    const int64_t rows =
        round_up(divide_up(rows_, std::clamp(wanted, fewest, std::max(fewest, rows_ / kLeastRows))), kPanelCols);
    const int64_t cuts = divide_up(rows_, rows), pieces = keyed * cuts;
    std::atomic<int64_t> next{0};
    parallel_for(std::min<int64_t>(threads(), pieces), 1, [&](int64_t, int64_t) {
      for (int64_t i = next++; i < pieces; i = next++) {
        const int64_t first = i % cuts * rows, batch = i / cuts / p_.kv_heads;
        const auto* lengths = p_.has_lengths ? static_cast<const int32_t*>(in[4].data) : nullptr;
        Piece piece{in,
                    out,
                    batch,
                    i / cuts % p_.kv_heads,
                    first,
                    std::min(rows, rows_ - first),
                    p_.valid_keys_of(lengths, batch)};
        run(piece);
      }
    });
    return {};
  }

 private:
  // Rows [first, first + rows) of the queries that read key head `kv_head` of one batch item: row r is query r %
  // queries of head r / queries of the group.
  struct Piece {
    std::span<const TensorView> in, out;
    int64_t batch, kv_head, first, rows;
    ValidKeys<int64_t> keys;
  };
  int64_t head_of(const Piece& piece, int64_t row) const {
    return piece.kv_head * group_ + (piece.first + row) / p_.queries;
  }
  int64_t query_of(const Piece& piece, int64_t row) const { return (piece.first + row) % p_.queries; }

  int64_t decoded_floats() const {
    return std::max(std::max(kPanelCols, product_.rows) * round_up(p_.head_size, 8), 6 * p_.value_size);
  }
  // Scores of `panels` panels: a block of keys of one of them at a time, or all.
  int64_t score_floats(int64_t panels) const { return kPanelCols * (p_.p ? panels * p_.keys : block_keys_); }
  int64_t scratch_bytes(int64_t rows) const {
    const int64_t panels = divide_up(rows, kPanelCols);
    return panels * product_.w_bytes(p_.head_size) + Scratch::bytes_of(panels * kPanelCols * p_.value_size) +
           2 * Scratch::bytes_of(panels * kPanelCols) + product_.x_bytes(block_keys_, p_.head_size) +
           product_.x_bytes(p_.value_size, block_keys_) + product_.w_bytes(block_keys_) +
           Scratch::bytes_of(score_floats(panels)) + Scratch::bytes_of(decoded_floats()) +
           Scratch::bytes_of(block_keys_) + Scratch::bytes_of(program_.scratch_floats(p_.value_size)) + 4 * 64;
  }

  void run(const Piece& piece) const {
    const int64_t panels = divide_up(piece.rows, kPanelCols), keys = block_keys_;
    Scratch scratch(scratch_bytes(piece.rows));
    const int64_t q_bytes = product_.w_bytes(p_.head_size);
    auto* q_panels = static_cast<uint8_t*>(scratch.bytes(panels * q_bytes));
    float* o = scratch.floats(panels * kPanelCols * p_.value_size);
    float* maximum = scratch.floats(panels * kPanelCols);
    float* sum = scratch.floats(panels * kPanelCols);
    void* k_panels = scratch.bytes(product_.x_bytes(keys, p_.head_size));
    void* v_panels = scratch.bytes(product_.x_bytes(p_.value_size, keys));
    void* p_panel = scratch.bytes(product_.w_bytes(keys));
    float* scores = scratch.floats(score_floats(panels));
    float* decoded = scratch.floats(decoded_floats());
    float* bias = scratch.floats(keys);

    for (int64_t i = 0; i < panels; ++i) pack_queries(piece, i, decoded, q_panels + i * q_bytes);
    std::fill_n(maximum, panels * kPanelCols, -std::numeric_limits<float>::infinity());
    std::fill_n(sum, panels * kPanelCols, 0.0f);
    std::fill_n(o, panels * kPanelCols * p_.value_size, 0.0f);
    const float scale = static_cast<float>(p_.scale) * tensor_scale(piece.in[0]) * tensor_scale(piece.in[1]);
    const bool edited = p_.has_bias || p_.causal;  // scores are scaled before the bias is added
    const float left = edited ? 1.0f : scale;      // the factor that they still want after that
    const auto score = [&](int64_t i, int64_t first, int64_t seen, float* to) {
      product_.multiply(k_panels, q_panels + i * q_bytes, seen, p_.head_size, true, to, kPanelCols);
      if (edited) add_bias_and_mask(piece, i, first, seen, scale, bias, to);
    };
    // Adds V^T s for n keys, of which the panel sees the first.
    const auto collect = [&](int64_t i, int64_t seen, int64_t n, float* s) {
      std::fill(s + seen * kPanelCols, s + n * kPanelCols, 0.0f);
      product_.multiply(v_panels, product_.round_w(s, n, p_panel), p_.value_size, n, false,
                        o + i * kPanelCols * p_.value_size, kPanelCols);
    };
    // Calls body(i, keys that panel i sees) for the panels that see any of the n keys from `first` on.
    const auto each_panel = [&](int64_t first, int64_t n, const auto& body) {
      for (int64_t i = 0; i < panels; ++i) {
        if (const int64_t seen = std::min(n, keys_seen(piece, i) - first); seen > 0) body(i, seen);
      }
    };
    const auto each_block = [&](const auto& body) {
      for (int64_t first = 0; first < piece.keys.all; first += keys)
        body(first, std::min(keys, piece.keys.all - first));
    };
    if (p_.p) {
      const auto scores_of = [&](int64_t i, int64_t first) { return scores + (i * p_.keys + first) * kPanelCols; };
      each_block([&](int64_t first, int64_t n) {
        pack_keys(piece, first, n, decoded, k_panels);
        each_panel(first, n, [&](int64_t i, int64_t seen) {
          score(i, first, seen, scores_of(i, first));
          HWY_DYNAMIC_DISPATCH(raise_maximum_simd)(scores_of(i, first), seen, left, maximum + i * kPanelCols);
        });
      });
      each_block([&](int64_t first, int64_t n) {
        pack_values(piece, first, n, decoded, v_panels);
        each_panel(first, n, [&](int64_t i, int64_t seen) {
          HWY_DYNAMIC_DISPATCH(round_columns_simd)
          (scores_of(i, first), seen, left, weights_, maximum + i * kPanelCols, sum + i * kPanelCols);
          collect(i, seen, n, scores_of(i, first));
        });
      });
    } else {
      each_block([&](int64_t first, int64_t n) {
        pack_keys(piece, first, n, decoded, k_panels);
        pack_values(piece, first, n, decoded, v_panels);
        each_panel(first, n, [&](int64_t i, int64_t seen) {
          score(i, first, seen, scores);
          HWY_DYNAMIC_DISPATCH(softmax_columns_simd)
          (scores, seen, left, maximum + i * kPanelCols, sum + i * kPanelCols, o + i * kPanelCols * p_.value_size,
           p_.value_size);
          collect(i, seen, n, scores);
        });
      });
    }
    write_rows(piece, o, sum, decoded, scratch.floats(program_.scratch_floats(p_.value_size)));
  }

  // Divides the rows' sums of values by those of weights, and runs the program.
  void write_rows(const Piece& piece, const float* o, const float* sum, float* row, float* scratch) const {
    const CpuProgram::Columns program = program_.on(piece.in, piece.out[0], 0, p_.value_size, scratch);
    for (int64_t r = 0; r < piece.rows; ++r) {
      const float* from = o + r / kPanelCols * kPanelCols * p_.value_size + r % kPanelCols;
      const float factor =
          sum[r] == 0 ? 0.0f : tensor_scale(piece.in[2]) / (weights_.max * sum[r]);  // no key at all: 0
      for (int64_t e = 0; e < p_.value_size; ++e) row[e] = from[e * kPanelCols] * factor;
      program.finish((piece.batch * p_.queries + query_of(piece, r)) * p_.heads + head_of(piece, r), row);
    }
  }

  void pack_keys(const Piece& piece, int64_t first, int64_t n, float* decoded, void* panels) const {
    const int64_t begin = piece.batch * p_.k_strides[0] + piece.kv_head * p_.k_strides[2];
    product_.pack_x(p_.k.element, piece.in[1].data, p_.k_strides[1], begin + first * p_.k_strides[1], n, p_.head_size,
                    decoded, panels);
  }
  void pack_values(const Piece& piece, int64_t first, int64_t n, float* decoded, void* panels) const {
    const int64_t begin = piece.batch * p_.v_strides[0] + piece.kv_head * p_.v_strides[2];
    product_.pack_x_transposed(p_.v.element, piece.in[2].data, p_.v_strides[1], begin + first * p_.v_strides[1],
                               p_.value_size, n, decoded, panels);
  }

  void pack_queries(const Piece& piece, int64_t panel, float* decoded, void* to) const {
    int64_t offsets[kPanelCols];
    const int64_t n = std::min(kPanelCols, piece.rows - panel * kPanelCols);
    for (int64_t c = 0; c < n; ++c) {
      const int64_t row = panel * kPanelCols + c;
      offsets[c] = piece.batch * p_.q_strides[0] + query_of(piece, row) * p_.q_strides[1] +
                   head_of(piece, row) * p_.q_strides[2];
    }
    product_.pack_w(p_.q.element, piece.in[0].data, offsets, n, p_.head_size, decoded, to);
  }

  // Keys that query i may see.
  int64_t seen_by(const Piece& piece, int64_t query) const { return piece.keys.seen_by(query, p_.queries, p_.causal); }
  // Keys that some query of the panel may see.
  int64_t keys_seen(const Piece& piece, int64_t panel) const {
    if (!p_.causal) return piece.keys.all;
    int64_t most = 0;
    for (int64_t r = panel * kPanelCols; r < std::min(piece.rows, (panel + 1) * kPanelCols); ++r)
      most = std::max(most, seen_by(piece, query_of(piece, r)));
    return most;
  }

  // s[j][c] = scale * s[j][c] + bias for keys first + j; -Inf where a query may not see the key.
  void add_bias_and_mask(const Piece& piece, int64_t panel, int64_t first, int64_t n, float scale, float* bias,
                         float* s) const {
    scale_row(s, n * kPanelCols, scale, nullptr);
    for (int64_t c = 0; c < std::min(kPanelCols, piece.rows - panel * kPanelCols); ++c) {
      const int64_t row = panel * kPanelCols + c, query = query_of(piece, row);
      if (p_.has_bias) {
        const Shape& t = p_.bias_strides;
        const int64_t begin = piece.batch * t[0] + head_of(piece, row) * t[1] + query * t[2];
        const int64_t old = std::clamp<int64_t>(piece.keys.old - first, 0, n);
        read_bias(piece, begin + first * t[3], old, bias);
        read_bias(piece, begin + piece.keys.bias_column(first + old) * t[3], n - old, bias + old);
        for (int64_t j = 0; j < n; ++j) s[j * kPanelCols + c] += bias[j];
      }
      for (int64_t j = std::max<int64_t>(0, seen_by(piece, query) - first); j < n; ++j)
        s[j * kPanelCols + c] = -std::numeric_limits<float>::infinity();
    }
  }
  // n numbers of the bias, for keys side by side.
  void read_bias(const Piece& piece, int64_t begin, int64_t n, float* to) const {
    const int64_t step = p_.bias_strides[3];
    if (step == 1) return decode_row(bias_element_, piece.in[3].data, begin, n, to);
    for (int64_t j = 0; j < n; ++j) decode_row(bias_element_, piece.in[3].data, begin + j * step, 1, to + j);
  }

  const Problem problem_;
  const PanelProduct& product_;
  const AttentionProblem p_;
  const CpuProgram program_;
  const int64_t group_, rows_;
  int64_t block_keys_ = 0, most_rows_ = kMostRows;
  WeightType weights_;
  Element bias_element_ = Element::f32;
};

}  // namespace

Verdict accepts_cpu_attention(const Problem& p, bool (*reads)(Element), const char* elements) {
  const char* names[] = {"q", "k", "v"};
  for (size_t i = 0; i < 3; ++i) {
    const Operand* o = p.operand(i);
    TS_REQUIRE(o != nullptr, "wants q, k and v");
    TS_REQUIRE(is_decodable(o->type) && reads(o->type.element), "reads ", names[i], " in ", elements,
               " with at most one static scale, not ", to_string(o->type));
    TS_REQUIRE(o->layout == Layout::kRows && (o->shape.back() == 1 || o->strides.back() == 1), "reads ", names[i],
               " with a contiguous last axis");
  }
  if (const Operand* bias = p.operand(3)) {
    TS_REQUIRE(is_float_code(bias->type.element) && !bias->type.scaled(), "adds a bias in f32, f16 or bf16, not ",
               to_string(bias->type));
  }
  return CpuProgram::accepts(p);
}

std::unique_ptr<Kernel> make_cpu_attention(const Problem& problem, const PanelProduct& product) {
  return std::make_unique<AttentionKernel>(problem, product);
}

}  // namespace tessera
#endif
