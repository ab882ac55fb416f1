// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <set>

#include "op/whole_numbers.h"
#include "ops/map/map.h"

namespace tessera {
namespace {

// Every arithmetic gives the same numbers.
bool exact(const Problem& p) {
  static const std::set<std::string> kExact = {
      "identity", "neg",   "abs",   "relu", "floor",      "ceil",    "round",         "logical_not", "min", "max",
      "mod",      "where", "equal", "less", "less_equal", "greater", "greater_equal", "and",         "or"};
  return kExact.contains(p.attrs.word("fn")) || is_whole(p.in.back().type);
}

}  // namespace

int64_t map_terms(const Problem& p) { return exact(p) ? 0 : 1; }

// Exact functions, one correctly rounded operation, or a function of the library: eight units of the result (sixteen
// for pow), and for functions whose formula cancels four units of the argument, as steps/scalar.h and tiles/cpu/math.h
// state. Subnormal results may be flushed.
std::vector<double> map_errors(const Problem& p, std::span<const Dense> in, const Dense& y, const Roundings& r) {
  static const std::set<std::string> kOne = {"add", "sub", "mul", "div"};
  static const std::set<std::string> kCancels = {"silu", "gelu_erf", "gelu_tanh", "gelu_quick"};
  const std::string fn = p.attrs.word("fn");
  std::vector<double> e(y.v.size(), 0.0);
  if (exact(p)) return e;
  const double units = kOne.contains(fn) ? 1 : fn == "pow" ? 16 : 8;
  const bool cancels = kCancels.contains(fn);  // of one operand, which has y's shape
  for (size_t i = 0; i < e.size(); ++i)
    e[i] = r.unit() * (units * std::fabs(y.v[i]) + (cancels ? 4 * std::fabs(in[0].v[i]) : 0)) + 0x1p-126;
  return e;
}

}  // namespace tessera
