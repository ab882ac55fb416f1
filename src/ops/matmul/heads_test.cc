// SPDX-License-Identifier: Apache-2.0
// Queries, keys and values whose heads are turned where they are made (steps/rotary.h), and columns that go straight
// into the rows of a cache (op/extra_results.h).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "op/prepack.h"
#include "op/reference.h"
#include "ops/matmul/sm90_contract.h"
#include "ops/matmul/test_problems.h"
#include "testing/mutations.h"

namespace tessera {
namespace {

// q heads, a key and a value head for each `share` of them. `pairs` of each head turn. Rows of a cache: `room` more
// than tokens. `axis`: of the caches, 1: [b, rows, heads, size], 2: [b, heads, rows, size]. `angle_rows`: of one batch
// item or all.
struct Heads {
  int64_t batch = 1, tokens = 10, k = 144;
  int64_t q = 4, kv = 1, size = 64, pairs = 32;
  int64_t room = 23, axis = 1;
  bool one_number = true, same_angles = true;
  Element angles = Element::f32;
  std::string program = {};  // letters of problem() before the heads are turned
};

// `cache`: its type; nothing: heads are turned and nothing is kept.
Problem heads_problem(const Types& t, const Heads& h, std::optional<QuantType> cache) {
  const int64_t turned = (h.q + h.kv) * h.size, n = turned + h.kv * h.size;
  const Element side = info(t.y.element).bits == 8 ? Element::f16 : t.y.element;
  Problem p = problem(t, {h.batch, h.tokens, h.k}, n, h.program, side);
  if (h.pairs > 0) {
    Step step{.kind = StepKind::rotary, .operand = static_cast<int>(p.in.size())};
    step.numbers = {static_cast<double>(h.size), static_cast<double>(turned)};
    p.in.push_back(dense_operand({h.same_angles ? 1 : h.batch, h.tokens, 2 * h.pairs}, h.angles));
    const bool quantized = !p.then.empty() && p.then.steps.back().kind == StepKind::quantize;
    p.then.steps.insert(quantized ? p.then.steps.end() - 1 : p.then.steps.end(), step);
  }
  std::vector<KeptColumns> kept;
  for (const int64_t first : {h.q * h.size, turned}) {
    if (!cache) break;
    const int64_t rows = h.tokens + h.room;
    KeptColumns& one = kept.emplace_back();
    one = {.first = first, .count = h.kv * h.size, .axis = h.axis, .before = static_cast<int>(p.in.size())};
    const Shape shape = h.axis == 1 ? Shape{h.batch, rows, h.kv, h.size} : Shape{h.batch, h.kv, rows, h.size};
    p.in.push_back(dense_operand(shape, *cache));
    one.at = static_cast<int>(p.in.size());
    p.in.push_back(dense_operand({h.one_number ? 1 : h.batch}, Element::i32));
  }
  if (!kept.empty()) set_kept_columns(p.attrs, kept);
  return make_problem("matmul", p.in, p.attrs, p.then, t.y);
}

const Types kHeadTypes[] = {{kF16, kF16, kF16},
                            {kBf16, kBf16, kBf16},
                            {kE4m3PerTensor, kE4m3PerChannel, kF16},
                            {kE4m3PerTensor, kE4m3PerTensor, kBf16},
                            {kInt8PerTensor, kInt8PerChannel, kF16}};
// By 4-bit weights: variants of their own.
const Types kNibbleHeadTypes[] = {{kF16, kNvfp4, kF16}, {kE4m3PerTensor, kNvfp4AsE4m3, kF16}};
std::vector<Types> all_head_types() {
  std::vector<Types> all(std::begin(kHeadTypes), std::end(kHeadTypes));
  all.insert(all.end(), std::begin(kNibbleHeadTypes), std::end(kNibbleHeadTypes));
  return all;
}

// Tokens around the tiles of 16, 32, 64 and 112; heads of whole blocks and of several in one; parts of heads; caches of
// both orders, batches, one number for all and one for each, codes in the cache.
std::vector<Problem> heads_problems() {
  std::vector<Problem> all;
  for (const Types& t : all_head_types()) {
    const QuantType cache = t.y;
    const auto add = [&](const Heads& h, std::optional<QuantType> kept) { all.push_back(heads_problem(t, h, kept)); };
    for (const int64_t tokens : {1, 10, 16, 17, 50, 113}) {
      for (const int64_t size : {64, 128, 256})
        add({.tokens = tokens, .q = size == 256 ? 2 : 3, .size = size, .pairs = size / 2}, cache);
    }
    for (const auto& [size, pairs] : {std::pair<int64_t, int64_t>{16, 8}, {32, 16}, {32, 8}, {128, 32}, {256, 96}})
      add({.q = 3, .size = size, .pairs = pairs, .program = "b"}, cache);
    for (const int64_t axis : {1, 2}) {
      for (const bool one : {true, false})
        add({.batch = 2,
             .tokens = 9,
             .q = 4,
             .kv = 2,
             .size = 64,
             .axis = axis,
             .one_number = one,
             .same_angles = !one,
             .program = "nb"},
            cache);
    }
    add({.tokens = 17, .k = 2048, .q = 8, .size = 256, .pairs = 128, .angles = t.y.element}, cache);
    add({.tokens = 5, .size = 128, .pairs = 64, .room = 0, .program = "bs"}, cache);
    add({.tokens = 20, .size = 128, .pairs = 64}, kE4m3PerTensor);
    add({.tokens = 20, .size = 32, .pairs = 0}, cache);                  // nothing turns
    add({.tokens = 33, .size = 128, .pairs = 64, .program = "bs"}, {});  // nothing is kept
  }
  all.push_back(heads_problem({kE4m3PerTensor, kE4m3PerChannel, kE4m3PerTensor}, {.tokens = 12, .program = "b"}, {}));
  all.push_back(heads_problem({kF16, kF16, kF32}, {.tokens = 12, .program = "b"}, {}));
  return all;
}

// Cosines and sines of some angles; numbers that are a place in the cache and such that are none; moments.
void draw_heads(const Problem& p, size_t i, std::vector<double>& v) {
  const auto reads = [&](StepKind kind) {
    const Step* step = p.then.find(kind);
    return step != nullptr && i == static_cast<size_t>(step->operand);
  };
  if (reads(StepKind::normalise)) {
    for (size_t at = 1; at < v.size(); at += 2) v[at] = 64 * std::fabs(v[at]) + 1;
  }
  if (reads(StepKind::rotary)) {
    const size_t cols = static_cast<size_t>(p.in[i].shape.back());
    for (size_t at = 0; at < v.size(); ++at) {
      const double angle = static_cast<double>(at / cols) * 1.3 + static_cast<double>(at % (cols / 2)) * 0.37 + 0.5;
      v[at] = at % cols < cols / 2 ? std::cos(angle) : std::sin(angle);
    }
  }
  for (const KeptColumns& kept : kept_columns(p.attrs)) {
    if (static_cast<size_t>(kept.at) != i) continue;
    const double middle = static_cast<double>(kept_rows(p, kept).rows - kept_rows(p, kept).tokens) / 2;
    const double some[] = {
        std::floor(middle), 0, -3, 1e6, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max(), 1};
    for (double& x : v) x = some[static_cast<uint64_t>(std::fabs(x)) % std::size(some)];
  }
}

class MatmulHeads : public ::testing::TestWithParam<const Variant*> {};

TEST_P(MatmulHeads, AgreesOnHeads) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  uint64_t seed = 1;
  for (const Problem& p : heads_problems()) {
    check_variant(*GetParam(), p, seed, Values::kRandom, draw_heads);
    check_variant(*GetParam(), p, seed++, Values::kZeros, draw_heads);
  }
}

// As in a plan: each cache in one memory, of which only the new rows are written. The others keep their codes, NaN and
// all.
TEST_P(MatmulHeads, KeepsInPlace) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  const Variant& v = *GetParam();
  if (info(v.arch).device != DeviceKind::kCuda) GTEST_SKIP() << "runs no heads";
  for (const Types& t : kHeadTypes) {
    const Problem p = heads_problem(t, {.batch = 2, .tokens = 10, .size = 256, .pairs = 128, .one_number = false}, t.y);
    if (!v.accepts(p)) continue;
    const Case c = make_case(p, 3, Values::kRandom, [](const Problem& q, size_t i, std::vector<double>& numbers) {
      draw_heads(q, i, numbers);
      for (const KeptColumns& kept : kept_columns(q.attrs)) {
        if (static_cast<size_t>(kept.before) == i) std::fill(numbers.begin(), numbers.end(), NAN);
        if (static_cast<size_t>(kept.at) == i) numbers = {7, 2};
      }
    });
    Problem bound = p;
    const std::vector<OperandLayout> layouts = layouts_of(v, p);
    std::vector<DeviceBuffer> memory(c.in.size() * 2 + c.out.size());
    std::vector<TensorView> in(c.in.size()), out(c.out.size());
    const auto put = [&](size_t slot, const Buffer& bytes) -> void* {
      if (bytes.size() == 0) return nullptr;
      EXPECT_TRUE(memory[slot].allocate(bytes.size()).ok());
      EXPECT_TRUE(copy_to_device(memory[slot].data(), bytes.data(), bytes.size()).ok());
      return memory[slot].data();
    };
    for (size_t i = 0; i < in.size(); ++i) {
      bound.in[i].layout = layouts[i];
      const auto packed = prepack(bound.in[i], c.in[i].data.data(), c.in[i].scale.data());
      ASSERT_TRUE(packed.ok());
      in[i] = {.desc = &bound.in[i],
               .data = put(2 * i, layouts[i].codes == Layout::kRows ? c.in[i].data : packed->codes),
               .scale = put(2 * i + 1, c.in[i].scale)};
    }
    Buffer y(static_cast<size_t>(packed_bytes(t.y.element, elements(p.out[0].shape))));
    std::memset(y.data(), 0xff, y.size());
    out[0] = {.desc = &bound.out[0], .data = put(2 * in.size(), y)};
    const std::vector<KeptColumns> kept = kept_columns(p.attrs);
    for (size_t r = 0; r < kept.size(); ++r)
      out[r + 1] = {.desc = &bound.out[r + 1], .data = in[static_cast<size_t>(kept[r].before)].data};
    const auto kernel = v.bind(bound);
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    ASSERT_TRUE((*kernel)->launch(in, out, nullptr, {}).ok());
    ASSERT_TRUE(device_synchronise().ok());
    for (size_t r = 0; r < kept.size(); ++r) {
      const Operand& desc = p.out[r + 1];
      Buffer bytes(static_cast<size_t>(packed_bytes(desc.type.element, elements(desc.shape))));
      ASSERT_TRUE(copy_to_host(bytes.data(), out[r + 1].data, bytes.size()).ok());
      const Dense got = decode({.desc = &desc, .data = bytes.data()});
      const int64_t run = desc.shape[2] * desc.shape[3], rows = desc.shape[1];
      for (size_t i = 0; i < got.v.size(); ++i) {
        const int64_t row = static_cast<int64_t>(i) / run % rows,
                      first = static_cast<int64_t>(i) / run / rows == 0 ? 7 : 2;
        ASSERT_EQ(std::isnan(got.v[i]), row < first || row >= first + 10) << v.name << " " << r << " " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, MatmulHeads, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(MatmulHeadsPower, MutationsAreCaught) { expect_power_of_all(op(), heads_problems(), draw_heads); }

// A kernel that turned by a neighbour's angles, or did not read where the rows go, would be seen.
TEST(MatmulHeadsPower, AnotherRowOfTheCacheIsCaught) {
  const Variant& v = *find_variant("matmul/sm90_swapped");
  for (const Types& t : kHeadTypes) {
    const Problem p = heads_problem(t, {.tokens = 10}, t.y);
    const auto with = [&](Adjust adjust) { return make_case(p, 7, Values::kRandom, adjust); };
    const Case right = with([](const Problem& q, size_t i, std::vector<double>& numbers) {
      draw_heads(q, i, numbers);
      if (q.in[i].type == QuantType(Element::i32)) numbers = {5};
    });
    const Case wrong = with([](const Problem& q, size_t i, std::vector<double>& numbers) {
      draw_heads(q, i, numbers);
      if (q.in[i].type == QuantType(Element::i32)) numbers = {0};
    });
    const Judge judge = judge_of(v, right), other = judge_of(v, wrong);
    EXPECT_TRUE(judge.emulated());
    std::vector<HostTensor> given;
    for (size_t r = 0; r < p.out.size(); ++r) {
      HostTensor& made = given.emplace_back();
      made = {.desc = p.out[r],
              .data = Buffer(static_cast<size_t>(packed_bytes(p.out[r].type.element, elements(p.out[r].shape)))),
              .scale = {},
              .scale2 = {}};
      encode_units(p.out[r].type, judge.middle(r), made.data.data());
    }
    EXPECT_TRUE(judge.of(views_of(given)).ok());
    for (size_t r = 1; r < p.out.size(); ++r) {
      std::vector<TensorView> views = views_of(given);
      Buffer bytes(given[r].data.size());
      encode_units(p.out[r].type, other.middle(r), bytes.data());
      views[r].data = bytes.data();
      EXPECT_FALSE(judge.of(views).ok()) << r;
    }
  }
}

// The emulation is the reference, but for the roundings: each within what the error rules allow.
TEST(MatmulHeads, EmulationIsTheReference) {
  const Variant& v = *find_variant("matmul/sm90_swapped");
  uint64_t seed = 1;
  for (const Problem& p : heads_problems()) {
    if (p.in[0].shape[1] > 20 || !v.accepts(p)) continue;
    const Case c = make_case(p, seed++, Values::kRandom, draw_heads);
    const Judge emulated = judge_of(v, c);
    Variant plain = v;
    plain.emulate = nullptr;
    const Judge bounded = judge_of(plain, c);
    std::vector<HostTensor> given;
    for (size_t r = 0; r < p.out.size(); ++r) {
      HostTensor& made = given.emplace_back();
      made.desc = p.out[r];
      made.data = Buffer(static_cast<size_t>(packed_bytes(p.out[r].type.element, elements(p.out[r].shape))));
      if (c.out[r].scale.size() > 0) {
        made.scale = Buffer(c.out[r].scale.size());
        std::memcpy(made.scale.data(), c.out[r].scale.data(), made.scale.size());
      }
      encode_units(p.out[r].type, emulated.middle(r), made.data.data());
    }
    const Judgement j = bounded.of(views_of(given));
    EXPECT_TRUE(j.ok()) << c.text() << " result " << j.result << " at " << j.at << ": " << j.got << ", allowed "
                        << j.low << " to " << j.high;
  }
}

TEST(MatmulHeadsContract, RunWhereTheKernelSaysSo) {
  std::set<std::string> took;
  for (const Problem& p : heads_problems()) {
    for (const Variant* v : op().variants) {
      if (v->accepts(p)) took.insert(v->name);
    }
  }
  EXPECT_EQ(took, (std::set<std::string>{"matmul/sm90_swapped", "matmul/sm90_w4"}));
  const Variant& v = *find_variant("matmul/sm90_swapped");
  const auto refusal = [&](const Heads& h, const QuantType& cache = kF16) {
    return v.accepts(heads_problem(kHeadTypes[0], h, cache)).refusal;
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_NE(refusal({.size = 72, .pairs = 36}).find("turns 8, 16 or a multiple of 32 pairs"), std::string::npos);
  EXPECT_NE(refusal({.size = 96, .pairs = 32}).find("turns 8, 16 or a multiple of 32 pairs"), std::string::npos);
  EXPECT_NE(refusal({}, kF32).find("keeps f16, bf16"), std::string::npos);
  // A block's 64 channels are no neighbours where heads turn: they are not the 64 numbers that moments are of.
  EXPECT_NE(refusal({.q = 2, .size = 256, .pairs = 128, .program = "m"}).find("no codes and moments"),
            std::string::npos);
  EXPECT_NE(refusal({.program = "g"}).find("in this order only"), std::string::npos);
  EXPECT_NE(refusal({.program = "r"}).find("in this order only"), std::string::npos);
}

TEST(MatmulHeadsRule, KeptColumnsFitTheirTensors) {
  const Problem good = heads_problem(kHeadTypes[0], {.batch = 2, .tokens = 3}, kF16);
  ASSERT_TRUE(check_problem(op(), good).ok());
  const auto refused = [&](auto change) {
    Problem p = good;
    std::vector<KeptColumns> kept = kept_columns(p.attrs);
    change(p, kept);
    set_kept_columns(p.attrs, kept);
    return !check_problem(op(), p).ok();
  };
  using Kept = std::vector<KeptColumns>;
  EXPECT_FALSE(refused([](Problem&, Kept&) {}));
  EXPECT_TRUE(refused([](Problem&, Kept& k) { k[0].first = 4096; }));
  EXPECT_TRUE(refused([](Problem&, Kept& k) { k[0].count = 32; }));
  EXPECT_TRUE(refused([](Problem&, Kept& k) { k[0].axis = 0; }));
  EXPECT_TRUE(refused([](Problem&, Kept& k) { k[0].axis = 4; }));
  EXPECT_TRUE(refused([](Problem&, Kept& k) { k[0].before = 99; }));
  EXPECT_TRUE(refused([](Problem&, Kept& k) { k[0].before = -1; }));
  EXPECT_TRUE(refused([](Problem&, Kept& k) { k[0].at = 99; }));
  EXPECT_TRUE(refused([](Problem&, Kept& k) { k[0].at = 0; })) << "x is no number";
  EXPECT_FALSE(refused([](Problem&, Kept& k) { k[0].at = -1; }));
  EXPECT_TRUE(refused([](Problem&, Kept& k) { k.pop_back(); })) << "a result more than the attribute says";
  EXPECT_TRUE(refused([](Problem& p, Kept&) { p.out[1].type = kBf16; }));
  EXPECT_TRUE(refused([](Problem& p, Kept& k) {
    Operand& cache = p.in[static_cast<size_t>(k[0].before)];
    cache = dense_operand({2, 2, 1, 64}, kF16), p.out[1] = cache;
  })) << "three tokens into two rows";
  EXPECT_EQ(op().in_place(good, 0), -1);
  EXPECT_EQ(op().in_place(good, 1), kept_columns(good.attrs)[0].before);
  EXPECT_EQ(op().in_place(good, 2), kept_columns(good.attrs)[1].before);
}

// The op rotary and the op write, on the matmul's result.
TEST(MatmulHeadsReference, IsRotaryAndWrite) {
  const Heads h{.batch = 2, .tokens = 3, .k = 16, .q = 2, .size = 16, .pairs = 4, .one_number = false};
  const Problem p = heads_problem({kF32, kF32, kF32}, h, kF32);
  const Case c = make_case(p, 11, Values::kRandom, draw_heads);
  Problem plain = p;
  plain.then = {}, plain.attrs = {}, plain.in.resize(2), plain.out.resize(1);
  const Dense y = compute_reference(op(), plain, std::vector<Dense>{c.numbers[0], c.numbers[1]})[0];
  const int64_t rows = h.batch * h.tokens, cols = y.shape.back(), heads = 3;
  Dense x{{h.batch, h.tokens, heads, h.size}, {}}, cos{{1, h.tokens, h.pairs}, {}}, sin = cos;
  for (int64_t r = 0; r < rows; ++r)
    x.v.insert(x.v.end(), y.v.begin() + r * cols, y.v.begin() + r * cols + heads * h.size);
  for (int64_t t = 0; t < h.tokens; ++t) {
    const auto row = c.numbers[2].v.begin() + t * 2 * h.pairs;
    cos.v.insert(cos.v.end(), row, row + h.pairs);
    sin.v.insert(sin.v.end(), row + h.pairs, row + 2 * h.pairs);
  }
  const Problem rotary = make_problem(
      "rotary", {dense_operand(x.shape, kF32), dense_operand(cos.shape, kF32), dense_operand(sin.shape, kF32)});
  const Dense turned = compute_reference(*find_op("rotary"), rotary, std::vector<Dense>{x, cos, sin})[0];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < cols; ++i) {
      const double want = i < heads * h.size ? turned.v[static_cast<size_t>(r * heads * h.size + i)]
                                             : y.v[static_cast<size_t>(r * cols + i)];
      ASSERT_EQ(c.exact[0].v[static_cast<size_t>(r * cols + i)], want) << r << " " << i;
    }
  }
  for (const KeptColumns& kept : kept_columns(p.attrs)) {
    Dense fresh{{h.batch, h.tokens, 1, h.size}, {}};
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = c.exact[0].v.begin() + r * cols + kept.first;
      fresh.v.insert(fresh.v.end(), row, row + kept.count);
    }
    const auto before = static_cast<size_t>(kept.before), at = static_cast<size_t>(kept.at);
    const Problem write =
        make_problem("write", {p.in[before], dense_operand(fresh.shape, kF32), p.in[at]}, {{"axis", int64_t{1}}});
    const Dense want =
        compute_reference(*find_op("write"), write, std::vector<Dense>{c.numbers[before], fresh, c.numbers[at]})[0];
    EXPECT_EQ(c.exact[kept.first == h.q * h.size ? 1 : 2].v, want.v);
  }
}

}  // namespace
}  // namespace tessera
