// SPDX-License-Identifier: Apache-2.0
#include "verify/verdicts.h"

#include <cstdio>

#include "base/shorten.h"

namespace tessera {
namespace {

constexpr size_t kNameColumns = 60;  // of a sentence

}  // namespace

std::string samples_words(int64_t samples, int64_t of) {
  return of > 0 ? cat(samples, " of ", of) : std::to_string(samples);
}

QuantizationVerdict judge_quantization(const std::vector<const QuantizationReport*>& reports,
                                       std::optional<double> min_cosine, std::optional<double> of_build) {
  QuantizationVerdict v{.gate = min_cosine ? min_cosine : of_build, .gate_of_build = !min_cosine && of_build};
  const auto farther = [](const OutputQuality& a, const OutputQuality& b) {
    if (a.whole && b.whole) return a.whole->share() < b.whole->share();
    if (a.whole || b.whole) return !a.whole;  // a cosine says more than a count
    return !(a.closeness.cosine_worst >= b.closeness.cosine_worst);
  };
  for (const QuantizationReport* r : reports) {
    for (const OutputQuality& o : r->outputs) {
      if (v.output == nullptr || farther(o, *v.output)) v.report = r, v.output = &o;
    }
  }
  return v;
}

std::string QuantizationVerdict::sentence() const {
  if (output == nullptr)
    return "not measured: the engine holds no outputs of its model (--model FILE compares with it)";
  char found[96], wanted[96] = "no gate";
  if (output->whole) {
    std::snprintf(found, sizeof(found), "%lld of %lld whole numbers are the model's",
                  static_cast<long long>(output->whole->same), static_cast<long long>(output->whole->all));
  } else {
    std::snprintf(found, sizeof(found), "worst cosine %.5f, mean %.5f with the model", output->closeness.cosine_worst,
                  output->closeness.cosine_mean);
  }
  if (gate) {
    std::snprintf(wanted, sizeof(wanted), "gate %s: mean of at least %.6g",
                  gate_of_build ? "of the build" : "--min-cosine", *gate);
  }
  const std::string on =
      cat(samples_words(report->samples, report->of), report->samples == 1 && report->of == 0 ? " sample" : " samples",
          " (", shorten(report->what, kNameColumns), ")");
  return cat(found, ", output '", shorten(output->name, kNameColumns), "', on ", on, "; ", wanted);
}

std::string failure_of(const std::vector<VerifyCheck>& checks) {
  const VerifyCheck* failed = nullptr;
  bool agree = false;
  for (const VerifyCheck& c : checks) {
    if (c.report.first_stray >= 0) return cat("plan ", c.report.plan, ", ", c.what, ": ", c.report.sentence);
    if (!c.report.ok && failed == nullptr) failed = &c;
    agree = agree || (c.report.ok && !c.report.layers.empty());
  }
  if (failed == nullptr) return "";
  std::string text = cat("plan ", failed->report.plan, ", ", failed->what, ": ", failed->report.sentence);
  if (failed->what == "golden values" && agree && !failed->report.graph_differs) {
    text +=
        "; every layer agrees with its reference on the weights that are in the file, so they are not the weights of "
        "the build: build the engine again";
  }
  return text;
}

}  // namespace tessera
