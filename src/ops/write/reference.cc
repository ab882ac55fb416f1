// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "op/whole_numbers.h"
#include "ops/write/write.h"

#define TS_OP_FOLDER write
#include "ops/list_variants.inc"

namespace tessera {

WriteProblem WriteProblem::of(const Problem& p) {
  const Operand &x = p.in[0], &fresh = p.in[1];
  WriteProblem w;
  w.shape = x.shape;
  w.axis = static_cast<size_t>(p.attrs.integer("axis"));
  w.rows = fresh.shape[w.axis], w.most = x.shape[w.axis] - w.rows;
  w.new_in_y = dense_strides(x.shape), w.row_elements = w.new_in_y[w.axis];
  w.at = p.attrs.integer("at");
  if (const Operand* at = p.operand(2)) {
    w.has_at = true;
    w.at_stride = elements(at->shape) > 1 ? 1 : 0;
  }
  w.new_shape = fresh.shape, w.new_strides = fresh.strides;
  w.x = x.type, w.fresh = fresh.type, w.y = p.out[0].type;
  return w;
}

namespace {

Result<std::vector<Type>> infer(const Problem& p) {
  const Operand *x = p.operand(0), *fresh = p.operand(1), *at = p.operand(2);
  if (x == nullptr || fresh == nullptr) return bad_input("write: wants x and new");
  const std::string shapes = cat("write: x", to_string(x->shape), " new", to_string(fresh->shape), ": ");
  const int64_t axis = p.attrs.integer("axis");
  if (axis < 0 || axis >= static_cast<int64_t>(x->shape.size())) return bad_input(cat(shapes, "x has no axis ", axis));
  const auto along = static_cast<size_t>(axis);
  bool fits = fresh->shape.size() == x->shape.size();
  for (size_t i = 0; fits && i < x->shape.size(); ++i)
    fits = i == along ? fresh->shape[i] <= x->shape[i] : fresh->shape[i] == x->shape[i];
  if (!fits) return bad_input(cat(shapes, "new must be as x but for axis ", axis, ", and no longer there"));
  if (at != nullptr) {
    if (at->type != QuantType(Element::i32))
      return bad_input(cat(shapes, "at is ", to_string(at->type), ", wanted i32"));
    const bool one = at->shape == Shape{1}, each = axis > 0 && at->shape == Shape{x->shape[0]};
    if (!one && !each)
      return bad_input(cat(shapes, "at", to_string(at->shape), ", wanted [1]",
                           axis > 0 ? cat(" or [", x->shape[0], "], a number for each batch item") : std::string()));
    if (p.attrs.has("at")) return bad_input(cat(shapes, "has an operand at and an attribute at; one says where"));
  } else if (const int64_t first = p.attrs.integer("at"); first < 0 || first > x->shape[along] - fresh->shape[along]) {
    return bad_input(cat(shapes, "at = ", first, ", wanted 0 to ", x->shape[along] - fresh->shape[along]));
  }
  return std::vector<Type>{{.shape = x->shape, .quant = result_element(*x)}};
}

void reference(const Problem& p, std::span<const Dense> in, std::span<Dense> out) {
  const WriteProblem w = WriteProblem::of(p);
  const bool truncate = is_whole(w.y) && !is_whole(w.fresh);  // as a copy
  out[0].v = in[0].v;
  const std::vector<double>& from = in[1].v;
  if (from.empty()) return;
  // new as [outer, rows, row_elements], x as [outer, extent, row_elements]
  const int64_t run = w.rows * w.row_elements, block = w.shape[w.axis] * w.row_elements,
                outer = static_cast<int64_t>(from.size()) / run, per_item = outer / (w.axis == 0 ? 1 : w.shape[0]);
  for (int64_t o = 0; o < outer; ++o) {
    const double number =
        w.has_at ? in[2].v[static_cast<size_t>(o / per_item * w.at_stride)] : static_cast<double>(w.at);
    const int64_t first = o * block + w.first_row(static_cast<int64_t>(number)) * w.row_elements;
    for (int64_t i = 0; i < run; ++i) {
      const double v = from[static_cast<size_t>(o * run + i)];
      out[0].v[static_cast<size_t>(first + i)] = truncate ? std::trunc(v) : v;
    }
  }
}

int64_t terms(const Problem& p) { return p.in[0].type.scaled() || p.in[1].type.scaled() ? 1 : 0; }

double flops(const Problem&) { return 0; }

}  // namespace

const OpInfo& write_op() {
  static const OpInfo kInfo{.name = "write",
                            .signature = "x[...], new[...], at[b]? -> y[...]",
                            .strided = StridedInputs::kAny,
                            .in_place = [](const Problem&, size_t) { return 0; },
                            .infer = infer,
                            .reference = reference,
                            .errors = write_errors,
                            .terms = terms,
                            .flops = flops,
                            .variants = listed_variants()};
  return kInfo;
}

}  // namespace tessera
