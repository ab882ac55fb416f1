// SPDX-License-Identifier: Apache-2.0
// Coverage: which share of the products has which precision, by time, by flops and by bytes. Flops are seldom in the
// files of other tools. Both profiles run the same model, so where A's products have one precision, their time stands
// for all flops, and B's products in that precision run at A's rate:
//   share of flops that B still has in A's precision = B's time in it / A's time
#include <algorithm>

#include "explain/numbers.h"
#include "explain/parts.h"

namespace tessera {
namespace {

using Measure = std::optional<double> PrecisionSum::*;

std::vector<const PrecisionSum*> running(const Sums& sums) {
  std::vector<const PrecisionSum*> all;
  for (const PrecisionSum& p : sums.covered_precisions) {
    if (p.us > 0) all.push_back(&p);
  }
  return all;
}

double us_in(const Sums& sums, const std::string& precision) {
  for (const PrecisionSum& p : sums.covered_precisions) {
    if (p.precision == precision) return p.us;
  }
  return 0;
}

ShareTable not_known(std::string why) { return {.origin = Origin::kNotKnown, .why = std::move(why), .shares = {}}; }

ShareTable by_time(const Sums& sums) {
  ShareTable table{.origin = Origin::kFromFiles, .why = "", .shares = {}};
  for (const PrecisionSum* p : running(sums)) table.shares.push_back({p->precision, p->us / sums.covered});
  return table;
}

ShareTable by_measure(const Sums& sums, Measure measure, const std::string& word) {
  const std::vector<const PrecisionSum*> all = running(sums);
  if (all.size() == 1)
    return {.origin = Origin::kFromFiles, .why = "all have one precision", .shares = {{all[0]->precision, 1.0}}};
  double total = 0;
  for (const PrecisionSum* p : all) {
    if (!(p->*measure)) return not_known("the file does not have the " + word + " of every GEMM");
    total += *(p->*measure);
  }
  if (total <= 0) return not_known("the file has 0 " + word + " for every GEMM");
  ShareTable table{.origin = Origin::kFromFiles, .why = "", .shares = {}};
  for (const PrecisionSum* p : all) table.shares.push_back({p->precision, *(p->*measure) / total});
  return table;
}

// Why A's rate cannot stand for B's products in A's precision; empty: it can.
std::string why_not_estimated(const Case& c, const std::vector<const PrecisionSum*>& in_a,
                              const std::vector<const PrecisionSum*>& in_b) {
  if (!c.other_model.empty()) return "A and B are not of one model";
  if (!c.same_work) return "A and B have different batch sizes";
  if (in_a.empty()) return "A has no GEMMs";
  if (in_a.size() > 1) return "A's GEMMs have several precisions";
  if (in_a[0]->precision == kUnknownPrecision) return "the precision of A's GEMMs is not known";
  for (const PrecisionSum* p : in_b) {
    if (p->precision == kUnknownPrecision) return "B has GEMMs whose precision is not known";
  }
  if (us_in(c.in_b, in_a[0]->precision) >= c.in_a.covered)
    return "B spends as much time as A, or more, in " + in_a[0]->precision + " GEMMs alone";
  return "";
}

ShareTable estimated_flops(const Case& c) {
  const std::vector<const PrecisionSum*> in_a = running(c.in_a), in_b = running(c.in_b);
  if (const std::string why = why_not_estimated(c, in_a, in_b); !why.empty())
    return not_known("the files have no flops, and they cannot be estimated: " + why);
  const std::string& high = in_a[0]->precision;
  const double high_us = us_in(c.in_b, high), share = high_us / c.in_a.covered;
  std::string others;
  for (const PrecisionSum* p : in_b) {
    if (p->precision != high) others += (others.empty() ? "" : " and ") + p->precision;
  }
  ShareTable table{.origin = Origin::kEstimated, .why = "", .shares = {{others, 1 - share}}};
  const bool first = bits_of(high) >= bits_of(in_b[0]->precision);
  if (high_us > 0) table.shares.insert(first ? table.shares.begin() : table.shares.end(), {high, share});
  table.why = high + " GEMMs run at A's rate: " + c.time(high_us) + " of " + c.time(c.in_a.covered) + " = " +
              percent(share) + " of the flops";
  return table;
}

}  // namespace

const char* name_of(Origin origin) {
  switch (origin) {
    case Origin::kFromFiles:
      return "from the files";
    case Origin::kEstimated:
      return "estimated from A's rate";
    case Origin::kNotKnown:
      break;
  }
  return "not known";
}

std::optional<double> ShareTable::of(const std::string& precision) const {
  for (const PrecisionShare& s : shares) {
    if (s.precision == precision) return s.share;
  }
  return {};
}

Coverage coverage_alone(const Sums& sums) {
  if (sums.products <= 0) {
    const ShareTable none = not_known("there are no GEMMs");
    return {none, none, none};
  }
  return {.time = by_time(sums),
          .flops = by_measure(sums, &PrecisionSum::flops, "flops"),
          .bytes = by_measure(sums, &PrecisionSum::bytes, "bytes")};
}

Coverage coverage_of(const Case& c) {
  Coverage coverage = coverage_alone(c.in_b);
  if (c.compared && c.in_b.products > 0 && coverage.flops.origin == Origin::kNotKnown)
    coverage.flops = estimated_flops(c);
  return coverage;
}

std::optional<AtReachedRate> at_reached_rate(const Case& c) {
  const double low_us = us_in(c.in_b, c.low), others = c.in_b.products - c.in_b.covered;
  const std::optional<double> share = c.b_coverage.flops.of(c.low);
  if (low_us <= 0 || !share || *share <= 0 || *share >= 1) return {};
  const double us = low_us / *share + others;
  if (us >= c.in_b.products) return {};
  return AtReachedRate{us, c.time(low_us) + " / " + fixed(*share, 3) + (others > 0 ? " + " + c.time(others) : "")};
}

}  // namespace tessera
