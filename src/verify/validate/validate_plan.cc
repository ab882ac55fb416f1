// SPDX-License-Identifier: Apache-2.0
#include "verify/validate/validate_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <deque>

#include "ir/padding.h"
#include "lower/fold_norms.h"
#include "op/extra_results.h"
#include "op/reference.h"
#include "op/whole_numbers.h"
#include "ops/ops.h"
#include "steps/rotary.h"
#include "steps/step.h"
#include "verify/validate/activation_scales.h"
#include "verify/validate/counterparts.h"
#include "verify/validate/plan_differences.h"
#include "verify/validate/plan_memory.h"
#include "verify/validate/table_rows.h"

namespace tessera {
namespace {

// Of a batch, as many are computed: two, so that what mixes samples shows.
constexpr int64_t kSamples = 2;
// A plan whose samples cannot be taken apart is computed whole below this: about half a minute of f64.
constexpr double kMostFlops = 2e11;
// f64 in another order: sums of k products leave sqrt(k) 2^-53 of their magnitudes' sum, 1e-13 for k = 10^4 that cancel
// as random numbers do. Faults start at the rounding of an attribute to f32, 1e-8.
constexpr double kSame = 1e-10;
constexpr size_t kMostSentences = 3;

std::string brief(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2g", x);
  return text;
}

class Walk {
 public:
  Walk(std::span<const EngineConstant> constants, const Plan& plan, const Graph& model, const ValidateOptions& options,
       int64_t samples)
      : constants_(constants),
        plan_(plan),
        model_(model, {plan.batch, samples}),
        options_(options),
        scales_(model_, options.ranges),
        memory_(plan) {}

  // False where the first samples could not be computed without the others.
  bool run(Validation& out) {
    out_ = &out;
    const Graph& g = model_.graph();
    if (plan_.inputs.size() != g.inputs.size() || plan_.outputs.size() != g.outputs.size()) {
      out.faults.push_back(cat("it has ", plan_.inputs.size(), " inputs and ", plan_.outputs.size(),
                               " outputs, the model has ", g.inputs.size(), " and ", g.outputs.size()));
      return true;
    }
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      const bool known = i < g.inputs.size() && g.at(g.inputs[i]).name == plan_.inputs[i].name;
      if (!known)
        return out.faults.push_back(cat("input ", i, " is '", plan_.inputs[i].name, "', the model has another there")),
               true;
      memory_.write(plan_.inputs[i].tensor,
                    {.place = Place{g.inputs[i], dense_region(tensor(plan_.inputs[i].tensor).desc.shape)}});
    }
    for (const PlanStep& step : plan_.steps) visit(step);
    for (size_t i = 0; i < plan_.outputs.size(); ++i) check_output(i);
    return !stuck_;
  }

 private:
  const PlanTensor& tensor(int t) const { return plan_.tensors[static_cast<size_t>(t)]; }
  bool is_constant(int t) const { return t >= 0 && tensor(t).storage == Storage::kConstant; }

  TensorView view(int t) const {
    const auto bytes = [&](int of) -> uint8_t* {
      if (!is_constant(of)) return nullptr;
      return const_cast<uint8_t*>(constants_[static_cast<size_t>(tensor(of).index)].data.data()) +
             tensor(of).offset_bytes;
    };
    return {
        .desc = &tensor(t).desc, .data = bytes(t), .scale = bytes(tensor(t).scale), .scale2 = bytes(tensor(t).scale2)};
  }

  void fault(const std::string& layer, const std::string& text) {
    out_->faults.push_back(cat("layer ", layer, ": ", text));
  }

  // The value of the model that a result is, by its name; `guessed`: by what its name begins with ("y.codes" is y).
  ValueId value_of(int t, bool& guessed) const {
    std::string name = tensor(t).name;
    guessed = false;
    for (;;) {
      const ValueId v = model_.find(name);
      if (v != kNoValue && elements(model_.graph().at(v).type.shape) == elements(tensor(t).desc.shape)) return v;
      const size_t dot = name.rfind('.');
      if (dot == std::string::npos) return kNoValue;
      name.resize(dot);
      guessed = true;
    }
  }

  // The layer of the model that a step computes, or a part of.
  const Node* layer_of(const PlanStep& step, ValueId y, bool guessed, const Reads& reads) const {
    const Node *maker = model_.maker(y), *named = model_.layer(layers_of(step)[0]);
    for (const Node* n : guessed ? std::array{named, maker} : std::array{maker, named}) {
      if (n != nullptr && n->op == step.op) return n;
    }
    for (const auto& r : reads) {
      if (r && r->held->layer != nullptr) return r->held->layer;
    }
    return maker;
  }

  // The plan's result that a step goes on with: one that is no value of the model, and no plain norm, which is a layer
  // of its own.
  static const Held* partial(const Reads& reads) {
    for (const auto& r : reads) {
      if (r && !r->held->place && !r->held->maker.empty() && r->held->plain == kNoValue) return r->held;
    }
    return nullptr;
  }

  std::string label(const PlanStep& step, ValueId y, const Reads& reads) const {
    if (const Held* h = partial(reads)) return h->maker;
    if (model_.layer(layers_of(step)[0]) != nullptr || model_.maker(y) == nullptr) return step.layer;
    return model_.maker(y)->name;
  }

  // What has been done when the step is done, from where its operands are values of the model.
  std::string done(const PlanStep& step, const Reads& reads) const {
    const Held* h = partial(reads);
    if (h == nullptr || (step.op != "map" && step.op != "copy")) return words_of(step.op, step.attrs, step.then);
    if (step.op == "copy") return h->done;
    const bool vector = step.in.size() == 2 && is_constant(step.in[1]);
    const std::string fn = step.attrs.word("fn"), nothing = " nothing";
    const std::string before =
        h->done.ends_with(nothing) ? h->done.substr(0, h->done.size() - nothing.size()) : h->done;
    const StepMap map{fn, step.in.size() != 2 ? StepMap::With::kNothing
                          : vector            ? StepMap::With::kVector
                                              : StepMap::With::kMatrix};
    const auto fused = find_fused({&map, 1});
    return cat(before, " ", fused && !names_function(fused->step.kind) ? name_of(fused->step.kind) : fn);
  }

  // The model's constants in place of the plan's, each of which must be one of them, rounded.
  std::vector<Dense> exact_constants(const PlanStep& step, const Node* layer, const std::string& name) {
    std::vector<Dense> in(step.in.size());
    for (size_t i = 0; i < step.in.size(); ++i) {
      if (!is_constant(step.in[i])) continue;
      ++out_->constants;
      std::vector<Bytes> pair;
      const std::string key = options_.compared == nullptr ? "" : pair_of(step, i, layer, pair);
      if (!key.empty() && options_.compared->contains(key)) continue;  // compute() asks for its numbers
      const size_t faults = out_->faults.size();
      in[i] = {tensor(step.in[i]).desc.shape, exact_constant(step, i, layer, name)};
      if (!key.empty() && out_->faults.size() == faults) options_.compared->emplace(key, std::move(pair));
    }
    return in;
  }

  // A stored constant and the layer's own, with all that says how they belong together. Empty where more than the layer
  // itself says what it should be: a gate's halves, a folded norm, or a plain one, whose gain is in the weight.
  std::string pair_of(const PlanStep& step, size_t i, const Node* layer, std::vector<Bytes>& pair) const {
    if (layer == nullptr || step.op != layer->op || step.then.gated() || step.attrs.has(kJoined) ||
        step.then.find(StepKind::normalise) != nullptr || reads_plain_ != kNoValue)
      return "";
    const PlanTensor& t = tensor(step.in[i]);
    std::string key = cat(step.op, " ", layer->name, " ", i, " ", to_string(t.desc.type), to_string(t.desc.shape), " ",
                          name_of(t.desc.layout.codes), " ", name_of(t.desc.layout.scales));
    for (const char* attr : {kPaddedRows, kPaddedCols, kMergedGroups}) key += to_string(Shape(step.attrs.list(attr)));
    for (const Program* program : {&step.then, &layer->then}) {
      key += " |";
      for (const Step& s : program->steps) key += " " + text_of(s);
    }
    const auto add = [&](const Bytes& bytes) {
      key += cat(" ", reinterpret_cast<uintptr_t>(bytes.data()), ":", bytes.size());
      pair.push_back(bytes);
    };
    for (const int part : {step.in[i], t.scale, t.scale2}) {
      if (!is_constant(part)) continue;
      key += cat(" +", tensor(part).offset_bytes);
      add(constants_[static_cast<size_t>(tensor(part).index)].data);
    }
    const Graph& g = model_.graph();
    for (const ValueId id : layer->inputs) {
      if (id == kNoValue) continue;
      const Place p = model_.place(id);
      const Value& base = g.at(p.base);
      if (!base.constant) continue;
      key += cat(" ", to_string(g.at(id).type.quant), to_string(g.at(id).type.shape), to_string(p.region.strides), "+",
                 p.region.offset);
      add(base.data);
      for (const ValueId scale : {base.scale, base.scale2}) {
        if (scale != kNoValue) add(g.at(scale).data);
      }
    }
    return key;
  }

  std::vector<double> exact_constant(const PlanStep& step, size_t i, const Node* layer, const std::string& name) {
    const TensorView stored = view(step.in[i]);
    const std::vector<std::string> names = layers_of(step);
    const auto among = [&](const std::set<std::string>& layers) {
      return std::any_of(names.begin(), names.end(), [&](const std::string& n) { return layers.contains(n); });
    };
    const bool divided = among(options_.divided_layers),
               refined = divided || (i == 1 && step.op == "matmul" && among(options_.refined_weights));
    std::vector<Counterpart> known =
        layer == nullptr ? std::vector<Counterpart>()
                         : counterparts(model_, step, i, *layer, reads_plain_ != kNoValue, stored.desc->shape);
    if (known.empty()) {
      if (divided) return std::vector<double>(static_cast<size_t>(elements(stored.desc->shape)), 1.0);
      if (std::vector<double> zeros = padding_of(step, stored); !zeros.empty()) return zeros;
      if (std::vector<double> scale = scale_of_scores(step, i, stored); !scale.empty()) return scale;
      fault(name, cat("it reads the constant '", tensor(step.in[i]).name, "', and the model has none there"));
      return decode(stored).v;
    }
    std::string first;
    for (Counterpart& c : known) {
      const std::string text = refined ? "" : misfit(stored, c);
      if (text.empty()) return std::move(c.numbers);
      if (first.empty()) first = text;
    }
    fault(name, first);
    return std::move(known[0].numbers);
  }

  // The zeros that a step puts behind rows (lower/pad_layer.h), exact in any type: what becomes of them is computed.
  static std::vector<double> padding_of(const PlanStep& step, const TensorView& stored) {
    if (step.op != "concat") return {};
    std::vector<double> numbers = decode(stored).v;
    return are_zeros(numbers) ? numbers : std::vector<double>();
  }
  // The scale of an attention that was spelt out (lower/spell_attention.h), as the model has it.
  std::vector<double> scale_of_scores(const PlanStep& step, size_t i, const TensorView& stored) const {
    static constexpr std::string_view kScores = ".scores";
    const Step* scale = step.then.find(StepKind::scale);
    if (scale == nullptr || scale->operand != static_cast<int>(i) || !step.layer.ends_with(kScores)) return {};
    const Node* attention = model_.layer(step.layer.substr(0, step.layer.size() - kScores.size()));
    if (attention == nullptr || attention->op != "attention") return {};
    const double wanted = attention->attrs.number("scale", 1.0);
    std::vector<double> numbers = decode(stored).v;
    for (double& x : numbers) {
      if (x != static_cast<float>(wanted)) return {};
      x = wanted;
    }
    return numbers;
  }
  static bool are_zeros(const std::vector<double>& numbers) {
    return std::all_of(numbers.begin(), numbers.end(), [](double x) { return x == 0; });
  }

  void visit(const PlanStep& step) {
    ++out_->steps;
    Reads reads(step.in.size());
    bool guessed = false, whole = true;
    const ValueId y = value_of(step.out[0], guessed);
    for (size_t i = 0; i < step.in.size(); ++i) {
      if (step.in[i] < 0 || is_constant(step.in[i])) continue;
      reads[i] = memory_.read(step.in[i]);
      if (reads[i]) continue;
      whole = false;
      fault(step.layer, cat("it reads '", tensor(step.in[i]).name, "' where no layer before it has written all of it"));
    }
    reads_ = &reads;
    if (step.op == "gather" && step.attrs.has(kTables)) return visit_tables(step, reads, whole);
    if (step.attrs.has(kJoined) || step.then.find(StepKind::rotary) != nullptr || step.attrs.has(kKeptResults))
      return visit_joined(step, reads, whole);
    const Node *layer = layer_of(step, y, guessed, reads), *maker = model_.maker(y);
    reads_plain_ = !reads.empty() && reads[0] ? reads[0]->held->plain : kNoValue;
    makes_plain_ = plain_made(step, y, layer);
    const std::string name = label(step, y, reads);
    if (hand_on_row(step, reads)) return;
    whole = whole && pick_rows(step, layer, name, reads);
    // What a padded layer reads may be a padded one's result: its constants are its own nevertheless.
    const bool padded = step.attrs.has(kPaddedRows) || step.attrs.has(kPaddedCols) || step.attrs.has(kMergedGroups);
    std::vector<Dense> in = exact_constants(step, layer, padded ? step.layer : name);
    const std::string number = layer == nullptr ? std::string() : different_number(model_, step, *layer);
    if (!number.empty()) fault(name, number);
    if (!whole || !number.empty()) return settle(step, y);
    const std::string unlike =
        maker == nullptr ? "it is no layer of the model" : difference(model_, plan_, step, *maker, reads);
    if (maker != nullptr && unlike.empty()) return settle(step, y);
    if (step.op == "copy" && hand_on(step, y, guessed, reads)) return;
    compute(step, y, guessed, layer, unlike, name, reads, std::move(in));
  }

  // What the columns of one of several layers are: its result, or that turned where the step does so.
  ValueId columns_value(const PlanStep& step, const Node& layer, int64_t first, int64_t count) {
    const Step* rotary = step.then.find(StepKind::rotary);
    if (rotary == nullptr) return layer.outputs[0];
    const int64_t turned = static_cast<int64_t>(rotary->numbers[1]);
    if (first >= turned) return layer.outputs[0];
    const Node* own = rotary_behind(model_, layer);
    if (own == nullptr || first + count > turned) {
      fault(layer.name, "its result is turned, the model has no rotary there");
      return layer.outputs[0];
    }
    return own->outputs[0];
  }

  // Several tables: readers say what they read of them.
  void visit_tables(const PlanStep& step, const Reads& reads, bool whole) {
    if (!whole || !is_constant(step.in[0]) || !reads[1] || !reads[1]->place)
      return fault(step.layer, "it picks rows of tables that are no constants, or by no value of the model");
    memory_.write(step.out[0], {.row = HeldRow{step.in[0], 0, *reads[1]->place}});
  }

  // A copy in another type.
  bool hand_on_row(const PlanStep& step, const Reads& reads) {
    if (step.op != "copy" || !reads[0] || !reads[0]->held->row || !is_row(reads[0]->region)) return false;
    HeldRow row = *reads[0]->held->row;
    row.first += reads[0]->region.offset;
    memory_.write(step.out[0], {.row = row});
    return true;
  }
  static bool is_row(const Region& r) { return is_dense(r.shape, r.strides); }

  // Columns of tables that the step reads: each must be what the model has in their place, in all rows. False where one
  // is not.
  bool pick_rows(const PlanStep& step, const Node* layer, const std::string& name, Reads& reads) {
    bool all = true;
    for (size_t i = 0; i < reads.size(); ++i) {
      if (!reads[i] || !reads[i]->held->row) continue;
      const std::string wrong = pick_row(step, i, layer, *reads[i]);
      if (!wrong.empty()) fault(name, wrong);
      all = all && wrong.empty();
    }
    return all;
  }

  // What is wrong with it; empty: nothing, and the read is of the model's numbers.
  std::string pick_row(const PlanStep& step, size_t i, const Node* layer, ReadPlace& read) {
    const HeldRow row = *read.held->row;
    ++out_->constants;
    std::string first = cat("it reads columns of the tables '", tensor(row.table).name, "', and the model none there");
    if (layer == nullptr || !is_row(read.region)) return first;
    const auto known = table_columns(model_, step, i, *layer);
    if (!known.ok()) return known.status().message();
    for (const TableColumns& t : *known) {
      const bool same_row = t.ids.base == row.ids.base && same_elements(t.ids.region, row.ids.region);
      std::string text = same_row ? wrong_columns(row, read.region, t)
                                  : cat("its ", t.columns.what, " is picked by another index than in the model");
      if (!text.empty()) {
        if (&t == known->data()) first = std::move(text);
        continue;
      }
      const Shape shape = read.region.shape;
      if (t.place) {
        read.place = Place{t.place->base, {shape, dense_strides(shape), t.place->region.offset}};
      } else {
        picked_.push_back({.numbers = {shape, t.picked}});
        read = {&picked_.back(), dense_region(shape), {}};
      }
      return "";
    }
    return first;
  }

  std::string wrong_columns(const HeldRow& row, const Region& region, const TableColumns& t) const {
    TensorView columns = view(row.table);
    const Shape& table = columns.desc->shape;
    const int64_t count = elements(region.shape), at = row.first + region.offset;
    if (count != t.columns.shape[0] || table.size() != 2 || table[0] != t.columns.shape[1] || at + count > table[1])
      return cat("its ", t.columns.what, " is ", count, " columns, the model's ", t.columns.shape[0]);
    Operand desc = *columns.desc;
    desc.shape = {count, table[0]};
    desc.strides = {1, table[1]};
    columns.desc = &desc;
    columns.data = static_cast<uint8_t*>(columns.data) + packed_bytes(desc.type.element, at);
    return misfit(columns, t.columns);
  }

  // Several layers side by side: each must be what its columns are. One layer alone: what follows it is in it.
  void visit_joined(const PlanStep& step, Reads& reads, bool whole) {
    const std::vector<std::string> names = layers_of(step);
    const Shape& shape = tensor(step.out[0]).desc.shape;
    std::vector<int64_t> widths = step.attrs.list(kJoined);
    if (!step.attrs.has(kJoined)) widths = {shape.empty() ? 1 : shape.back()};
    std::vector<const Node*> layers;
    Held made;
    int64_t cols = 0;
    for (size_t i = 0; i < names.size() && i < widths.size(); ++i) {
      const Node* layer = model_.layer(names[i]);
      const ValueId y = layer == nullptr || layer->op != step.op ? kNoValue : layer->outputs[0];
      if (y == kNoValue) return fault(step.layer, cat("it has columns of ", names[i], ", which is no such layer"));
      layers.push_back(layer);
      made.columns.push_back({cols, widths[i], columns_value(step, *layer, cols, widths[i])});
      cols += widths[i];
    }
    const int64_t rows = cols == 0 ? 0 : elements(shape) / cols;
    for (const HeldColumns& c : made.columns) {
      if (elements(shape) == rows * cols && elements(model_.graph().at(c.value).type.shape) == rows * c.count) continue;
      return fault(step.layer, cat("its result is ", to_string(shape), ", which ", names.size(), " layers of ",
                                   to_string(widths), " columns are not"));
    }
    reads_plain_ = !reads.empty() && reads[0] ? reads[0]->held->plain : kNoValue;
    makes_plain_ = kNoValue;
    std::vector<Dense> in = exact_constants(step, layers[0], step.layer);
    whole = whole && pick_rows(step, layers[0], step.layer, reads);
    std::string unlike;
    for (size_t i = 0; i < layers.size(); ++i) {
      const std::string number = different_number(model_, step, *layers[i]);
      if (!number.empty()) fault(layers[i]->name, number), whole = false;
      const std::string text = difference(model_, plan_, step, *layers[i], reads_of(step, reads, made.columns[i]));
      if (unlike.empty()) unlike = text;
    }
    if (whole && !unlike.empty()) compute_joined(step, reads, made.columns, layers, unlike, std::move(in));
    for (const HeldColumns& c : made.columns) {
      model_.hold(c.value);
      check_scale(step, step.out[0], c.value);
    }
    memory_.write(step.out[0], std::move(made));
    settle_kept(step);
  }

  // The values of the model that writes of a step's columns make.
  ValueId kept_value(const PlanStep& step, size_t result) const {
    bool guessed = false;
    const ValueId y = value_of(step.out[result], guessed);
    return guessed ? kNoValue : y;
  }
  void settle_kept(const PlanStep& step) {
    const size_t first = static_cast<size_t>(ExtraResults::of(step.attrs).kept);
    for (size_t r = first; first > 0 && r < step.out.size(); ++r) {
      const ValueId y = kept_value(step, r);
      if (y == kNoValue) {
        fault(step.layer, cat("it keeps columns in '", tensor(step.out[r]).name, "', which is no value of the model"));
        continue;
      }
      model_.hold(y);
      check_scale(step, step.out[r], y);
      memory_.write(step.out[r], {.place = Place{y, dense_region(tensor(step.out[r]).desc.shape)}});
    }
  }

  // Numbers that say where rows go are drawn as 0 or 1, which may be what a missing one counts as: what is read is
  // compared.
  bool same_first_row(ValueId y, const KeptColumns& kept, const Reads& reads) const {
    const Node* write = model_.maker(y);
    if (write == nullptr || write->op != "write") return false;
    const bool there = write->inputs.size() > 2 && write->inputs[2] != kNoValue;
    if (!there || kept.at < 0) return there == (kept.at >= 0);
    const auto& read = reads[static_cast<size_t>(kept.at)];
    const Place want = model_.place(write->inputs[2]);
    return read && read->place && read->place->base == want.base && same_elements(read->place->region, want.region);
  }

  // `got`: the columns, computed.
  void compute_kept(const PlanStep& step, const Reads& reads, const Dense& got) {
    Problem p = problem_of(plan_, step);
    for (std::vector<Operand>* list : {&p.in, &p.out}) {
      for (Operand& o : *list) o.shape = o.constant ? o.shape : model_.cut().of(o.shape);
    }
    const std::vector<KeptColumns> all = kept_columns(p.attrs);
    for (size_t i = 0; i < all.size(); ++i) {
      const ValueId y = kept_value(step, static_cast<size_t>(ExtraResults::of(p.attrs).kept) + i);
      if (y == kNoValue) continue;
      if (!same_first_row(y, all[i], reads))
        fault(step.layer, cat("the row that it keeps '", model_.graph().at(y).name, "' from is not the model's"));
      std::vector<Dense> in(p.in.size());
      for (const int operand : {all[i].before, all[i].at}) {
        const auto at = static_cast<size_t>(operand);
        if (operand < 0 || !reads[at]) continue;
        auto read = numbers(*reads[at]);
        if (!read.ok()) return fault(step.layer, read.status().message());
        in[at] = std::move(read).value();
      }
      const auto want = model_.numbers(y);
      if (!want.ok()) return fault(step.layer, want.status().message());
      const double off = distance(kept_result(p, all[i], in, got), **want);
      if (!(off <= kSame))
        fault(step.layer, cat("what it keeps in '", model_.graph().at(y).name, "' is not that of the model: relative ",
                              "distance ", brief(off), " in f64"));
    }
  }

  // What one of the layers reads: of a rotary's heads its own.
  static Reads reads_of(const PlanStep& step, const Reads& reads, const HeldColumns& own) {
    Reads some = reads;
    if (step.op != "rotary" || !reads[0] || reads[0]->region.shape.size() != 4) return some;
    const int64_t size = std::max<int64_t>(1, reads[0]->region.shape[3]);
    const int64_t first = own.first / size, count = own.count / size;
    if (first + count > reads[0]->region.shape[2]) return some;
    some[0] = part_of(*reads[0]->held, sliced(reads[0]->region, 2, first, 1, count));
    return some;
  }

  void compute_joined(const PlanStep& step, const Reads& reads, const std::vector<HeldColumns>& columns,
                      const std::vector<const Node*>& layers, const std::string& unlike, std::vector<Dense> in) {
    ++out_->computed;
    fill_constants(step, layers[0], step.layer, in);
    Dense got;
    const auto computed = distance_to(step, kNoValue, reads, std::move(in), got);
    if (!computed.ok()) {
      stuck_ = true;
      if (model_.cut().batch <= model_.cut().samples)
        fault(step.layer, cat(unlike, " (", computed.status().message(), ")"));
      return;
    }
    compute_kept(step, reads, got);
    const int64_t cols = columns.back().first + columns.back().count;
    for (size_t i = 0; i < columns.size(); ++i) {
      const HeldColumns& c = columns[i];
      const auto want = model_.numbers(c.value);
      if (!want.ok()) return fault(layers[i]->name, want.status().message());
      Dense own{(*want)->shape, {}};
      for (size_t row = 0; row + static_cast<size_t>(cols) <= got.v.size(); row += static_cast<size_t>(cols)) {
        const auto from = got.v.begin() + static_cast<std::ptrdiff_t>(row) + c.first;
        own.v.insert(own.v.end(), from, from + c.count);
      }
      const double off = own.v.size() == (*want)->v.size() ? distance(own, **want) : INFINITY;
      if (!(off <= kSame)) fault(layers[i]->name, cat(unlike, ": relative distance ", brief(off), " in f64"));
    }
  }

  // The norm of the model that the step's result is, without gain and shift; a copy of such a result is one too.
  ValueId plain_made(const PlanStep& step, ValueId y, const Node* layer) const {
    if (step.op == "copy") return reads_plain_;
    const auto absent = [&](size_t i) { return i >= step.in.size() || step.in[i] < 0; };
    const bool plain = step.op == "norm" && layer != nullptr && layer->op == "norm" && absent(1) && absent(2) &&
                       step.attrs.integer("pooled") == 0;
    return plain ? y : kNoValue;
  }

  // A copy into another type: the same elements. False where they are to be those of another value.
  bool hand_on(const PlanStep& step, ValueId y, bool guessed, const Reads& reads) {
    const bool truncates = is_whole(tensor(step.out[0]).desc.type) && !is_whole(tensor(step.in[0]).desc.type);
    if (!reads[0] || !reads[0]->place || truncates) return false;
    const bool is_y = reads[0]->place->base == y && reads[0]->place->region.whole();
    if (y != kNoValue && !guessed && !is_y) return false;
    write(step, {.place = reads[0]->place});
    return true;
  }

  Result<Dense> numbers(const ReadPlace& read) {
    if (read.place) return model_.read(*read.place);
    if (!read.held->place) return gather(read.held->numbers.v, read.region, model_.cut());
    TS_ASSIGN(const Dense all, model_.read(*read.held->place));
    return gather(all.v, read.region, model_.cut());
  }

  // By the references, types erased, beside the model's.
  Result<double> distance_to(const PlanStep& step, ValueId y, const Reads& reads, std::vector<Dense> in, Dense& got) {
    for (size_t i = 0; i < in.size(); ++i) {
      if (!reads[i]) continue;
      TS_ASSIGN(in[i], numbers(*reads[i]));
    }
    Problem problem = problem_of(plan_, step);
    for (size_t i = 0; step.op == "concat" && i < in.size(); ++i) {
      if (!is_constant(step.in[i]) || !are_zeros(in[i].v)) continue;
      problem.in[i].constant = false;  // zeros behind the rows of all samples: as many as are computed
      in[i].v.resize(static_cast<size_t>(elements(model_.cut().of(problem.in[i].shape))));
    }
    TS_ASSIGN(got, compute_erased(problem, std::move(in), model_.cut()));
    if (y == kNoValue) return INFINITY;
    TS_ASSIGN(const Dense* want, model_.numbers(y));
    return distance(got, *want);
  }

  // Those that were left out as compared already.
  void fill_constants(const PlanStep& step, const Node* layer, const std::string& name, std::vector<Dense>& in) {
    for (size_t i = 0; i < in.size(); ++i) {
      if (is_constant(step.in[i]) && in[i].v.empty())
        in[i] = {tensor(step.in[i]).desc.shape, exact_constant(step, i, layer, name)};
    }
  }

  // A step that is no layer of the model as it stands. `unlike`: how it differs from the one that makes y.
  void compute(const PlanStep& step, ValueId y, bool guessed, const Node* layer, const std::string& unlike,
               const std::string& name, const Reads& reads, std::vector<Dense> in) {
    ++out_->computed;
    fill_constants(step, layer, name, in);
    Dense got;
    const auto off = distance_to(step, y, reads, std::move(in), got);
    if (!off.ok()) {
      stuck_ = true;
      if (model_.cut().batch <= model_.cut().samples) fault(name, cat(unlike, " (", off.status().message(), ")"));
      return settle(step, y);
    }
    if (*off <= kSame) return settle(step, y);
    const Held* before = partial(reads);
    Held made{.numbers = std::move(got),
              .layer = layer,
              .maker = before != nullptr ? before->maker : step.layer,
              .done = done(step, reads)};
    if (before != nullptr) made.differs = before->differs;
    if (made.differs.empty() && step.op != "copy") made.differs = unlike;
    if (y == kNoValue || guessed) return write(step, std::move(made));
    fault(name, cat(cause(step, y, made), ": relative distance ", brief(*off), " in f64"));
    settle(step, y);
  }

  // In words, where the step is as a whole what the layer is.
  std::string cause(const PlanStep& step, ValueId y, const Held& made) const {
    const Node* maker = model_.maker(y);
    const std::string other = "it computes something else than the model";
    if (maker == nullptr || step.then.gated() || step.then.find(StepKind::normalise) != nullptr) return other;
    const std::string here = made.done, there = words_of(maker->op, maker->attrs, maker->then);
    if (made.done != there && (maker->op == step.op || made.maker != step.layer))
      return cat("it computes ", here, " where the model has ", there);
    return made.differs.empty() || maker->op != step.op ? other : made.differs;
  }

  // From here on the step's result is the model's value, whatever was said of it.
  void settle(const PlanStep& step, ValueId y) {
    if (y == kNoValue) return write(step, {.maker = step.layer});
    model_.hold(y);
    write(step, {.place = Place{y, dense_region(tensor(step.out[0]).desc.shape)}});
  }

  // The first result, and those beside it, which are made of it.
  void write(const PlanStep& step, Held held) {
    held.plain = makes_plain_;
    const ExtraResults extra = ExtraResults::of(step.attrs);
    std::vector<Held> others;
    for (size_t o = 1; o < step.out.size(); ++o) {
      const bool same = static_cast<int>(o) == extra.codes && extra.gain == 0;
      others.push_back(same ? held : Held{.numbers = extra_result_of(step, o, held)});
    }
    if (makes_plain_ != kNoValue) {
      check_scale(step, step.out[0], makes_plain_);
    } else if (held.place) {
      check_scale(step, step.out[0], held.place->base);
    } else if (const ValueId y = padded_value(step.out[0]); y != kNoValue) {
      check_scale(step, step.out[0], y);
    }
    for (size_t o = 1; o < step.out.size(); ++o) {
      if (others[o - 1].place) check_scale(step, step.out[o], held.place->base);
      if (static_cast<int>(o) == extra.codes && extra.gain > 0) check_gained_scale(step, step.out[o], held);
      memory_.write(step.out[o], std::move(others[o - 1]));
    }
    memory_.write(step.out[0], std::move(held));
  }

  Dense extra_result_of(const PlanStep& step, size_t result, const Held& held) {
    const OpInfo* op = find_op(step.op);
    Dense first = held.numbers;
    if (held.place) {
      auto read = model_.read(*held.place);
      if (read.ok()) first = std::move(read).value();
    }
    Problem p = problem_of(plan_, step);
    for (Operand& o : p.out) o.shape = model_.cut().of(o.shape);
    if (op == nullptr || op->extra_result == nullptr || first.v.empty()) return {};
    std::vector<Dense> in(step.in.size());
    if (const auto gain = static_cast<size_t>(ExtraResults::of(step.attrs).gain); gain > 0 && (*reads_)[gain]) {
      auto read = numbers(*(*reads_)[gain]);
      if (!read.ok() || read->v.empty()) return {};
      in[gain] = std::move(read).value();
    } else if (gain > 0) {
      in[gain] = decode(view(step.in[gain]));
    }
    return op->extra_result(p, result, in, made_of(p, result, in, first));
  }

  // The value of the model that a tensor holds with zeros between its numbers, which need no scale: "y.padded",
  // "y.codes.padded".
  ValueId padded_value(int t) const {
    std::string name = tensor(t).name;
    const auto drop = [&](std::string_view suffix) {
      if (!name.ends_with(suffix)) return false;
      name.resize(name.size() - suffix.size());
      return true;
    };
    if (!drop(".padded")) return kNoValue;
    if (const ValueId y = model_.find(name); y != kNoValue) return y;
    return drop(".codes") ? model_.find(name) : kNoValue;
  }

  // The scale of a tensor's codes that is known before it runs.
  std::optional<float> static_scale(int t) const {
    const QuantType& type = tensor(t).desc.type;
    const int scale = type.dynamic ? tensor(t).scale2 : tensor(t).scale;
    if (!type.scaled() || !is_constant(scale)) return std::nullopt;
    float stored = 0;
    info(tensor(scale).desc.type.element).decode(view(scale).data, 0, 1, &stored);
    return stored;
  }

  void check_scale(const PlanStep& step, int t, ValueId value) {
    const auto stored = static_scale(t);
    if (!stored) return;
    const QuantType& type = tensor(t).desc.type;
    const bool plain = value == makes_plain_;
    const std::string name = plain ? plain_value(model_.graph().at(value).name) : "";
    std::string text = scales_.misfit(value, name, type, *stored);
    // A norm that is plain in the model has two names for one range.
    if (!text.empty() && plain && is_plain(*model_.maker(value))) text = scales_.misfit(value, "", type, *stored);
    if (!text.empty()) fault(step.layer, text);
  }

  // Of codes of a value of the model times the gain of a norm over it.
  void check_gained_scale(const PlanStep& step, int t, const Held& held) {
    const auto stored = static_scale(t);
    const auto& gain = (*reads_)[static_cast<size_t>(ExtraResults::of(step.attrs).gain)];
    if (!stored || !held.place || !gain || !gain->place) return;
    const Node* norm = norm_with_gain(model_, held.place->base, *gain->place);
    if (norm == nullptr) return;
    const ValueId y = norm->outputs[0];
    const std::string text = scales_.misfit(y, gained_value(model_.graph().at(y).name), tensor(t).desc.type, *stored);
    if (!text.empty()) fault(step.layer, text);
  }

  void check_output(size_t i) {
    const Graph& g = model_.graph();
    const auto read = memory_.read(plan_.outputs[i].tensor);
    const Place want = model_.place(g.outputs[i]);
    const auto same_numbers = [&](const Region& region) {
      if (elements(region.shape) != elements(want.region.shape)) return false;
      const auto as_wanted = reshaped(region, want.region.shape);
      return as_wanted && same_elements(*as_wanted, want.region);
    };
    const bool same = read && read->place && read->place->base == want.base && same_numbers(read->place->region);
    if (!same) out_->faults.push_back(cat("output '", plan_.outputs[i].name, "' is not that of the model"));
  }

  const std::span<const EngineConstant> constants_;
  const Plan& plan_;
  ModelValues model_;
  const ValidateOptions& options_;
  const ActivationScales scales_;
  PlanMemory memory_;
  Validation* out_ = nullptr;
  const Reads* reads_ = nullptr;                             // of the step that is visited
  std::deque<Held> picked_;                                  // rows of tables that are no value of the model
  ValueId reads_plain_ = kNoValue, makes_plain_ = kNoValue;  // of the step that is visited
  bool stuck_ = false;
};

double flops_of(const Plan& plan) {
  double flops = 0;
  for (const PlanStep& s : plan.steps) {
    if (const OpInfo* op = find_op(s.op); op != nullptr && op->flops != nullptr)
      flops += op->flops(problem_of(plan, s));
  }
  return flops;
}

}  // namespace

std::string Validation::sentence(const Plan& plan) const {
  return cat("plan ", plan.name, ": ", constants, " constants and ", steps, " steps are the model's",
             followed ? cat(", ", computed, " of them shown by computing")
                      : "; too large to compute those that differ in form");
}

ValidateOptions refined_of(const Engine& engine) {
  return {.refined_weights = {engine.refined_weights.begin(), engine.refined_weights.end()},
          .divided_layers = {engine.divided_layers.begin(), engine.divided_layers.end()}};
}

Validation validate_plan(std::span<const EngineConstant> constants, const Plan& plan, const Graph& model,
                         const ValidateOptions& options) {
  Validation few;
  if (Walk(constants, plan, model, options, kSamples).run(few) || plan.batch <= kSamples) return few;
  if (flops_of(plan) > kMostFlops) {
    few.followed = false;
    return few;
  }
  Validation whole;
  Walk(constants, plan, model, options, plan.batch).run(whole);
  return whole;
}

Status check_plan(std::span<const EngineConstant> constants, const Plan& plan, const Graph& model,
                  const ValidateOptions& options, std::vector<std::string>* said) {
  const Validation v = validate_plan(constants, plan, model, options);
  if (said != nullptr) said->push_back(v.sentence(plan));
  if (v.faults.empty()) return {};
  std::string text = cat("plan ", plan.name, " is not the model: ");
  for (size_t i = 0; i < v.faults.size() && i < kMostSentences; ++i) text += cat(i == 0 ? "" : "; ", v.faults[i]);
  if (v.faults.size() > kMostSentences) text += cat("; ", v.faults.size() - kMostSentences, " more");
  return machine_error(cat(text, "; this is a fault of tessera, not of the precision"));
}

}  // namespace tessera
