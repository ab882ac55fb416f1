// SPDX-License-Identifier: Apache-2.0
#include "testing/mutations.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/atomic_file.h"
#include "op/extra_results.h"
#include "op/operand_extent.h"
#include "op/reference.h"
#include "ops/attention/attention.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"

namespace tessera {
namespace {

constexpr int64_t kMany = 512;  // results of a case

// Results before they are rounded, in units of their element: what kernels get wrong.
using Codes = std::vector<double>;
struct Extent {
  int64_t rows, cols;
};

struct ResultMutation {
  const char* name;
  bool changes_many;  // of any results that are not all zero
  void (*apply)(Codes&, Extent);
};
void scale_by(Codes& v, double factor) {
  for (double& x : v) x *= factor;
}
const ResultMutation kOfResults[] = {
    {"zero", true, [](Codes& v, Extent) { scale_by(v, 0); }},
    {"negated", true, [](Codes& v, Extent) { scale_by(v, -1); }},
    {"x1.1", true, [](Codes& v, Extent) { scale_by(v, 1.1); }},
    {"x1.01", true, [](Codes& v, Extent) { scale_by(v, 1.01); }},
    {"one row zero", false, [](Codes& v, Extent e) { std::fill_n(v.begin() + e.rows / 2 * e.cols, e.cols, 0.0); }},
    {"last row is the first", false,
     [](Codes& v, Extent e) { std::copy_n(v.begin(), e.cols, v.begin() + (e.rows - 1) * e.cols); }},
    {"one tile zero", false,
     [](Codes& v, Extent e) {
       for (int64_t r = (e.rows - 1) / 64 * 64; r < e.rows; ++r) {
         for (int64_t c = (e.cols - 1) / 64 * 64; c < e.cols; ++c) v[static_cast<size_t>(r * e.cols + c)] = 0;
       }
     }},
    {"columns exchanged", false,
     [](Codes& v, Extent e) {
       for (int64_t r = 0; r < e.rows; ++r) {
         for (int64_t c = 0; c + 1 < e.cols; c += 2)
           std::swap(v[static_cast<size_t>(r * e.cols + c)], v[static_cast<size_t>(r * e.cols + c + 1)]);
       }
     }},
};

// What a kernel would read instead of operand i; false: this problem has no such thing.
struct OperandMutation {
  const char* name;
  bool (*apply)(const Problem&, std::vector<HostTensor>& in, Problem& changed);
  size_t result = 0;  // that shows it
};

void change_numbers(HostTensor& t, const std::function<void(std::vector<double>&, int64_t cols)>& body) {
  Dense numbers = decode(t.view());
  body(numbers.v, cols_of(t.desc.shape));
  const bool dynamic = t.desc.type.dynamic;
  t.desc.type.dynamic = false;
  encode(numbers, t.view());
  t.desc.type.dynamic = dynamic;
}
void rotate_by(std::vector<double>& v, int64_t places) {
  if (!v.empty()) std::rotate(v.begin(), v.begin() + places % static_cast<int64_t>(v.size()), v.end());
}
bool rotate_step(const Problem& p, StepKind kind, int64_t places, std::vector<HostTensor>& in) {
  const Step* step = p.then.find(kind);
  if (step == nullptr) return false;
  change_numbers(in[static_cast<size_t>(step->operand)],
                 [&](std::vector<double>& v, int64_t) { rotate_by(v, places); });
  return true;
}

const OperandMutation kOfOperands[] = {
    {"last of k missing",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) {
       const int64_t k = p.op == "matmul" ? p.in[0].shape.back() : 0, block = 128 * 8 / info(p.in[0].type.element).bits;
       if (k < 2) return false;
       change_numbers(in[0], [&](std::vector<double>& v, int64_t cols) {
         const int64_t from = k > block ? (k - 1) / block * block : k / 2;
         for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int64_t>(i) % cols >= from ? 0 : v[i];
       });
       return true;
     }},
    {"one instruction of k missing",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) {
       const int64_t k = p.op == "matmul" ? p.in[0].shape.back() : 0, step = 32 * 8 / info(p.in[0].type.element).bits;
       if (k <= step) return false;
       change_numbers(in[0], [&](std::vector<double>& v, int64_t cols) {
         for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int64_t>(i) % cols / step == k / step / 2 ? 0 : v[i];
       });
       return true;
     }},
    {"bias of the next channel",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) { return rotate_step(p, StepKind::bias, 1, in); }},
    {"gain of the next channel",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) { return rotate_step(p, StepKind::scale, 1, in); }},
    {"codes' gain of the next channel",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) {
       const int at = ExtraResults::of(p.attrs).gain;
       if (at == 0) return false;
       change_numbers(in[static_cast<size_t>(at)], [](std::vector<double>& v, int64_t) { rotate_by(v, 1); });
       return true;
     },
     1},
    {"residual of the next row",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) {
       const Step* step = p.then.find(StepKind::residual);
       return step != nullptr && rows_of(p.step_operand(*step).shape) > 1 &&
              rotate_step(p, StepKind::residual, cols_of(p.step_operand(*step).shape), in);
     }},
    {"statistics of another row",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) {
       const Step* step = p.then.find(StepKind::normalise);
       if (step == nullptr || p.in[0].shape.empty() || rows_of(p.in[0].shape) < 2) return false;
       const Operand& moments = p.step_operand(*step);
       return rotate_step(p, StepKind::normalise, elements(moments.shape) / rows_of(p.in[0].shape), in);
     }},
    {"angles of the next token",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) {
       const Step* step = p.then.find(StepKind::rotary);
       return step != nullptr && rows_of(p.step_operand(*step).shape) > 1 &&
              rotate_step(p, StepKind::rotary, cols_of(p.step_operand(*step).shape), in);
     }},
    {"weight of the next channel",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) {
       if (p.op != "matmul" || p.in[1].shape.size() != 2 || p.in[1].shape[0] < 2) return false;
       change_numbers(in[1], [](std::vector<double>& v, int64_t cols) { rotate_by(v, cols); });
       return true;
     }},
    {"k for v",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) {
       if (p.op != "attention" || p.in[1].shape != p.in[2].shape || p.in[1].type != p.in[2].type) return false;
       const Dense k = decode(in[1].view());
       change_numbers(in[2], [&](std::vector<double>& v, int64_t) { v = k.v; });
       return true;
     }},
    {"keys of the next token",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) {
       if (p.op != "attention" || p.in[1].shape[1] < 2) return false;
       change_numbers(in[1], [&](std::vector<double>& v, int64_t cols) { rotate_by(v, p.in[1].shape[2] * cols); });
       return true;
     }},
    {"last keys missing",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) {
       if (p.op != "attention" || p.in[1].shape[1] < 4 || p.operand(4) != nullptr) return false;
       const int64_t keys = p.in[1].shape[1], per_key = p.in[2].shape[2] * p.in[2].shape[3],
                     from = keys > 64 ? (keys - 1) / 32 * 32 : keys / 2;
       change_numbers(in[2], [&](std::vector<double>& v, int64_t) {
         for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int64_t>(i) / per_key % keys >= from ? 0 : v[i];
       });
       return true;
     }},
    {"one key more",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) {
       if (p.op != "attention" || p.operand(4) == nullptr) return false;
       change_numbers(in[4], [](std::vector<double>& v, int64_t) {
         for (double& x : v) x += 1;
       });
       return true;
     }},
    {"length of the first item",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) {
       if (p.op != "attention" || p.operand(4) == nullptr || p.in[4].shape[0] < 2) return false;
       change_numbers(in[4], [](std::vector<double>& v, int64_t) { std::fill(v.begin(), v.end(), v[0]); });
       return true;
     }},
    {"no mask",
     [](const Problem& p, std::vector<HostTensor>&, Problem& changed) {
       if (p.op != "attention" || p.attrs.integer("causal") == 0 || p.in[1].shape[1] < 2) return false;
       changed.attrs.set("causal", int64_t{0});
       return true;
     }},
    {"no bias on scores",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) {
       if (p.op != "attention" || p.operand(3) == nullptr || p.in[3].shape.back() < 2)
         return false;  // one number for all keys changes no weight
       change_numbers(in[3], [](std::vector<double>& v, int64_t) {
         for (double& x : v) x = std::isfinite(x) ? 0 : x;
       });
       return true;
     }},
    {"scale of scores x1.1",
     [](const Problem& p, std::vector<HostTensor>&, Problem& changed) {
       if (p.op != "attention" || p.in[1].shape[1] < 2) return false;
       changed.attrs.set("scale", 1.1 * p.attrs.number("scale", 1.0));
       return true;
     }},
    {"gain of the next column",
     [](const Problem& p, std::vector<HostTensor>& in, Problem&) {
       if (p.op != "norm" || p.operand(1) == nullptr || elements(p.in[1].shape) < 2) return false;
       change_numbers(in[1], [](std::vector<double>& v, int64_t) { rotate_by(v, 1); });
       return true;
     }},
};

HostTensor with_codes(const HostTensor& like, const Codes& codes) {
  HostTensor t{.desc = like.desc,
               .data = Buffer(like.data.size()),
               .scale = Buffer(like.scale.size()),
               .scale2 = Buffer(like.scale2.size())};
  if (t.scale.size() > 0) std::memcpy(t.scale.data(), like.scale.data(), t.scale.size());
  if (t.scale2.size() > 0) std::memcpy(t.scale2.data(), like.scale2.data(), t.scale2.size());
  encode_units(t.desc.type, codes, t.data.data());
  return t;
}

enum class Outcome : uint8_t { kSame, kCaught, kMissed };

// A fake kernel: it gives what the judge says that the real one may give.
std::vector<HostTensor> give(const Judge& judge, const std::vector<HostTensor>& like) {
  std::vector<HostTensor> got;
  for (size_t r = 0; r < like.size(); ++r) got.push_back(with_codes(like[r], judge.middle(r)));
  return got;
}

// Whether results differ by more than chance: several of them, or one by more than a step. (One code on the other side
// of a tie is what a right kernel may give.)
bool changes(const HostTensor& from, const HostTensor& to) {
  constexpr int kSeveral = 4;
  const std::vector<float> a = decode_codes(from.view()), b = decode_codes(to.view());
  int changed = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double steps = std::fabs(static_cast<double>(a[i]) - b[i]) / step_at(from.desc.type.element, a[i]);
    if (!(steps <= 1.5) || ++changed >= kSeveral) return true;
  }
  return false;
}

// Result `r` of `given` becomes the mutant.
Outcome judge_mutant(const Judge& judge, const std::vector<HostTensor>& given, size_t r, const Codes& mutant) {
  const HostTensor t = with_codes(given[r], mutant);
  if (!changes(given[r], t)) return Outcome::kSame;
  std::vector<TensorView> views = views_of(given);
  views[r] = t.view();
  return judge.of(views).ok() ? Outcome::kMissed : Outcome::kCaught;
}

Outcome run_result_mutation(const ResultMutation& m, const Judge& judge, const std::vector<HostTensor>& given,
                            size_t r) {
  Codes codes = judge.middle(r);
  const int64_t cols = cols_of(given[r].desc.shape);
  if (codes.empty()) return Outcome::kSame;
  m.apply(codes, {static_cast<int64_t>(codes.size()) / cols, cols});
  return judge_mutant(judge, given, r, codes);
}

bool is_static(const HostTensor& t) { return !t.desc.type.dynamic && info(t.desc.type.element).bits >= 8; }

struct Power {
  int64_t caught = 0, changed = 0;
  int64_t many = 0, changed_of_many = 0;  // cases with many results, of which some must change
};
std::map<std::string, std::map<std::string, Power>>& powers() {
  static std::map<std::string, std::map<std::string, Power>> all;
  return all;
}

class WritePowers : public ::testing::Environment {
 public:
  void TearDown() override {
    for (const auto& [variant, mutations] : powers()) {
      for (const auto& [name, p] : mutations)
        EXPECT_TRUE(p.many < 8 || p.changed_of_many >= p.many / 2)
            << variant << ": the numbers are too tame, (" << name << ") changes the results of " << p.changed_of_many
            << " of " << p.many << " cases only";
    }
    const char* path = std::getenv("TESSERA_POWER");
    if (path == nullptr || powers().empty()) return;
    nlohmann::json file = nlohmann::json::object();
    if (std::ifstream in(path); in) file = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
    if (!file.is_object()) file = nlohmann::json::object();
    for (const auto& [variant, mutations] : powers()) {
      for (const auto& [name, p] : mutations) {
        nlohmann::json& sums = file[variant][name];
        if (!sums.is_array()) sums = {0, 0};
        sums = {sums[0].get<int64_t>() + p.caught, sums[1].get<int64_t>() + p.changed};
      }
    }
    const Status written = write_file(path, file.dump(1) + "\n");
    EXPECT_TRUE(written.ok()) << written.message();
  }
};
[[maybe_unused]] const auto* const kAtTheEnd = ::testing::AddGlobalTestEnvironment(new WritePowers);

// Checks that are known to miss a mutation. cpu_bf16 rounds its weights to bf16: the bound of that rounding is wider
// than a hundredth. A library's FP8 sums over 16384 products are known to half a hundredth; a bias is less than that.
bool is_known_gap(const Variant& variant, const Problem& problem, std::string_view mutation) {
  constexpr int64_t kLongSums = 16384;
  const std::string_view name = variant.name;
  if (name == "attention/cpu_bf16") return mutation == "x1.01";
  return name == "matmul/sm90_cublaslt_fp8" && mutation == "bias of the next channel" &&
         problem.in[0].shape.back() >= kLongSums;
}

void record(const Variant& variant, const Case& c, const char* name, Outcome outcome, int64_t results) {
  Power& p = powers()[variant.name][name];
  p.changed += outcome != Outcome::kSame;
  p.caught += outcome == Outcome::kCaught;
  if (outcome == Outcome::kMissed && !is_known_gap(variant, c.problem, name)) {
    ADD_FAILURE() << variant.name << " on " << c.text() << ": results that are wrong (" << name << ") are accepted";
  }
  if (results < kMany || terms_of(*find_op(c.problem.op), c.problem) <= 1) return;
  ++p.many;
  p.changed_of_many += outcome != Outcome::kSame;
}

// A result whose numbers are all the same, or few, hides mutations that only move or scale it a little.
bool may_hide(const HostTensor& t) {
  const ElementInfo& e = info(t.desc.type.element);
  return e.kind == ElementKind::kInteger && !t.desc.type.scaled();
}

}  // namespace

std::string mutations_caught(const Judge& judge, const std::vector<HostTensor>& like) {
  const std::vector<HostTensor> given = give(judge, like);
  int caught = 0, changed = 0;
  for (const ResultMutation& m : kOfResults) {
    const Outcome outcome = run_result_mutation(m, judge, given, 0);
    changed += outcome != Outcome::kSame, caught += outcome == Outcome::kCaught;
  }
  return cat(caught, "/", changed);
}

namespace {

HostTensor copy_of(const HostTensor& t) {
  HostTensor copy{.desc = t.desc,
                  .data = Buffer(t.data.size()),
                  .scale = Buffer(t.scale.size()),
                  .scale2 = Buffer(t.scale2.size())};
  for (const auto& [from, to] : {std::pair{&t.data, &copy.data}, {&t.scale, &copy.scale}, {&t.scale2, &copy.scale2}}) {
    if (from->size() > 0) std::memcpy(to->data(), from->data(), from->size());
  }
  return copy;
}

// Results in memory, with their scales.
std::vector<HostTensor> results_of(const Case& c) {
  std::vector<HostTensor> results;
  for (const HostTensor& t : c.out) {
    results.push_back(copy_of(t));
    results.back().data = Buffer(static_cast<size_t>(packed_bytes(t.desc.type.element, elements(t.desc.shape))));
  }
  return results;
}

void mutate_results(const Variant& variant, const Case& c, const Judge& judge, const std::vector<HostTensor>& given) {
  // Nothing is summed: codes times the quotient of two scales may all lie on ties, which a hundredth only decides.
  const bool sums = terms_of(*find_op(c.problem.op), c.problem) > 1;
  for (size_t r = 0; r < given.size(); ++r) {
    if (!is_static(given[r])) continue;
    const int64_t results = r == 0 ? elements(given[r].desc.shape) : 0;
    for (const ResultMutation& m : kOfResults) {
      if (!sums && std::string_view(m.name) == "x1.01") continue;
      record(variant, c, m.name, run_result_mutation(m, judge, given, r), m.changes_many ? results : 0);
    }
  }
}

void mutate_operands(const Variant& variant, const Case& c, const Judge& judge, const std::vector<HostTensor>& given) {
  for (const OperandMutation& m : kOfOperands) {
    Problem changed = c.problem;
    std::vector<HostTensor> in;
    for (const HostTensor& t : c.in) in.push_back(copy_of(t));
    if (!m.apply(c.problem, in, changed)) continue;
    const Judge other(*find_op(changed.op), variant, changed, views_of(in), views_of(c.out));
    record(variant, c, m.name, judge_mutant(judge, given, m.result, other.middle(m.result)),
           elements(given[m.result].desc.shape));
  }
}

// The first rows of a problem: what its check can see does not depend on how many there are, and they take less time.
Problem few_rows(const Problem& p) {
  constexpr int64_t kRows = 16;
  if (p.op != "matmul" || p.in[1].shape.size() != 2 || p.in[0].shape.size() > 3) return p;
  const int64_t rows = rows_of(p.in[0].shape);
  if (rows <= kRows) return p;
  Problem few = p;
  const auto cut = [&](Operand& o) {
    if (!o.present || o.constant || o.shape.size() < 2) return;
    // Moments have two axes behind the rows, all others one.
    const size_t behind =
        o.shape.size() >= 2 && o.shape.back() == 2 && &o != &few.in[0] && elements(o.shape) / rows != o.shape.back()
            ? 2
            : 1;
    if (elements(o.shape) % rows != 0) return;
    const Shape tail(o.shape.end() - static_cast<std::ptrdiff_t>(behind), o.shape.end());
    if (elements(tail) * rows != elements(o.shape)) return;
    o.shape = {kRows};
    o.shape.insert(o.shape.end(), tail.begin(), tail.end());
    o.strides = dense_strides(o.shape);
  };
  for (size_t i = few.in.size(); i-- > 0;) {
    if (i != 1) cut(few.in[i]);
  }
  for (Operand& o : few.out) cut(o);
  return check_problem(*find_op(p.op), few).ok() ? few : p;
}

// Its first columns, where they are the same for all: with fewer results there is less that could show a mutation. The
// tail behind the last 64 stays as long as it is.
Problem few_columns(const Problem& p) {
  constexpr int64_t kColumns = 192;
  if (p.op != "matmul" || p.in[1].shape.size() != 2 || p.out.size() != 1 || p.then.gated()) return p;
  const int64_t n = p.in[1].shape[0];
  if (n <= 2 * kColumns || p.then.find(StepKind::rotary) != nullptr) return p;
  Problem few = p;
  const auto cut = [&](Operand& o, size_t axis) {
    if (!o.present || o.shape.size() <= axis || o.shape[axis] != n) return;
    o.shape[axis] = kColumns + n % 64;
    o.strides = dense_strides(o.shape);
  };
  cut(few.in[1], 0);
  for (size_t i = 2; i < few.in.size(); ++i) {
    if (!few.in[i].shape.empty()) cut(few.in[i], few.in[i].shape.size() - 1);
  }
  cut(few.out[0], few.out[0].shape.size() - 1);
  return check_problem(*find_op(p.op), few).ok() ? few : p;
}

}  // namespace

void expect_mutations_caught(const Variant& variant, const Case& c, const Judge& judge) {
  constexpr int64_t kMost = 1 << 19;  // results: of more of them the check sees no more, and takes long
  if (c.out.empty() || !is_static(c.out[0]) || may_hide(c.out[0]) || elements(c.out[0].desc.shape) > kMost) return;
  mutate_results(variant, c, judge, give(judge, results_of(c)));
}

void expect_power(const Variant& variant, const Problem& problem, uint64_t seed, Adjust adjust) {
  Problem few = few_columns(few_rows(problem));
  if (!variant.accepts(few)) few = problem;
  Case c = make_case(few, seed, Values::kRandom, adjust);
  if (c.out.empty() || !is_static(c.out[0]) || may_hide(c.out[0])) return;
  const std::vector<std::string> configs = configs_of(variant, few);
  c.problem.config = configs[seed % configs.size()];
  const Judge judge = judge_of(variant, c);
  const std::vector<HostTensor> given = give(judge, results_of(c));
  const Judgement j = judge.of(views_of(given));
  EXPECT_TRUE(j.ok()) << variant.name << " on " << c.text() << ": what the judge says is not accepted; result "
                      << j.result << " at " << j.at << ": " << j.got << ", allowed " << j.low << " to " << j.high;
  mutate_results(variant, c, judge, given);
  mutate_operands(variant, c, judge, given);
}

void expect_power_of_all(const OpInfo& op, const std::vector<Problem>& problems, Adjust adjust) {
  for (const Variant* v : op.variants) {
    uint64_t seed = 1;
    for (const Problem& p : problems) {
      if (v->accepts(p)) expect_power(*v, p, seed++, adjust);
    }
  }
}

}  // namespace tessera
