// SPDX-License-Identifier: Apache-2.0
#include "rewrite/concat_before_matmul.h"

#include <algorithm>

#include "ops/builder.h"
#include "rewrite/edit/match.h"

namespace tessera {
namespace {

// concat(..., layer(copy(source)), ...) + positions, where all but the layer's rows is constant.
struct Tokens {
  const Node *concat, *layer, *copy;
  size_t varying;                // which operand of the concat is the layer's
  ValueId positions = kNoValue;  // added to all rows; kNoValue: nothing is
  ValueId result;                // of the sum, or of the concat
  size_t end;                    // the node that makes it
  int64_t images, rows, cols;    // result: [images..., rows, cols]
};

class Lifter {
 public:
  explicit Lifter(Graph& graph) : g_(graph), m_(graph), uses_(graph.use_counts()) {}

  Result<bool> lift_one() {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (g_.nodes[n].op != "concat") continue;
      const auto tokens = match(n);
      if (!tokens) continue;
      TS_TRY(rewrite(*tokens));
      return true;
    }
    return false;
  }

 private:
  const Shape& shape(ValueId v) const { return g_.at(v).type.shape; }
  bool read_once(ValueId v) const { return uses_[static_cast<size_t>(v)] == 1; }

  // The plain op that makes v, where v is all of its result and has no other reader.
  const Node* alone_behind(ValueId v, std::string_view op) const {
    const Place p = m_.place(v);
    const Node* maker = m_.maker(p.base);
    // A view that shows all of it in another grouping is as good.
    const bool alone =
        read_once(v) && read_once(p.base) && p.region.whole() && elements(p.region.shape) == elements(shape(p.base));
    return alone && maker != nullptr && maker->op == op ? maker : nullptr;
  }

  std::optional<Tokens> match(size_t at) const {
    const Node& concat = g_.nodes[at];
    const Type& type = g_.at(concat.outputs[0]).type;
    const auto rank = static_cast<int64_t>(type.shape.size());
    const int64_t axis = concat.attrs.integer("axis");
    if (rank < 2 || (axis != rank - 2 && axis != -2) || concat.attrs.has("block") || elements(type.shape) == 0)
      return std::nullopt;
    Tokens t{.concat = &concat,
             .layer = nullptr,
             .copy = nullptr,
             .varying = concat.inputs.size(),
             .result = concat.outputs[0],
             .end = at};
    t.rows = type.shape[static_cast<size_t>(rank - 2)], t.cols = type.shape.back();
    t.images = elements(type.shape) / (t.rows * t.cols);
    for (size_t i = 0; i < concat.inputs.size(); ++i) {
      const ValueId piece = concat.inputs[i];
      if (g_.at(piece).type.quant != type.quant) return std::nullopt;
      const bool constant = is_constant(piece);
      if (constant ? !learnt_rows(piece, t.images) : t.varying != concat.inputs.size()) return std::nullopt;
      if (!constant) t.varying = i;
    }
    if (t.varying == concat.inputs.size() || concat.inputs.size() < 2) return std::nullopt;
    if (!match_layer(t) || type.quant.scaled()) return std::nullopt;
    match_positions(t);
    return t;
  }

  bool match_layer(Tokens& t) const {
    t.layer = alone_behind(t.concat->inputs[t.varying], "matmul");
    if (t.layer == nullptr || !t.layer->then.within({StepKind::bias, StepKind::residual})) return false;
    const ValueId y = t.concat->inputs[t.varying], w = t.layer->inputs[1];
    if (!g_.at(w).constant || shape(w).size() != 2 || shape(w)[0] != t.cols) return false;
    for (const Step& step : t.layer->then.steps) {
      const ValueId v = t.layer->inputs[static_cast<size_t>(step.operand)];
      const int64_t n = elements(shape(v)), whole = elements(shape(y)) / t.images;
      if (!g_.at(v).constant || g_.at(v).type.quant.scaled() || (n != t.cols && n != whole)) return false;
    }
    t.copy = alone_behind(t.layer->inputs[0], "copy");
    if (t.copy == nullptr) return false;
    const Type &from = g_.at(t.copy->inputs[0]).type, &to = g_.at(t.copy->outputs[0]).type;
    if (from.quant != to.quant || from.quant.scaled()) return false;
    int64_t images = 1;
    for (size_t i = 0; i < from.shape.size() && images < t.images; ++i) images *= from.shape[i];
    return images == t.images;
  }

  void match_positions(Tokens& t) const {
    const std::vector<size_t> readers = m_.readers(t.result);
    if (readers.size() != 1 || !read_once(t.result)) return;
    const Node& add = g_.nodes[readers[0]];
    if (add.op != "map" || add.attrs.word("fn") != "add" || g_.at(add.outputs[0]).type != g_.at(t.result).type) return;
    const ValueId other = add.inputs[add.inputs[0] == t.result ? 1 : 0];
    const Value& p = g_.at(other);
    const bool rows = p.type.shape.size() >= 2 && p.type.shape[p.type.shape.size() - 2] == t.rows &&
                      elements(p.type.shape) == t.rows * t.cols;
    if (!p.constant || p.type.quant.scaled() || !rows) return;
    t.positions = other;
    t.result = add.outputs[0];
    t.end = readers[0];
  }

  bool is_constant(ValueId v) const { return g_.at(m_.place(v).base).constant; }

  // The rows of a constant, or of a view of one, for one image; nothing where images have different ones.
  std::optional<std::vector<double>> learnt_rows(ValueId v, int64_t images) const {
    const Place p = m_.place(v);
    const std::vector<double> stored = g_.numbers(p.base);
    const int64_t all = elements(p.region.shape);
    std::vector<double> rows(static_cast<size_t>(all / images));
    for (int64_t i = 0; i < all; ++i) {
      int64_t at = p.region.offset, rest = i;
      for (size_t a = p.region.shape.size(); a-- > 0; rest /= p.region.shape[a])
        at += rest % p.region.shape[a] * p.region.strides[a];
      const double number = stored[static_cast<size_t>(at)];
      double& row = rows[static_cast<size_t>(i) % rows.size()];
      if (i < static_cast<int64_t>(rows.size())) {
        row = number;
      } else if (row != number) {
        return std::nullopt;
      }
    }
    return rows;
  }

  // What is added to each row: the learnt rows or the layer's own vectors, and the positions.
  std::vector<double> learnt(const Tokens& t) const {
    std::vector<double> sum(static_cast<size_t>(t.rows * t.cols), 0.0);
    const auto add = [&](const std::vector<double>& numbers, int64_t first,
                         int64_t count) {  // one row for all of them, or one for each
      for (size_t i = 0; i < static_cast<size_t>(count * t.cols); ++i)
        sum[static_cast<size_t>(first * t.cols) + i] += numbers[i % numbers.size()];
    };
    int64_t first = 0;
    for (size_t i = 0; i < t.concat->inputs.size(); ++i) {
      const ValueId piece = t.concat->inputs[i];
      const int64_t count = elements(shape(piece)) / (t.images * t.cols);
      if (i != t.varying) {
        add(*learnt_rows(piece, t.images), first, count);
      } else {
        for (const Step& step : t.layer->then.steps)
          add(g_.numbers(t.layer->inputs[static_cast<size_t>(step.operand)]), first, count);
      }
      first += count;
    }
    if (t.positions != kNoValue) add(g_.numbers(t.positions), 0, t.rows);
    return sum;
  }

  ValueId constant(const std::string& name, const Type& type, const std::vector<double>& numbers) {
    const ElementInfo& element = info(type.quant.element);
    Buffer bytes(static_cast<size_t>(packed_bytes(type.quant.element, elements(type.shape))));
    element.encode_f64(numbers.data(), static_cast<int64_t>(numbers.size()), bytes.data(), 0);
    return g_.add_constant(name, type, Bytes::own(std::move(bytes)));
  }

  Status rewrite(const Tokens& t) {
    const Type made = g_.at(t.result).type, x = g_.at(t.copy->inputs[0]).type;
    const int64_t k = shape(t.layer->inputs[1])[1];
    const Node layer = *t.layer, concat = *t.concat, copy = *t.copy;
    const std::vector<double> rows = learnt(t);
    const std::string name = t.positions == kNoValue ? layer.name + ".tokens" : g_.at(t.positions).name;
    // Zeros in the place of every learnt row, the patches in theirs.
    Node joined{.name = copy.name,
                .op = "concat",
                .inputs = {},
                .outputs = {},
                .attrs = {{"axis", static_cast<int64_t>(made.shape.size()) - 2}}};
    joined.attrs.set("block", Shape{t.rows, k});
    for (size_t i = 0; i < concat.inputs.size(); ++i) {
      if (i == t.varying) {
        joined.inputs.push_back(copy.inputs[0]);
        continue;
      }
      Shape zeros = shape(concat.inputs[i]);
      zeros.back() = k;
      const std::vector<double> none(static_cast<size_t>(elements(zeros)), 0.0);
      joined.inputs.push_back(constant(name + ".zeros", {zeros, x.quant}, none));
    }
    const ValueId residual = constant(name, {{t.rows, t.cols}, made.quant}, rows);
    GraphBuilder builder(g_, t.end);
    TS_ASSIGN(const ValueId tokens, builder.emit(std::move(joined)));
    Node& old = g_.nodes[builder.position()];
    old = {.name = layer.name,
           .op = "matmul",
           .inputs = {tokens, layer.inputs[1], residual},
           .outputs = {t.result},
           .attrs = layer.attrs,
           .then = {{{.kind = StepKind::residual, .operand = 2}}},
           .role = layer.role,
           .asked = layer.asked};
    return {};
  }

  Graph& g_;
  const Matcher m_;
  const std::vector<int> uses_;
};

}  // namespace

Status concat_before_matmul(Graph& graph) {
  for (;;) {
    TS_ASSIGN(const bool lifted, Lifter(graph).lift_one());
    if (!lifted) return {};
  }
}

}  // namespace tessera
