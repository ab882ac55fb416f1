// SPDX-License-Identifier: Apache-2.0
// Timing of host variants with Google Benchmark. The operands are those of a test case; before the first timing the
// result is held against the exact one: for random operands the relative L2 error is at most one step of the result's
// type plus the arithmetic's error over `terms` products, whose magnitudes sum to about sqrt(terms) times the magnitude
// of their sum.
#pragma once

#include <benchmark/benchmark.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "op/prepack.h"
#include "op/reference.h"
#include "ops/ops.h"
#include "testing/variant_harness.h"

namespace tessera {

inline double relative_l2(const HostTensor& got, const Dense& exact) {
  double off = 0, all = 0;
  for (size_t i = 0; i < exact.v.size(); ++i) {
    const double d = got.number(static_cast<int64_t>(i)) - exact.v[i];
    off += d * d;
    all += exact.v[i] * exact.v[i];
  }
  return std::sqrt(off / all);
}

// A case bound to a host variant, ready to launch.
class Bound {
 public:
  Bound(const Variant& variant, const Case& c) : problem_(c.problem), views_(c.in.size()) {
    problem_.config = checked_config(variant, problem_).value();
    const std::vector<OperandLayout> layouts = layouts_of(variant, problem_);
    for (size_t i = 0; i < c.in.size(); ++i) {
      if (!c.in[i].desc.present) continue;
      views_[i] = c.in[i].view();
      views_[i].desc = &problem_.in[i];
      problem_.in[i].layout = layouts[i];
      packed_.push_back(prepack(problem_.in[i], c.in[i].data.data(), c.in[i].scale.data()).value());
      if (layouts[i].codes != Layout::kRows) views_[i].data = packed_.back().codes.data();
      if (layouts[i].scales != Layout::kRows) views_[i].scale = packed_.back().scales.data();
    }
    const Operand& y = problem_.out[0];
    result_ = Buffer(static_cast<size_t>(packed_bytes(y.type.element, elements(y.shape))));
    result_view_ = c.out[0].view();
    result_view_.desc = &y, result_view_.data = result_.data();
    workspace_ =
        Buffer(static_cast<size_t>(variant.workspace_bytes != nullptr ? variant.workspace_bytes(problem_) : 0));
    kernel_ = std::move(variant.bind(problem_)).value();
  }
  Status launch() { return kernel_->launch(views_, {&result_view_, 1}, workspace_.data(), {}); }

 private:
  Problem problem_;
  std::vector<TensorView> views_;
  TensorView result_view_;
  std::vector<Prepacked> packed_;
  Buffer result_, workspace_;
  std::unique_ptr<Kernel> kernel_;
};

// Adds "<variant>/<label>/<threads>" for one thread and for all. FLOP/s are of wall time; the CPU column is the time of
// all threads together, which a busy machine disturbs less.
inline void add_benchmark(const Variant& variant, const std::string& label, const Problem& problem, int64_t terms,
                          Adjust adjust = nullptr) {
  const auto bench = [&variant, problem, terms, adjust, c = std::shared_ptr<Case>()](benchmark::State& state) mutable {
    if (!c) {  // Google Benchmark calls this several times
      c = std::make_shared<Case>(make_case(problem, 1, Values::kRandom, adjust));
      const auto got = run_on(variant, *c);
      if (!got.ok()) return state.SkipWithError(got.status().message().c_str());
      const double step = std::ldexp(1.0, -info(problem.out[0].type.element).mantissa_bits);
      const double bound =
          step + variant.arithmetic(problem).accumulator_error(terms) * std::sqrt(static_cast<double>(terms));
      if (!(relative_l2((*got)[0], c->exact[0]) <= bound)) return state.SkipWithError("wrong result");
    }
    set_threads(static_cast<int>(state.range(0)));
    Bound bound(variant, *c);
    for (auto _ : state) {
      if (const Status s = bound.launch(); !s.ok()) return state.SkipWithError(s.message().c_str());
    }
    state.counters["FLOP/s"] =
        benchmark::Counter(find_op(problem.op)->flops(problem), benchmark::Counter::kIsIterationInvariantRate);
  };
  auto* added = benchmark::RegisterBenchmark((std::string(variant.name) + "/" + label).c_str(), bench);
  added->UseRealTime()->MeasureProcessCPUTime()->Unit(benchmark::kMicrosecond)->Arg(1);
  if (threads() > 1) added->Arg(threads());
}

// Every host variant of an op that takes the problem.
inline void add_benchmarks(const std::string& label, const Problem& problem, int64_t terms, Adjust adjust = nullptr) {
  for (const Variant* v : find_op(problem.op)->variants) {
    if (info(v->arch).device == DeviceKind::kHost && v->accepts(problem))
      add_benchmark(*v, label, problem, terms, adjust);
  }
}

}  // namespace tessera
