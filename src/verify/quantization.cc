// SPDX-License-Identifier: Apache-2.0
#include "verify/quantization.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "golden/step_reads.h"
#include "ir/layer_ops.h"
#include "ir/padding.h"
#include "op/extra_results.h"
#include "op/reference.h"
#include "precision/choose_precisions.h"

namespace tessera {
namespace {

bool is_constant(const Plan& plan, int tensor) {
  return tensor >= 0 && plan.tensors[static_cast<size_t>(tensor)].storage == Storage::kConstant;
}

std::vector<double> doubles(const std::vector<float>& numbers) { return {numbers.begin(), numbers.end()}; }

// The value beneath a tensor that a pass over types added: copies that cast or make codes hand their operand on.
std::string original_name(const Plan& plan, const std::map<int, std::string>& known, const PlanStep& step, size_t out) {
  const std::string& own = plan.tensors[static_cast<size_t>(step.out[out])].name;
  if (step.op != "copy" || step.in.empty() || step.in[0] < 0) return own;
  if (const auto it = known.find(step.in[0]); it != known.end() && it->second != own) return it->second;
  return plan.tensors[static_cast<size_t>(step.in[0])].name;
}

// The name of the result whose memory a tensor shows all of, in another grouping; its own where there is none.
std::string whole_name(const Plan& plan, const std::map<int, std::string>& known, int tensor) {
  const PlanTensor& t = plan.tensors[static_cast<size_t>(tensor)];
  std::string name = t.name;
  for (const auto& [other, its] : known) {
    const PlanTensor& o = plan.tensors[static_cast<size_t>(other)];
    const bool same = o.storage == t.storage && o.index == t.index && o.offset_bytes == t.offset_bytes &&
                      o.desc.type == t.desc.type && elements(o.desc.shape) == elements(t.desc.shape);
    if (same && t.desc.dense() && o.desc.dense() && t.name.starts_with(o.name)) name = its;
  }
  return name;
}

TensorView constant_view(const Engine& engine, const Plan& plan, int tensor) {
  const PlanTensor& t = plan.tensors[static_cast<size_t>(tensor)];
  const auto bytes = [&](const PlanTensor& c) {
    return const_cast<uint8_t*>(engine.constants[static_cast<size_t>(c.index)].data.data()) + c.offset_bytes;
  };
  TensorView view;
  view.desc = &t.desc;
  view.data = bytes(t);
  if (t.scale >= 0) view.scale = bytes(plan.tensors[static_cast<size_t>(t.scale)]);
  if (t.scale2 >= 0) view.scale2 = bytes(plan.tensors[static_cast<size_t>(t.scale2)]);
  return view;
}

}  // namespace

QuantizationJudge::QuantizationJudge(const Engine& engine, const Plan& plan, const F32Model* f32_model,
                                     std::set<std::string> dividing)
    : engine_(engine), plan_(plan), f32_model_(f32_model), dividing_(std::move(dividing)) {
  std::set<std::string> have;
  if (f32_model != nullptr) {
    for (const PlanStep& s : f32_model->plan().steps) layers_.emplace(s.layer, &s);
    for (const PlanTensor& t : f32_model->plan().tensors) have.insert(t.name);
  }
  for (const PlanStep& s : plan.steps) {
    LayerQuality q{.layer = s.layer, .op = s.op, .role = s.role};
    const auto element = [&](int t) { return info(plan.tensors[static_cast<size_t>(t)].desc.type.element).name; };
    q.types = multiplies_weights(s.op) && is_constant(plan, s.in[1]) ? cat(element(s.in[0]), " x ", element(s.in[1]))
                                                                     : std::string(element(s.out[0]));
    reports_.push_back(std::move(q));
    for (const int t : s.in) {
      if (t < 0 || is_constant(plan, t) || names_.contains(t)) continue;
      const std::string& own = plan.tensors[static_cast<size_t>(t)].name;
      names_[t] = have.contains(own) ? own : whole_name(plan, names_, t);
    }
    for (size_t o = 0; o < s.out.size(); ++o) {
      const std::string& own = plan.tensors[static_cast<size_t>(s.out[o])].name;
      const bool codes = o > 0 && static_cast<int>(o) ==
                                      ExtraResults::of(s.attrs).codes;  // of the first result, whose value they hold
      names_[s.out[o]] = codes ? names_[s.out[0]] : have.contains(own) ? own : original_name(plan, names_, s, o);
    }
  }
  for (const auto& [tensor, name] : names_) {
    if (have.contains(name)) wanted_.insert(name);
  }
  find_gained();
  if (f32_model != nullptr && !dividing_.empty()) find_divided();
}

void QuantizationJudge::find_gained() {
  const auto has_vectors = [](const PlanStep& s) {
    return std::any_of(s.in.begin() + 1, s.in.end(), [](int t) { return t >= 0; });
  };
  std::vector<bool> plain(plan_.steps.size(), false);
  const std::vector<std::vector<StepRead>> reads = reads_of_steps(plan_);
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    const PlanStep& s = plan_.steps[i];
    const auto there = layers_.find(s.layer);
    plain[i] = s.op == "norm" && !has_vectors(s) && there != layers_.end() && there->second->op == "norm" &&
               has_vectors(*there->second);
    for (const StepRead& r : reads[i]) {
      if (r.operand != 0 || !plain[r.step]) continue;
      if (s.op == "copy") plain[i] = true;
      if (s.op == "matmul") gained_.insert(i);
    }
  }
}

// Views have no steps: which value a tensor reads shows in the memory that it lies in.
void QuantizationJudge::find_divided() {
  struct Range {
    Storage storage;
    int64_t index, begin, end;
    int result;
  };
  const auto range_of = [&](int tensor) {
    const PlanTensor& t = plan_.tensors[static_cast<size_t>(tensor)];
    int64_t last = 0;
    for (size_t axis = 0; axis < t.desc.shape.size(); ++axis)
      last += std::max<int64_t>(0, t.desc.shape[axis] - 1) * t.desc.strides[axis];
    return Range{t.storage, t.index, t.offset_bytes, t.offset_bytes + packed_bytes(t.desc.type.element, last + 1),
                 tensor};
  };
  const auto overlap = [](const Range& a, const Range& b) {
    return a.storage == b.storage && a.index == b.index && a.begin < b.end && b.begin < a.end;
  };
  std::vector<Range> divided;
  for (const PlanStep& s : plan_.steps) {
    bool reads = false;
    for (const int t : s.in) {
      if (t < 0 || is_constant(plan_, t)) continue;
      const Range r = range_of(t);
      const auto lies_in = std::find_if(divided.begin(), divided.end(), [&](const Range& d) { return overlap(d, r); });
      if (lies_in == divided.end()) continue;
      divided_[t] = lies_in->result;
      reads = true;
    }
    const bool divides = dividing_.contains(s.layer) || (reads && s.op != "matmul");
    for (const int t : s.out) {
      const Range r = range_of(t);
      std::erase_if(divided, [&](const Range& d) { return overlap(d, r); });
      if (!divides) continue;
      divided.push_back(r);
      divided_[t] = t;
    }
  }
}

std::string QuantizationJudge::left_out() const {
  std::vector<std::string> layers;
  for (const PlanStep& s : plan_.steps) {
    if (s.op != "copy" && divided_.contains(s.out[0])) layers.push_back(s.layer);
  }
  if (layers.empty()) return "";
  std::string text = cat("refinements of the build (smooth, awq) divided the results of ", layers.size(),
                         layers.size() == 1 ? " layer" : " layers", ", which are not compared: ");
  constexpr size_t kMost = 3;
  for (size_t i = 0; i < layers.size() && i < kMost; ++i) text += cat(i == 0 ? "" : ", ", layers[i]);
  return layers.size() > kMost ? text + " ..." : text;
}

const std::vector<float>* QuantizationJudge::f32_value(int tensor) const {
  if (run_ == nullptr || tensor < 0 || divided_.contains(tensor)) return nullptr;
  const auto name = names_.find(tensor);
  if (name == names_.end()) return nullptr;
  const auto value = run_->values.find(name->second);
  const int64_t count = elements(plan_.tensors[static_cast<size_t>(tensor)].desc.shape);
  return value != run_->values.end() && static_cast<int64_t>(value->second.size()) == count ? &value->second : nullptr;
}

void QuantizationJudge::judge_weights(const PlanStep& step, size_t index, std::span<const TensorView> in) {
  LayerQuality& q = reports_[index];
  if (!multiplies_weights(step.op) || step.in.size() < 2 || !is_constant(plan_, step.in[1]) || q.closeness.samples > 0)
    return;
  Finding found;
  const auto f32_model = layers_.find(step.layer);
  const bool known =
      !step.then.gated() &&
      step.then.find(StepKind::normalise) == nullptr &&  // whose rows may be in another order, or hold a norm's gain
      !gained_.contains(index) && f32_model != layers_.end() && f32_model->second->op == step.op &&
      is_constant(f32_model_->plan(), f32_model->second->in[1]);
  if (known) {
    const Dense exact = decode(constant_view(f32_model_->engine, f32_model_->plan(), f32_model->second->in[1]));
    const bool same_size = static_cast<int64_t>(exact.v.size()) == elements(in[1].desc->shape);
    const std::vector<double> want =
        same_size ? exact.v : padded_weight(step.attrs, exact.v, exact.shape, in[1].desc->shape);
    if (!want.empty()) q.weight_error = compare(decode(in[1]).v, want, 1).relative_l2;
  } else {
    found = judge_codes(in[1]);
  }
  if (!found.text.empty()) q.found.push_back(std::move(found));
}

void QuantizationJudge::see(const PlanStep& step, std::span<const TensorView> in, std::span<const TensorView> out) {
  const size_t index = static_cast<size_t>(&step - plan_.steps.data());
  TS_CHECK(index < reports_.size(), "a step of another plan");
  LayerQuality& q = reports_[index];
  judge_weights(step, index, in);
  const auto note = [&](Finding f) {
    if (f.text.empty()) return;
    for (const Finding& known : q.found) {
      if (known.fault >= f.fault) return;  // one sentence about each layer, the gravest
    }
    q.found.insert(q.found.begin(), std::move(f));
  };
  double before = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].desc == nullptr || is_constant(plan_, step.in[i])) continue;
    const std::vector<float>* exact = f32_value(step.in[i]);
    if (const auto it = divided_.find(step.in[i]); it != divided_.end())
      before = std::max(before, carried_[it->second]);
    if (exact != nullptr) before = std::max(before, compare(decode(in[i]).v, doubles(*exact), 1).relative_l2);
    if (!in[i].desc->type.scaled()) continue;
    note(read_asked(step.asked).imported()
             ? judge_stated(in[i])
             : judge_activation(in[i], exact != nullptr ? *exact : std::span<const float>()));
  }
  const std::vector<float>* exact = f32_value(step.out[0]);
  if (divided_.contains(step.out[0])) carried_[step.out[0]] = before;
  if (exact == nullptr) return;
  if (!out[0].desc->type.scaled()) note(judge_activation(out[0], *exact));
  const Dense got = decode(out[0]);
  const bool by_sample = !got.shape.empty() && got.shape[0] % plan_.batch == 0;
  const Closeness c = compare(got.v, doubles(*exact), by_sample ? plan_.batch : 1);
  q.compared = true;
  q.added = std::max(q.added, c.relative_l2 - before);
  q.closeness.add(c);
}

std::vector<std::string> sentences_of(const std::vector<LayerQuality>& layers, bool faults, size_t most) {
  std::vector<std::pair<double, std::string>> ranked;
  for (const LayerQuality& q : layers) {
    for (const Finding& f : q.found) {
      if (faults && !f.fault) continue;
      ranked.emplace_back(-(f.fault ? 1e6 : 0) - q.added, cat("layer ", q.layer, ": ", f.text));
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (size_t i = 0; i < ranked.size() && i < most; ++i) out.push_back(std::move(ranked[i].second));
  if (ranked.size() > most) out.push_back(cat(ranked.size() - most, " more layers"));
  return out;
}

std::string worst_layers(const std::vector<LayerQuality>& layers, size_t most) {
  std::vector<const LayerQuality*> ranked;
  for (const LayerQuality& q : layers) {
    if (q.compared && q.op != "copy") ranked.push_back(&q);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto* a, const auto* b) { return a->added > b->added; });
  std::string text;
  for (size_t i = 0; i < ranked.size() && i < most; ++i) {
    char numbers[64];
    std::snprintf(numbers, sizeof(numbers), " (cosine %.4f, adds %.2g)", ranked[i]->closeness.cosine_mean,
                  ranked[i]->added);
    text += cat(i == 0 ? "" : ", ", ranked[i]->layer, numbers);
  }
  return text;
}

}  // namespace tessera
