// SPDX-License-Identifier: Apache-2.0
#include "verify/validate/plan_differences.h"

#include <algorithm>

#include "op/extra_results.h"
#include "op/whole_numbers.h"
#include "ops/matmul/matmul.h"
#include "steps/step.h"
#include "verify/validate/counterparts.h"

namespace tessera {
namespace {

// How something is stored and rounded, not what is computed.
bool is_of_types(const std::string& attr) {
  for (const char* own : {"p", kCodesResult, kCodesGain, kMomentsResult, kKeptResults, kPromoted, kSparse24, kJoined}) {
    if (attr == own) return true;
  }
  return attr.starts_with("type.") || attr.starts_with("scale.");
}

std::string text_of(const Attr& a) {
  struct Print {
    std::string operator()(int64_t x) const { return cat(x); }
    std::string operator()(double x) const { return cat(x); }
    std::string operator()(const std::string& x) const { return x; }
    std::string operator()(const std::vector<int64_t>& x) const { return to_string(x); }
  };
  return std::visit(Print(), a);
}

std::string different_attr(const Attrs& plan, const Attrs& model) {
  for (const auto& [name, value] : plan.all()) {
    if (is_of_types(name)) continue;
    if (!model.has(name)) return cat(name, " is ", text_of(value), ", the model has none");
    if (model.all().at(name) != value)
      return cat(name, " is ", text_of(value), ", the model has ", text_of(model.all().at(name)));
  }
  for (const auto& [name, value] : model.all()) {
    if (!is_of_types(name) && !plan.has(name)) return cat("it has no ", name, ", the model has ", text_of(value));
  }
  return "";
}

// Steps of a program but for those that round.
std::vector<Step> steps_of(const Program& then) {
  std::vector<Step> steps = then.steps;
  std::erase_if(steps, [](const Step& s) { return info(s.kind).rounds; });
  return steps;
}

// Operands that no step of the program reads, in order, then those of its steps.
struct OperandOf {
  size_t at;
  std::string what;
};
std::vector<OperandOf> operands_of(const std::string& op, size_t count, const std::vector<Step>& steps) {
  static const char* kAttention[] = {"q", "k", "v", "attention bias", "attention lengths"};
  std::vector<OperandOf> all;
  for (size_t i = 0; i < count; ++i) {
    if (std::any_of(steps.begin(), steps.end(), [&](const Step& s) { return s.operand == static_cast<int>(i); }))
      continue;
    all.push_back({i, op == "attention" && i < std::size(kAttention) ? kAttention[i]
                      : i == 0                                       ? "input"
                                                                     : cat("operand ", i)});
  }
  for (const Step& s : steps) {
    if (s.operand >= 0) all.push_back({static_cast<size_t>(s.operand), name_of(s.kind)});
  }
  return all;
}

std::string different_operand(const ModelValues& model, const std::string& what, const std::optional<ReadPlace>& read,
                              bool constant, ValueId id) {
  const Graph& g = model.graph();
  const bool absent = !read && !constant;
  if (id == kNoValue) return absent ? "" : cat("it reads a ", what, ", the model has none");
  if (absent) return cat("it reads no ", what, ", the model has '", g.at(id).name, "'");
  if (model.is_constant(id))
    return constant ? "" : cat("its ", what, " is computed, the model has the constant '", g.at(id).name, "'");
  if (constant) return cat("its ", what, " is a constant, the model has '", g.at(id).name, "'");
  const Place want = model.place(id);
  if (!read->place) return cat("its ", what, " is no value of the model, which has '", g.at(id).name, "'");
  if (read->place->base != want.base)
    return cat("its ", what, " is '", g.at(read->place->base).name, "', the model has '", g.at(want.base).name, "'");
  return same_elements(read->place->region, want.region)
             ? ""
             : cat("its ", what, " is another part of '", g.at(want.base).name, "' than in the model");
}

}  // namespace

std::string words_of(const std::string& op, const Attrs& attrs, const Program& then) {
  std::string text = op == "map" || op == "reduce" ? cat(op, " ", attrs.word("fn")) : op;
  const std::vector<Step> steps = steps_of(then);
  text += steps.empty() ? " then nothing" : " then";
  // An activation is known by its function: that is also what the map is called where it stands alone.
  for (const Step& s : steps) text += cat(" ", s.kind == StepKind::act ? name_of(s.fn) : text_of(s, false));
  return text;
}

std::string different_number(const ModelValues& model, const PlanStep& step, const Node& layer) {
  const auto differ = [](const char* name, double here, double there) {
    return here == there ? std::string() : cat(name, " is ", here, ", the model has ", there);
  };
  if (step.op == layer.op) {
    for (const auto& [name, value] : step.attrs.all()) {
      const double* here = std::get_if<double>(&value);
      if (here == nullptr || is_of_types(name) || !layer.attrs.has(name)) continue;
      if (const std::string text = differ(name.c_str(), *here, layer.attrs.number(name)); !text.empty()) return text;
    }
  }
  if (step.then.find(StepKind::normalise) == nullptr || layer.then.find(StepKind::normalise) != nullptr) return "";
  const Node* norm = norm_before(model, layer);
  if (norm == nullptr) return "it normalises its input, the model has no norm before it";
  const std::string kind = step.attrs.word(kFoldedKind, "layer"), want = norm->attrs.word("kind", "layer");
  if (kind != want) return cat("the norm folded into it is ", kind, ", norm ", norm->name, " of the model is ", want);
  const std::string eps = differ("eps", step.attrs.number(kFoldedEps), norm->attrs.number("eps"));
  return eps.empty() ? "" : cat("the norm folded into it: ", eps, " (norm ", norm->name, ")");
}

std::string difference(const ModelValues& model, const Plan& plan, const PlanStep& step, const Node& layer,
                       const Reads& reads) {
  const Graph& g = model.graph();
  std::vector<Step> here = steps_of(step.then);
  const std::vector<Step> there = steps_of(layer.then);
  // A vector that another of the joined layers has: of this one it holds what changes nothing (counterparts.h).
  std::vector<int> left_out;
  if (const int gain = ExtraResults::of(step.attrs).gain; gain > 0) left_out.push_back(gain);  // of what lies beside
  std::erase_if(here, [&](const Step& s) {
    const bool others =
        step.attrs.has(kJoined) && operand_of(s.kind) == StepOperand::kVector && layer.then.find(s.kind) == nullptr;
    if (others) left_out.push_back(s.operand);
    return others;
  });
  const bool same_steps =
      std::equal(here.begin(), here.end(), there.begin(), there.end(), [](const Step& a, const Step& b) {
        return a.kind == b.kind && a.fn == b.fn && a.numbers == b.numbers && (a.operand < 0) == (b.operand < 0);
      });
  if (step.op != layer.op || !same_steps)
    return cat("it computes ", words_of(step.op, step.attrs, step.then), " where the model has ",
               words_of(layer.op, layer.attrs, layer.then));
  if (const std::string attr = different_attr(step.attrs, layer.attrs); !attr.empty()) return attr;
  std::vector<OperandOf> a = operands_of(step.op, step.in.size(), steps_of(step.then));
  const std::vector<OperandOf> b = operands_of(layer.op, layer.inputs.size(), there);
  std::erase_if(a, [&](const OperandOf& o) {
    return std::any_of(left_out.begin(), left_out.end(),
                       [&](int operand) { return o.at == static_cast<size_t>(operand); });
  });
  const size_t extra = std::max(a.size(), b.size());
  for (size_t i = 0; i < extra; ++i) {
    const bool past = i >= a.size();
    const int tensor = past ? -1 : step.in[a[i].at];
    const bool constant = tensor >= 0 && plan.tensors[static_cast<size_t>(tensor)].storage == Storage::kConstant;
    const ValueId id = i < b.size() ? layer.inputs[b[i].at] : kNoValue;
    const std::string text =
        different_operand(model, past ? b[i].what : a[i].what, past ? std::nullopt : reads[a[i].at], constant, id);
    if (!text.empty()) return text;
  }
  const Operand& y = plan.tensors[static_cast<size_t>(step.out[0])].desc;
  const Type& want = g.at(layer.outputs[0]).type;
  if (y.shape != want.shape && !step.attrs.has(kJoined))
    return cat("its result is ", to_string(y.shape), ", the model has ", to_string(want.shape));
  return is_whole(y.type) == is_whole(want.quant)
             ? ""
             : cat("its result is ", to_string(y.type), ", the model has ", to_string(want.quant));
}

}  // namespace tessera
