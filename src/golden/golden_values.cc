// SPDX-License-Identifier: Apache-2.0
#include "golden/golden_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/log.h"
#include "base/random.h"
#include "golden/closeness.h"
#include "golden/judged_step.h"
#include "golden/step_reads.h"
#include "op/errors.h"
#include "op/op.h"
#include "op/reference.h"
#include "op/whole_numbers.h"
#include "ops/ops.h"
#include "plan/golden_plans.h"

namespace tessera {
namespace {

// A run with noise shows how far the noise reaches, not how far it may: of few numbers by chance, of many it hardly
// varies.
constexpr double kMultiple = 4, kMultipleOfMany = 2;
constexpr int64_t kMany = 50000;
constexpr double kFloor = 0x1p-20;  // a few roundings of f32 are never an error
// What golden values may add to an engine.
constexpr int64_t kLeastBytes = 1 << 20;
constexpr double kShare = 0.07;

double multiple_of(int64_t numbers) { return numbers >= kMany ? kMultipleOfMany : kMultiple; }

int64_t bytes_of(const Operand& o) { return packed_bytes(o.type.element, elements(o.shape)); }

std::vector<double> decoded(const QuantType& type, const uint8_t* bytes, int64_t count) {
  std::vector<double> numbers(static_cast<size_t>(count));
  info(type.element).decode_f64(bytes, 0, count, numbers.data());
  return numbers;
}

// The relative L2 error of one code that falls to the other side of a tie: of the largest, which may outweigh all
// others.
double largest_flip(const Operand& desc, const uint8_t* bytes) {
  double step = 0, squares = 0;
  for (const double x : decoded(desc.type, bytes, elements(desc.shape))) {
    step = std::max(step, step_at(desc.type.element, x)), squares += x * x;
  }
  return squares > 0 ? step / std::sqrt(squares) : 0;
}

// Steps that everything later depends on alone: no step before them is read after them.
std::vector<bool> cut_steps(const Plan& plan) {
  std::vector<bool> cut(plan.steps.size(), true);
  const std::vector<std::vector<StepRead>> reads = reads_of_steps(plan);
  for (size_t j = 0; j < reads.size(); ++j) {
    for (const StepRead& r : reads[j]) {
      for (size_t i = r.step + 1; i < j; ++i) cut[i] = false;
    }
  }
  return cut;
}

// Of few results none may lie near a tie in a run with noise, and one in the next: one of them, by chance, becomes its
// neighbour.
void move_one_code(const TensorView& t, uint64_t seed) {
  const int64_t count = elements(t.desc->shape);
  const ElementInfo& element = info(t.desc->type.element);
  if (count == 0 || !t.desc->dense() || is_whole(t.desc->type) || element.bits > 16) return;
  const auto at = static_cast<int64_t>(mix64(seed) % static_cast<uint64_t>(count));
  double x = 0;
  element.decode_f64(t.data, at, 1, &x);
  if (!std::isfinite(x)) return;
  // A step of a mask's code is no small error: it hides other keys.
  constexpr double kLargeStep = 1e4;
  const double scale = t.desc->type.scale.granularity == Granularity::kTensor ? tensor_scale(t) : 1;
  if (!(step_at(t.desc->type.element, x) * scale <= kLargeStep)) return;
  x += std::fabs(x) < element.max ? step_at(t.desc->type.element, x) : -step_at(t.desc->type.element, x);
  element.encode_f64(&x, 1, t.data, at);
}

}  // namespace

GoldenArithmetic::GoldenArithmetic(const Plan& plan, const Plan& golden) {
  const std::vector<double> noise = noise_of_steps(plan);
  for (size_t g = 0; g < golden.steps.size(); ++g) {
    const int i = same_step(golden, g, plan);
    const PlanStep* step = i < 0 || plan.steps[static_cast<size_t>(i)].op != golden.steps[g].op
                               ? nullptr
                               : &plan.steps[static_cast<size_t>(i)];
    variants_.push_back(step == nullptr ? nullptr : find_variant(step->variant));
    configs_.push_back(step == nullptr ? "" : step->config);
    noise_.push_back(step == nullptr ? 0 : noise[static_cast<size_t>(i)]);
  }
}

bool GoldenArithmetic::make(size_t step, const Problem& problem, std::span<const TensorView> in,
                            std::span<const TensorView> out, uint64_t seed) const {
  const Variant* variant = variants_[step];
  if (variant == nullptr || variant->emulate == nullptr) return false;
  Problem here = problem;
  here.config = configs_[step];
  if (!variant->accepts(here)) return false;  // of the golden plan's batch
  const Emulation emulated = variant->emulate(here, in, out);
  if (emulated.empty()) return false;
  for (size_t r = 0; r < out.size(); ++r) {
    const EmulatedResult& e = emulated[r];
    std::vector<double> numbers(e.low.size());
    for (size_t i = 0; i < numbers.size(); ++i) {
      const bool up = (mix64(seed * 0xd1342543de82ef95u + i * kMixStep + r) >> 63) != 0;
      numbers[i] = seed == 0 ? e.middle(i) : up ? e.high[i] : e.low[i];
    }
    encode_units(out[r].desc->type, std::move(numbers), out[r].data);
  }
  return true;
}

std::vector<int> choose_values(const Engine& engine, const Plan& golden) {
  const std::vector<bool> cut = cut_steps(golden);
  std::vector<size_t> steps;
  int64_t all = 0, constants = 0;
  const auto wanted = [&](int t) {
    const PlanTensor& tensor = golden.tensors[static_cast<size_t>(t)];
    // Whole numbers may be places in the batch: those of a sample differ from slot to slot.
    const bool places = info(tensor.desc.type.element).kind == ElementKind::kInteger && !tensor.desc.type.scaled();
    return tensor.storage == Storage::kArena && !places && tensor.desc.dense() && !tensor.desc.type.dynamic &&
           info(tensor.desc.type.element).bits >= 8 && !tensor.desc.shape.empty() &&
           tensor.desc.shape[0] % golden.batch == 0;
  };
  for (size_t i = 0; i < cut.size(); ++i) {
    if (!cut[i] || !std::all_of(golden.steps[i].out.begin(), golden.steps[i].out.end(), wanted)) continue;
    steps.push_back(i);
    for (const int t : golden.steps[i].out) all += bytes_of(golden.tensors[static_cast<size_t>(t)].desc);
  }
  for (const EngineConstant& c : engine.constants) constants += static_cast<int64_t>(c.data.size());
  const double share = kShare / static_cast<double>(std::max<size_t>(1, golden_plans(engine).size()));
  const int64_t room = std::max(kLeastBytes, static_cast<int64_t>(share * static_cast<double>(constants)));
  const int64_t every = std::max<int64_t>(1, (all + room - 1) / room);
  std::vector<int> tensors;
  for (size_t i = static_cast<size_t>(every) - 1; i < steps.size(); i += static_cast<size_t>(every))
    tensors.insert(tensors.end(), golden.steps[steps[i]].out.begin(), golden.steps[steps[i]].out.end());
  return tensors;
}

namespace {

// The tensors of the values that the engine holds already.
std::vector<int> known_values(const Engine& engine, const Plan& golden) {
  std::vector<int> tensors;
  const GoldenForm* form = golden_form(engine, golden);
  if (form == nullptr) return tensors;
  for (const GoldenValue& value : form->values) {
    for (size_t t = 0; t < golden.tensors.size(); ++t) {
      if (golden.tensors[t].name == value.tensor.name && golden.tensors[t].storage == Storage::kArena)
        tensors.push_back(static_cast<int>(t));
    }
  }
  return tensors;
}

// Whether each value holds one sample after the other: a run with the samples in another order gives the same bytes in
// that order. Tokens before samples, or samples that read each other, do not.
Result<std::vector<bool>> are_sample_by_sample(const Engine& engine, const Plan& golden, const Samples& samples,
                                               const GoldenArithmetic& arithmetic, const std::vector<int>& tensors,
                                               const std::vector<Bytes>& clean) {
  std::vector<bool> same(tensors.size(), false);
  ExecutorOptions options;
  options.make = [&](size_t i, const Problem& p, std::span<const TensorView> in, std::span<const TensorView> out) {
    return arithmetic.make(i, p, in, out, 0);
  };
  for (const int t : tensors) options.replaced.push_back({t, {}});
  options.seen = [&](size_t v, const uint8_t* bytes) {
    const size_t one = clean[v].size() / static_cast<size_t>(golden.batch), rest = clean[v].size() - one;
    same[v] =
        std::memcmp(bytes, clean[v].data() + one, rest) == 0 && std::memcmp(bytes + rest, clean[v].data(), one) == 0;
  };
  const Samples from_the_second = samples.repeated(golden.batch + 1).part(1, golden.batch);
  TS_TRY(run_plan(engine, golden, from_the_second, options).status());
  return same;
}

}  // namespace

namespace {

// Runs of the golden plan over one set of samples, with the values that are watched: what they are in the clean run,
// and how far noise takes them.
class GoldenRuns {
 public:
  GoldenRuns(const Engine& engine, const Plan& golden, const Samples& samples, std::vector<int> tensors,
             Progress* progress)
      : engine_(engine),
        golden_(golden),
        samples_(samples),
        progress_(progress),
        scores_(steps_of_scores(golden)),
        tensors_(std::move(tensors)),
        clean_(tensors_.size()),
        farthest_(tensors_.size(), 0) {}

  // Seed 0: without noise; every later run starts each value from the clean one before it.
  Result<Outputs64> run(const GoldenArithmetic& arithmetic, uint64_t seed) {
    ExecutorOptions options;
    options.make = [&, seed](size_t i, const Problem& p, std::span<const TensorView> in,
                             std::span<const TensorView> out) {
      if (progress_ != nullptr && seed <= 1) progress_->advance();
      return arithmetic.make(i, p, in, out, seed == 0 ? 0 : seed + i);
    };
    if (seed > 0)
      options.noise = [&, seed](const PlanStep&, size_t i) {
        return step_noise(arithmetic.noise(i), seed * 0x51ed + i, scores_[i]);
      };
    if (seed > 0)
      options.observe = [&, seed](const PlanStep& step, std::span<const TensorView>, std::span<const TensorView> out) {
        move_one_code(out[0], seed * 0x9e37 + static_cast<uint64_t>(&step - golden_.steps.data()));
      };
    for (size_t v = 0; v < tensors_.size(); ++v) options.replaced.push_back({tensors_[v], clean_[v]});
    options.seen = [&, seed](size_t v, const uint8_t* bytes) { seed == 0 ? take(v, bytes) : measure(v, bytes); };
    return run_plan(engine_, golden_, samples_, options);
  }

  // Values that depend on one sample each, where the batch has several.
  Status keep_sample_by_sample(const GoldenArithmetic& arithmetic) {
    TS_ASSIGN(const std::vector<bool> kept,
              are_sample_by_sample(engine_, golden_, samples_, arithmetic, tensors_, clean_));
    keep(kept);
    return {};
  }

  void keep(const std::vector<bool>& kept) {
    size_t n = 0;
    for (size_t v = 0; v < tensors_.size(); ++v) {
      if (kept[v]) tensors_[n] = tensors_[v], clean_[n] = clean_[v], ++n;
    }
    tensors_.resize(n), clean_.resize(n);
  }

  void forget_distances() { farthest_.assign(tensors_.size(), 0); }

  // The value with its bound, after runs with noise.
  GoldenValue value(size_t v) const {
    const PlanTensor& t = golden_.tensors[static_cast<size_t>(tensors_[v])];
    const double bound =
        multiple_of(elements(t.desc.shape)) * farthest_[v] + largest_flip(t.desc, clean_[v].data()) + kFloor;
    return {{t.name, t.desc.shape, t.desc.type, clean_[v]}, bound};
  }
  size_t values() const { return tensors_.size(); }

 private:
  const Operand& desc(size_t v) const { return golden_.tensors[static_cast<size_t>(tensors_[v])].desc; }

  void take(size_t v, const uint8_t* bytes) {
    Buffer kept(static_cast<size_t>(bytes_of(desc(v))));
    std::memcpy(kept.data(), bytes, kept.size());
    clean_[v] = Bytes::own(std::move(kept));
  }

  void measure(size_t v, const uint8_t* bytes) {
    const int64_t count = elements(desc(v).shape);
    const Closeness c =
        compare(decoded(desc(v).type, bytes, count), decoded(desc(v).type, clean_[v].data(), count), golden_.batch);
    if (!(c.relative_l2 <= farthest_[v])) farthest_[v] = c.relative_l2;  // NaN stays: such a value is not kept
  }

  const Engine& engine_;
  const Plan& golden_;
  const Samples& samples_;
  Progress* const progress_;
  const std::vector<bool> scores_;
  std::vector<int> tensors_;
  std::vector<Bytes> clean_;
  std::vector<double> farthest_;
};

}  // namespace

Result<GoldenTruth> run_golden(const Engine& engine, std::span<const Plan* const> plans, const Plan& golden,
                               const Samples& samples, Progress* progress) {
  std::vector<GoldenArithmetic> ways;
  for (const Plan* p : plans) {
    GoldenArithmetic way(*p, golden);
    if (std::find(ways.begin(), ways.end(), way) == ways.end()) ways.push_back(std::move(way));
  }
  std::vector<int> tensors = known_values(engine, golden);
  const bool fresh = tensors.empty();
  if (fresh) tensors = choose_values(engine, golden);
  GoldenRuns runs(engine, golden, samples, std::move(tensors), progress);
  GoldenTruth truth;
  TS_ASSIGN(truth.outputs, runs.run(ways.front(), 0));
  if (fresh && golden.batch > 1) TS_TRY(runs.keep_sample_by_sample(ways.front()));
  constexpr double kMostBound = 0.99;  // a bound of 1 binds nothing
  const size_t count = std::max(ways.size(), static_cast<size_t>(noise_runs(golden)));
  // A value that noise may change altogether is no place to go on from. Without it those after it lie farther from the
  // one before them: their bounds are taken again.
  for (bool again = true; again;) {
    runs.forget_distances();
    truth.bounds.assign(truth.outputs.size(), 0);
    truth.values.clear();
    for (size_t i = 0; i < count; ++i) {
      TS_ASSIGN(const Outputs64 noisy, runs.run(ways[i % ways.size()], i + 1));
      for (size_t o = 0; o < noisy.size(); ++o) {
        const double far = compare(noisy[o], truth.outputs[o], golden.batch).relative_l2;
        truth.bounds[o] = std::max(truth.bounds[o], multiple_of(static_cast<int64_t>(noisy[o].size())) * far + kFloor);
      }
    }
    std::vector<bool> kept;
    for (size_t v = 0; v < runs.values(); ++v) {
      GoldenValue value = runs.value(v);
      kept.push_back(value.bound <= kMostBound);
      if (kept.back()) truth.values.push_back(std::move(value));
    }
    again = truth.values.size() < runs.values();
    if (again) runs.keep(kept);
  }
  for (double& b : truth.bounds) b = std::min(b, kMostBound);
  return truth;
}

Result<ValueRun> run_by_values(const Engine& engine, const Plan& plan, const std::vector<GoldenValue>& values,
                               int64_t in_values, const Samples& samples, int64_t first, int64_t count,
                               std::string* machine, ExecutorOptions options) {
  const Activity running("plan", plan.name);
  ValueRun run;
  std::vector<std::vector<double>> wanted;
  for (const GoldenValue& value : values) {
    const GoldenTensor& g = value.tensor;
    for (size_t t = 0; t < plan.tensors.size(); ++t) {
      const PlanTensor& here = plan.tensors[t];
      const int64_t per_sample = elements(g.shape) / std::max<int64_t>(1, in_values);
      const bool written = std::any_of(plan.steps.begin(), plan.steps.end(), [&](const PlanStep& s) {
        return std::find(s.out.begin(), s.out.end(), static_cast<int>(t)) != s.out.end();
      });
      if (here.name != g.name || here.storage != Storage::kArena || here.desc.type != g.type || !here.desc.dense() ||
          !written || elements(here.desc.shape) != per_sample * plan.batch)
        continue;
      const int64_t bytes = packed_bytes(g.type.element, per_sample);
      Buffer data(static_cast<size_t>(bytes * plan.batch));
      for (int64_t s = 0; s < plan.batch; ++s)
        std::memcpy(data.data() + s * bytes, g.data.data() + (first + s % count) * bytes, static_cast<size_t>(bytes));
      wanted.push_back(decoded(g.type, data.data(), per_sample * plan.batch));
      const double bound = bound_of_part(value.bound, decoded(g.type, g.data.data(), elements(g.shape)), wanted.back());
      options.replaced.push_back({static_cast<int>(t), Bytes::own(std::move(data))});
      run.values.push_back({g.name, 0, bound});
      break;
    }
  }
  options.seen = [&](size_t v, const uint8_t* bytes) {
    const QuantType& type = plan.tensors[static_cast<size_t>(options.replaced[v].tensor)].desc.type;
    const Closeness c = compare(decoded(type, bytes, static_cast<int64_t>(wanted[v].size())), wanted[v], plan.batch);
    run.values[v].relative_l2 = c.relative_l2, run.values[v].finite = c.finite;
  };
  TS_ASSIGN(run.outputs, run_plan(engine, plan, samples.part(first, count), options, machine));
  return run;
}

}  // namespace tessera
