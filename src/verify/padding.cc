// SPDX-License-Identifier: Apache-2.0
#include "verify/padding.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "golden/golden_run.h"
#include "plan/golden_plans.h"
#include "precision/masks.h"
#include "verify/model_as_written.h"
#include "verify/verify.h"

namespace tessera {
namespace {

constexpr double kGoldenBound = 0x1p-22;  // outputs are f32: two roundings of them

std::string brief(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1e", x);
  return text;
}

// One way to write a mask.
struct Spelling {
  double seen, hidden;
};
std::vector<Spelling> spellings_of(Element element) {
  const double lowest = std::numeric_limits<float>::lowest();
  if (info(element).kind == ElementKind::kFloat) return {{0, lowest}, {1, 0}, {0, 1}};
  return {{1, 0}, {0, 1}};
}

const Operand& desc_of(const Plan& plan, const Port& port) {
  return plan.tensors[static_cast<size_t>(port.tensor)].desc;
}

// Golden inputs with padding, and the same with other numbers at what is hidden.
struct Padded {
  Samples first, second;
  std::string changed;  // inputs in which other numbers stand, in a sentence
};

class Padding {
 public:
  Padding(const Plan& golden, const Samples& samples, size_t mask, uint64_t seed)
      : plan_(golden), samples_(samples), others_(random_samples(golden, samples.count, seed + 1)), mask_(mask) {
    const Shape& shape = desc_of(plan_, plan_.inputs[mask_]).shape;
    tokens_ = shape.empty() ? 0 : shape.back();
  }

  // Nothing where no token can be hidden, or no other input speaks of tokens. `masks`: inputs that are masks too.
  std::optional<Padded> make(const Spelling& spelling, int64_t shift, const std::set<std::string>& masks) const {
    const int64_t hidden = tokens_ / 4;
    if (hidden == 0 || samples_.count == 0) return std::nullopt;
    Padded p{.first = samples_, .second = {}, .changed = {}};
    p.first.clamped.clear();
    p.first.data[mask_] = written(mask_, samples_.data[mask_], [&](int64_t sample, int64_t at, double) {
      return is_hidden(sample + shift, at % tokens_) ? spelling.hidden : spelling.seen;
    });
    p.second = p.first;
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      const Shape& shape = desc_of(plan_, plan_.inputs[i]).shape;
      if (i == mask_ || masks.contains(plan_.inputs[i].name) || shape.size() < 2 || shape[1] != tokens_) continue;
      const std::vector<double> other = numbers_of(i, others_.data[i]);
      const int64_t one = static_cast<int64_t>(other.size()) / samples_.count,
                    token = std::max<int64_t>(1, one / tokens_);
      p.second.data[i] = written(i, p.first.data[i], [&](int64_t sample, int64_t at, double x) {
        return is_hidden(sample + shift, at / token) ? other[static_cast<size_t>(sample * one + at)] : x;
      });
      const Bytes &a = p.first.data[i], &b = p.second.data[i];
      if (std::memcmp(a.data(), b.data(), a.size()) != 0)
        p.changed += cat(p.changed.empty() ? "'" : ", '", plan_.inputs[i].name, "'");
    }
    if (p.changed.empty()) return std::nullopt;
    return p;
  }

 private:
  // The end of one sample and the beginning of the next: decoders see only what comes before.
  bool is_hidden(int64_t sample, int64_t token) const {
    const int64_t hidden = tokens_ / 4;
    return sample % 2 == 0 ? token >= tokens_ - hidden : token < hidden;
  }

  std::vector<double> numbers_of(size_t input, const Bytes& data) const {
    const Operand& d = desc_of(plan_, plan_.inputs[input]);
    std::vector<double> numbers(
        static_cast<size_t>(elements(d.shape) / std::max<int64_t>(1, plan_.batch) * samples_.count));
    info(d.type.element).decode_f64(data.data(), 0, static_cast<int64_t>(numbers.size()), numbers.data());
    return numbers;
  }

  template <class Fn>
  Bytes written(size_t input, const Bytes& data, const Fn& number) const {
    std::vector<double> numbers = numbers_of(input, data);
    const int64_t one = static_cast<int64_t>(numbers.size()) / samples_.count;
    for (size_t k = 0; k < numbers.size(); ++k) {
      const int64_t at = static_cast<int64_t>(k);
      numbers[k] = number(at / one, at % one, numbers[k]);
    }
    const Element e = desc_of(plan_, plan_.inputs[input]).type.element;
    Buffer out(static_cast<size_t>(packed_bytes(e, static_cast<int64_t>(numbers.size()))));
    info(e).encode_f64(numbers.data(), static_cast<int64_t>(numbers.size()), out.data(), 0);
    return Bytes::own(std::move(out));
  }

  const Plan& plan_;
  const Samples& samples_;
  const Samples others_;
  const size_t mask_;
  int64_t tokens_ = 0;
};

// Rows of one output, along its last axis, that the model as written does not change.
struct Unmoved {
  int64_t cols = 1;
  std::vector<bool> rows;  // of all samples
  int64_t count() const { return std::count(rows.begin(), rows.end(), true); }
};

Unmoved compare_rows(const Shape& shape, const std::vector<double>& a, const std::vector<double>& b) {
  Unmoved u;
  u.cols = std::max<int64_t>(1, shape.size() < 2 ? 1 : shape.back());
  const size_t cols = static_cast<size_t>(u.cols);
  for (size_t at = 0; at + cols <= a.size(); at += cols) {
    bool same = true;
    for (size_t c = 0; c < cols; ++c)
      same = same && std::isfinite(a[at + c]) && static_cast<float>(a[at + c]) == static_cast<float>(b[at + c]);
    u.rows.push_back(same);
  }
  return u;
}

// Relative L2 between two runs of a plan, over the rows that must not move. A plan of a larger batch holds the samples
// again and again.
double moved(const Unmoved& u, const std::vector<double>& a, const std::vector<double>& b) {
  double error = 0, size = 0;
  for (size_t k = 0; k < a.size() && !u.rows.empty(); ++k) {
    if (!u.rows[k / static_cast<size_t>(u.cols) % u.rows.size()]) continue;
    error += (a[k] - b[k]) * (a[k] - b[k]), size += a[k] * a[k];
  }
  if (!std::isfinite(error)) return std::numeric_limits<double>::infinity();
  return error == 0 ? 0 : std::sqrt(error / std::max(size, std::numeric_limits<double>::min()));
}

class Check {
 public:
  Check(const Engine& engine, const Plan& golden, const ModelGraphs& model, uint64_t seed, bool run_plans)
      : engine_(engine), golden_(golden), model_(model), seed_(seed), run_plans_(run_plans) {
    for (ValueId in : mask_inputs(*model.canonical)) masks_.insert(model.canonical->at(in).name);
  }

  Result<PaddingReport> run() {
    if (masks_.empty() || engine_.golden.inputs.empty()) return report_;
    const Samples samples = golden_samples(engine_, golden_).part(0, golden_.batch);
    for (size_t i = 0; i < golden_.inputs.size(); ++i) {
      if (!masks_.contains(golden_.inputs[i].name)) continue;
      const Padding padding(golden_, samples, i, seed_);
      // One sample alone is padded at its end, then at its beginning.
      for (int64_t shift = 0; shift < (golden_.batch > 1 ? 1 : 2); ++shift) TS_TRY(check_mask(padding, i, shift));
    }
    return report_;
  }

 private:
  // Under the spelling by which most rows of the model as written stay: in a causal model the rows before the hidden
  // ones stay under any.
  Status check_mask(const Padding& padding, size_t mask, int64_t shift) {
    const Port& port = golden_.inputs[mask];
    std::optional<Padded> best;
    std::vector<Unmoved> best_rows;
    int64_t most = 0;
    for (const Spelling& s : spellings_of(desc_of(golden_, port).type.element)) {
      std::optional<Padded> p = padding.make(s, shift, masks_);
      if (!p) return {};
      TS_ASSIGN(const Outputs64 a, run_as_written(*model_.written, p->first));
      TS_ASSIGN(const Outputs64 b, run_as_written(*model_.written, p->second));
      std::vector<Unmoved> rows;
      int64_t stay = 0;
      for (size_t o = 0; o < a.size(); ++o) {
        rows.push_back(compare_rows(desc_of(golden_, golden_.outputs[o]).shape, a[o], b[o]));
        stay += rows.back().count();
      }
      if (stay > most) most = stay, best = std::move(p), best_rows = std::move(rows);
    }
    if (!best) return {};
    report_.mask = port.name;
    TS_TRY(check_plan(golden_, *best, best_rows, port.name));
    if (!run_plans_) return {};
    for (const Plan* plan : plans_of(engine_, golden_)) TS_TRY(check_plan(*plan, *best, best_rows, port.name));
    return {};
  }

  Status check_plan(const Plan& plan, const Padded& p, const std::vector<Unmoved>& rows, const std::string& mask) {
    TS_ASSIGN(const Outputs64 a, run_plan(engine_, plan, p.first));
    TS_ASSIGN(const Outputs64 b, run_plan(engine_, plan, p.second));
    for (size_t o = 0; o < a.size(); ++o) {
      const double apart = moved(rows[o], a[o], b[o]),
                   bound = &plan == &golden_ ? kGoldenBound : golden_form(engine_, golden_)->bounds[o];
      report_.farthest = std::max(report_.farthest, apart);
      if (apart <= bound) continue;
      return {Code::kVerifyFailed,
              cat("input '", mask, "' hides tokens, and output '", plan.outputs[o].name, "' still changes by ",
                  brief(apart), " (relative L2) where other numbers stand in ", p.changed,
                  " at the hidden tokens; as written the model gives ", "the same, plan ", plan.name, " may differ by ",
                  brief(bound))};
    }
    return {};
  }

  const Engine& engine_;
  const Plan& golden_;
  const ModelGraphs& model_;
  const uint64_t seed_;
  const bool run_plans_;
  std::set<std::string> masks_;
  PaddingReport report_;
};

}  // namespace

Result<PaddingReport> check_padding(const Engine& engine, const Plan& golden, const ModelGraphs& model, uint64_t seed,
                                    bool run_plans) {
  return Check(engine, golden, model, seed, run_plans).run();
}

}  // namespace tessera
