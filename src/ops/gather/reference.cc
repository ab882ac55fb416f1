// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "ops/gather/gather.h"

#define TS_OP_FOLDER gather
#include "ops/list_variants.inc"

namespace tessera {

GatherProblem GatherProblem::of(const Problem& p) {
  const Operand& table = p.in[0];
  GatherProblem g;
  g.table_rows = table.shape[0];
  g.row_elements = 1;
  for (size_t i = 1; i < table.shape.size(); ++i) g.row_elements *= table.shape[i];
  g.count = elements(p.in[1].shape);
  g.table = table.type, g.y = p.out[0].type;
  g.ids = p.in[1].type.element;
  return g;
}

namespace {

Result<std::vector<Type>> infer(const Problem& p) {
  const Operand *table = p.operand(0), *ids = p.operand(1);
  if (table == nullptr || ids == nullptr || table->shape.empty())
    return bad_input("gather: wants a table[n,...] and ids[...]");
  if (p.attrs.integer("axis") != 0)
    return bad_input(cat("gather: axis ", p.attrs.integer("axis"), "; only rows (axis 0) can be gathered"));
  if (info(ids->type.element).kind != ElementKind::kInteger)
    return bad_input(cat("gather: ids are ", to_string(ids->type), ", wanted integers"));
  Type y{.shape = ids->shape, .quant = result_element(*table)};
  y.shape.insert(y.shape.end(), table->shape.begin() + 1, table->shape.end());
  return std::vector<Type>{y};
}

Status check_numbers(const Problem& p, std::span<const Dense> in) {
  const int64_t n = p.in[0].shape[0];
  for (size_t i = 0; i < in[1].v.size(); ++i) {
    const double id = in[1].v[i];
    if (id < static_cast<double>(-n) || id >= static_cast<double>(n)) {
      return bad_input(
          cat("gather: id ", static_cast<int64_t>(id), " at position ", i, " is outside the table of ", n, " rows"));
    }
  }
  return {};
}

void reference(const Problem& p, std::span<const Dense> in, std::span<Dense> out) {
  const GatherProblem g = GatherProblem::of(p);
  for (int64_t i = 0; i < g.count; ++i) {
    double* y = out[0].v.data() + i * g.row_elements;
    int64_t id = static_cast<int64_t>(in[1].v[static_cast<size_t>(i)]);
    if (id < 0) id += g.table_rows;
    if (id < 0 || id >= g.table_rows) {
      std::fill_n(y, g.row_elements, std::numeric_limits<double>::quiet_NaN());
    } else {
      std::copy_n(in[0].v.data() + id * g.row_elements, g.row_elements, y);
    }
  }
}

double flops(const Problem&) { return 0; }

}  // namespace

const OpInfo& gather_op() {
  static const OpInfo kInfo{.name = "gather",
                            .signature = "table[n,...], ids[...] -> y[...]",
                            .infer = infer,
                            .reference = reference,
                            .check_numbers = check_numbers,
                            .flops = flops,
                            .variants = listed_variants()};
  return kInfo;
}

}  // namespace tessera
