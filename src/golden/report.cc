// SPDX-License-Identifier: Apache-2.0
#include "golden/report.h"

#include <cmath>
#include <cstdio>

namespace tessera {
namespace {

std::string brief(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1e", x);
  return text;
}

std::string stray_sentence(const LayerReport& l) {
  const std::string who = cat("layer ", l.layer, " (", l.variant, ") strays first: ");
  if (l.finite && l.share <= 1) return cat(who, l.differs);
  if (!l.finite) return cat(who, "it gives NaN or Inf where its reference gives numbers; its inputs still agree");
  return cat(who, "a result is ", brief(l.got), " where its ", l.emulated ? "emulation" : "arithmetic", " allows ",
             brief(l.low), " to ", brief(l.high), "; relative L2 ", brief(l.relative_l2), " where ", brief(l.bound),
             " is allowed; its inputs still agree");
}

}  // namespace

OutputReport judge_output(const std::string& name, const std::vector<double>& got, const std::vector<double>& want,
                          int64_t samples, double bound) {
  const Closeness c = compare(got, want, samples);
  return {name, c.cosine_mean, c.cosine_worst, c.relative_l2, bound, c.finite && c.relative_l2 <= bound, c};
}

void conclude(VerifyReport& report) {
  report.ok = true;
  for (const OutputReport& o : report.outputs) report.ok = report.ok && o.ok;
  for (size_t i = 0; i < report.layers.size() && report.first_stray < 0; ++i) {
    if (!report.layers[i].ok()) report.first_stray = static_cast<int>(i);
  }
  if (report.first_stray >= 0) {
    report.ok = false;
    report.sentence = stray_sentence(report.layers[static_cast<size_t>(report.first_stray)]);
    return;
  }
  for (const ValueReport& v : report.values) {
    if (v.ok()) continue;
    report.ok = false;
    report.sentence = v.finite ? cat("value '", v.name, "' is off: relative L2 ", brief(v.relative_l2),
                                     " where the arithmetic since the last value allows ", brief(v.bound))
                               : cat("value '", v.name, "' holds NaN or Inf");
    return;
  }
  for (const OutputReport& o : report.outputs) {
    if (o.ok) continue;
    report.sentence = std::isfinite(o.relative_l2)
                          ? cat("output '", o.name, "' is off: relative L2 ", brief(o.relative_l2),
                                " where its arithmetic allows ", brief(o.bound))
                          : cat("output '", o.name, "' holds NaN or Inf");
    return;
  }
  report.sentence = cat(report.layers.empty() ? "every output" : "every layer, every output",
                        " and every value inside the model is within the bounds of its arithmetic");
}

std::string depends_sentence(const std::string& output) {
  return cat("output '", output, "' of a sample depends on the other samples of its batch; only batch 1 can be built");
}

}  // namespace tessera
