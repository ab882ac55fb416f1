// SPDX-License-Identifier: Apache-2.0
#include "portability/portability.h"

#include <algorithm>
#include <set>

namespace tessera {
namespace {

constexpr int64_t kMxfp8Block = 32, kNvfp4Block = 16;

class Findings {
 public:
  void see() { ++finding_.places; }
  void add(const std::string& layer, const std::string& what) {
    std::vector<Breach>& all = finding_.breaches;
    const auto same = std::find_if(all.begin(), all.end(), [&](const Breach& b) { return b.what == what; });
    if (same == all.end()) {
      all.push_back({what, {layer}});
    } else {
      same->layers.push_back(layer);
    }
  }
  // `n` things that blocks must divide.
  void divide(const std::string& layer, int64_t n, const std::string& what) {
    see();
    if (n % kMxfp8Block == 0) return;
    add(layer, cat(what, ": no multiple of 32", n % kNvfp4Block == 0 ? ", though one of 16 (NVFP4)" : " or of 16"));
  }
  RuleFinding take() { return std::move(finding_); }

 private:
  RuleFinding finding_;
};

RuleFinding find_lengths(const WrittenModel& m) {
  Findings f;
  for (const WrittenAttention& a : m.attentions) f.divide(a.layer, a.keys, cat(a.keys, " tokens"));
  return f.take();
}

// What one size of heads costs there: that of 72 has a report of its own, and multiples of 16 lack MXFP8 alone.
std::string cost_of_heads(int64_t size) {
  if (size % kNvfp4Block == 0)
    return cat("heads of ", size, ": blocks of 32 (MXFP8) lie across heads; FP8 and NVFP4 take multiples of 16");
  return cat("heads of ", size, ": FP8 attention is supported for heads that are multiples of 16 only",
             size == 72 ? ", and users found no fused attention for heads of 72 (NVIDIA/TensorRT#4104)" : "");
}

RuleFinding find_heads(const WrittenModel& m) {
  Findings f;
  std::set<int64_t> sizes;
  for (const WrittenAttention& a : m.attentions) {
    f.divide(a.layer, a.head_size, cat("heads of ", a.head_size));
    if (a.head_size % kMxfp8Block != 0) sizes.insert(a.head_size);
  }
  RuleFinding finding = f.take();
  for (const int64_t size : sizes) finding.cost += cat(finding.cost.empty() ? "" : "; ", cost_of_heads(size));
  return finding;
}

RuleFinding find_axes(const WrittenModel& m) {
  Findings f;
  for (const WrittenAttention& a : m.attentions) {
    f.see();
    if (!a.one_operator && a.axes > 3) f.add(a.layer, cat("scores of ", a.axes, " axes"));
  }
  return f.take();
}

RuleFinding find_tokens(const WrittenModel& m) {
  Findings f;
  for (const WrittenTokens& t : m.tokens)
    f.divide(t.layer, t.all, cat(t.all - t.learnt, " tokens and ", t.learnt, " learnt make ", t.all));
  return f.take();
}

RuleFinding find_patches(const WrittenModel& m) {
  Findings f;
  for (const WrittenPatches& p : m.patches)
    f.divide(p.layer, p.count, cat(p.height, " x ", p.width, " pixels in ", p.count, " patches"));
  return f.take();
}

RuleFinding find_forms(const WrittenModel& m) {
  Findings f;
  for (const WrittenAttention& a : m.attentions) {
    f.see();
    if (!a.foreign.empty()) f.add(a.layer, cat(a.foreign, " between scores and softmax"));
  }
  return f.take();
}

RuleFinding find_scales(const WrittenModel& m) {
  Findings f;
  const bool any = std::any_of(m.linears.begin(), m.linears.end(), [](const WrittenLinear& l) { return l.scaled; });
  for (const WrittenLinear& l : m.linears) {
    f.see();
    if (!any) f.add(l.layer, "no layer has scales");
  }
  return f.take();
}

RuleFinding find_sparse_scales(const WrittenModel& m) {
  Findings f;
  for (const WrittenLinear& l : m.linears) {
    f.see();
    if (l.sparse && l.scaled) f.add(l.layer, "2:4 sparse and quantized");
  }
  return f.take();
}

RuleFinding find_spelt_norms(const WrittenModel& m) {
  Findings f;
  for (size_t i = 0; i < m.norms.size(); ++i) f.see();
  for (const std::string& layer : m.spelt_norms) f.see(), f.add(layer, "a mean of squares");
  return f.take();
}

struct ListedRule {
  const char* tool;
  DesignRule rule;
};
const ListedRule kRules[] = {
#define TS_RULE(tool, find, name, rule, cost, instead) {#tool, {name, rule, cost, instead, find}},
#include "portability/portability.inc"
#undef TS_RULE
};

}  // namespace

std::vector<std::string> portability_names() {
  std::vector<std::string> names;
  for (const ListedRule& r : kRules) {
    if (names.empty() || names.back() != r.tool) names.push_back(r.tool);
  }
  return names;
}

std::vector<RuleReport> check_portability(const Graph& written, const std::string& tool) {
  const WrittenModel model = read_written(written);
  std::vector<RuleReport> reports;
  for (const ListedRule& r : kRules) {
    if (tool == r.tool) reports.push_back({&r.rule, r.rule.find(model)});
  }
  TS_CHECK(!reports.empty(), "no rules of ", tool);
  return reports;
}

}  // namespace tessera
