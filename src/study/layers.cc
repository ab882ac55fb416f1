// SPDX-License-Identifier: Apache-2.0
#include "study/layers.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/parallel.h"
#include "ops/errors.h"
#include "ops/reference.h"

namespace tessera {
namespace {

// The walk estimates the size of an error, it does not bound it: as many times is still no fault.
constexpr double kMultiple = 4;
// As many results may show the largest error by chance, where few of them show any.
constexpr double kChance = 9;
constexpr int64_t kGrain = 4096;

struct Sums {
  double excess = 0, allowed = 0, got = 0, want = 0, product = 0;  // squares, and got * want
  double most = 0;                                                 // the largest square that one result was allowed
  double worst = 0;                                                // of one result, as a share
  bool finite = true;
};

Sums compare_results(const TensorView& out, const Dense& exact, const Errors& walk, double terms) {
  const Dense got = decode(out);
  // A scale that is made while running follows one result: what a single one may be off by.
  Errors reach(walk.size());
  for (size_t i = 0; i < reach.size(); ++i) reach[i] = kMultiple * std::sqrt(terms) * walk[i];
  const JudgedScales scales(out, exact, reach);
  const double max = info(out.desc->type.element).max;
  const int64_t n = static_cast<int64_t>(exact.v.size());
  std::vector<Sums> parts(
      static_cast<size_t>((n + kGrain - 1) / kGrain));  // added up in order: the same report every time
  parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      Sums& s = parts[static_cast<size_t>(part)];
      for (int64_t i = part * kGrain; i < std::min(n, (part + 1) * kGrain); ++i) {
        const double g = got.v[static_cast<size_t>(i)], x = exact.v[static_cast<size_t>(i)], scale = scales.at(i);
        if (std::isnan(x) || (out.desc->type.dynamic && !std::isfinite(scale)) ||
            (std::isinf(g) && std::fabs(x) >= max * scale && (g > 0) == (x > 0)))
          continue;  // the reference has none either, or saturates
        if (!std::isfinite(g)) {
          s.finite = false;
          continue;
        }
        const AllowedResult a = allow(out.desc->type, scale, x, walk[static_cast<size_t>(i)]);
        const double excess = std::max(0.0, std::fabs(g - a.want) - a.rounding), error = kMultiple * a.error;
        if (excess > 0) s.worst = std::max(s.worst, error > 0 ? excess / (error * std::sqrt(terms)) : INFINITY);
        s.excess += excess * excess;
        // Only a result whose exact number lies within `error` of where rounding changes can show it: one in rounding /
        // error of them.
        s.allowed += error * error * (error < a.rounding ? error / a.rounding : 1);
        s.most = std::max(s.most, error * error);
        s.got += g * g, s.want += a.want * a.want, s.product += g * a.want;
      }
    }
  });
  Sums all;
  for (const Sums& s : parts) {
    all.excess += s.excess, all.allowed += s.allowed, all.got += s.got, all.want += s.want, all.product += s.product;
    all.most = std::max(all.most, s.most);
    all.worst = std::max(all.worst, s.worst);
    all.finite = all.finite && s.finite;
  }
  return all;
}

// The worst that was seen of a layer.
void report(LayerReport& r, const Sums& s) {
  const double size = s.want > 0 ? std::sqrt(s.want) : 1, excess = std::sqrt(s.excess),
               allowed = std::sqrt(s.allowed + kChance * s.most);
  const double of_norm = excess == 0 ? 0 : allowed > 0 ? excess / allowed : INFINITY;
  r.finite = r.finite && s.finite;
  if (std::max(of_norm, s.worst) < r.share) return;
  r.share = std::max(of_norm, s.worst);
  r.one_result = s.worst > of_norm;
  r.relative_l2 = excess / size;
  r.bound = allowed / size;
  r.cosine = s.got > 0 && s.want > 0 ? s.product / std::sqrt(s.got * s.want) : (s.got == s.want ? 1 : 0);
}

}  // namespace

Result<LayerJudge> LayerJudge::make(const Engine& engine, const Plan& plan, const Plan& golden) {
  if (plan.steps.size() != golden.steps.size()) {
    return bad_input(cat("plan '", plan.name, "' has ", plan.steps.size(), " steps, the golden plan ",
                         golden.steps.size(), ": it does not mirror it"));
  }
  LayerJudge judge(engine, plan, golden);
  std::map<std::string, int> named;
  for (const PlanStep& s : plan.steps) ++named[s.layer];
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& s = plan.steps[i];
    auto mirrored = mirror_step(plan, golden, i);
    if (!mirrored.ok()) return mirrored.status().at(cat("plan '", plan.name, "': step ", i, " ('", s.layer, "')"));
    judge.mirrored_.push_back(std::move(mirrored).value());
    LayerReport r;
    r.layer = named[s.layer] > 1 ? cat(s.layer, ", step ", i + 1) : s.layer;
    r.op = s.op, r.variant = s.variant;
    judge.reports_.push_back(std::move(r));
  }
  return judge;
}

void LayerJudge::see(const PlanStep& step, std::span<const TensorView> in, std::span<const TensorView> out) {
  const size_t index = static_cast<size_t>(&step - plan_.steps.data());
  const OpInfo* op = find_op(step.op);
  const Variant* variant = find_variant(step.variant);
  TS_CHECK(index < reports_.size() && op != nullptr && variant != nullptr, "a step of another plan");
  const MirroredStep& mirrored = mirrored_[index];
  const Problem& problem = mirrored.problem;
  const PlanStep& golden_step = golden_.steps[index];
  std::vector<Dense> numbers;
  for (size_t i = 0; i < in.size(); ++i)
    numbers.push_back(in[i].desc == nullptr ? Dense{}
                                            : read_mirrored(engine_, golden_, mirrored, golden_step, i, in[i]));
  if (op->check_numbers != nullptr && status_.ok()) {
    const Status found = op->check_numbers(problem, numbers);
    if (!found.ok()) status_ = found.at(cat("layer ", step.layer, ", with the golden plan's constants"));
  }
  if (!status_.ok()) return;
  Dense exact = compute_reference(*op, before_program(problem), numbers)[0];
  std::vector<double> before = exact.v;
  const Arithmetic arithmetic = variant->arithmetic(problem);
  Errors walk = errors_before_program(*op, problem, numbers, exact, Roundings(arithmetic, Growth::kWalk));
  walk = errors_after_program(problem, numbers, before, std::move(walk), arithmetic.activation_error);
  apply_program(problem, numbers, exact);
  for (size_t i = 0; i < out.size(); ++i) {
    TS_CHECK(i == 0 || op->beside != nullptr, "only ops that say how have results beside the first");
    const Dense wanted = i == 0 ? exact : op->beside(problem, i, exact);
    Errors errors = errors_of_result(*op, problem, i, exact, walk);
    // Numbers reach a narrow type through fp32, in the reference too.
    if (info(problem.out[i].type.element).mantissa_bits < 23) {
      for (size_t k = 0; k < errors.size(); ++k) errors[k] += 0x1p-24 * std::fabs(wanted.v[k]);
    }
    const TensorView result = result_mirrored(engine_, golden_, mirrored, golden_step, i, out[i]);
    report(reports_[index], compare_results(result, wanted, errors, static_cast<double>(std::max<int64_t>(1, terms_of(*op, problem)))));
  }
}

}  // namespace tessera
