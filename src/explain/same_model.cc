// SPDX-License-Identifier: Apache-2.0
// Whether two profiles are of one model at one size: by the work of layers of the same name, else by the work in all,
// per sample. Precisions and targets change names of kernels, fuse layers and pad heads; they do not change the work of
// most layers.
#include <algorithm>
#include <cmath>
#include <map>

#include "explain/numbers.h"
#include "explain/parts.h"

namespace tessera {
namespace {

constexpr double kSame = 1.1;         // ratio of work up to which it is the same, on one machine or under other names
constexpr double kPadded = 1.5;       // on two machines: one may pad, or compute only the rows that are read
constexpr double kLayersApart = 0.1;  // of the time in layers of the same name, below which these are other layers
constexpr double kLayersTogether = 0.5;  // of both times: enough to say that it is one model
constexpr size_t kEnough = 3;            // layers

struct Work {
  std::map<std::string, double> flops;  // by layer, per sample; of products and attention
  double all = 0;
  size_t count = 0;
  bool known = true;
};

Work work_of(const Profile& p) {
  Work w;
  for (const KernelTime& k : p.kernels) {
    if (!is_product(k.kernel_class) && k.kernel_class != KernelClass::kAttention) continue;
    w.known = w.known && k.flops.has_value();
    const double flops = k.flops.value_or(0) / static_cast<double>(std::max<int64_t>(1, p.batch));
    w.all += flops;
    w.count += 1;
    if (!k.layer.empty() && k.layer != k.name && flops > 0) w.flops[k.layer] += flops;
  }
  w.known = w.known && w.all > 0;
  return w;
}

double apart(double x, double y) { return std::max(x / y, y / x); }

// The median over layers that both have, else that of all; nothing: not known.
std::optional<double> ratio_of(const Work& a, const Work& b) {
  std::vector<double> ratios;
  for (const auto& [layer, flops] : a.flops) {
    if (const auto at = b.flops.find(layer); at != b.flops.end()) ratios.push_back(apart(flops, at->second));
  }
  if (ratios.size() >= kEnough && 2 * ratios.size() >= std::min(a.flops.size(), b.flops.size()))
    return median_of(std::move(ratios));
  if (a.known && b.known) return apart(a.all, b.all);
  return {};
}

// 1: a layer of A, 2: of B, 3: of both.
std::map<std::string, int> layers_seen(const Case& c) {
  std::map<std::string, int> seen;
  for (const KernelTime& k : c.a.kernels) seen[k.layer] |= 1;
  for (const KernelTime& k : c.b.kernels) seen[k.layer] |= 2;
  seen.erase("");
  return seen;
}

// The share of a profile's time in layers of both.
double in_both(const Profile& p, const std::map<std::string, int>& seen) {
  double both = 0, all = 0;
  for (const KernelTime& k : p.kernels) {
    all += k.us;
    if (!k.layer.empty() && seen.at(k.layer) == 3) both += k.us;
  }
  return all > 0 ? both / all : 0;
}

// Both tell layers, in the words of one tool, and hardly any name is in both.
bool has_other_layers(const Case& c) {
  if (c.a.source != c.b.source) return false;
  const std::map<std::string, int> seen = layers_seen(c);
  const auto alone = [&](int which) {
    return static_cast<size_t>(
        std::count_if(seen.begin(), seen.end(), [&](const auto& s) { return (s.second & which) != 0; }));
  };
  if (alone(1) < kEnough || alone(2) < kEnough) return false;
  return in_both(c.a, seen) < kLayersApart && in_both(c.b, seen) < kLayersApart;
}

// Most of both times is in layers of names that both have.
bool has_same_layers(const Case& c) {
  const std::map<std::string, int> seen = layers_seen(c);
  return in_both(c.a, seen) >= kLayersTogether && in_both(c.b, seen) >= kLayersTogether;
}

std::string name_and_work(const char* letter, const Profile& p, const Work& w) {
  std::string text = std::string(letter) + (p.model.empty() ? "" : cat(" (", p.model.substr(0, 60), ")"));
  return w.known ? cat(text, " multiplies ", fixed(w.all / 1e9, w.all < 1e9 ? 4 : 2), " GFLOP a sample in ", w.count,
                       " GEMMs and attentions")
                 : text;
}

}  // namespace

std::string why_other_model(const Case& c) {
  if (!c.compared || (c.a.batch > 0) != (c.b.batch > 0)) return "";
  const Work a = work_of(c.a), b = work_of(c.b);
  const std::optional<double> ratio = ratio_of(a, b);
  const bool other_name = !c.a.model.empty() && !c.b.model.empty() && c.a.model != c.b.model;
  const bool other_layers = has_other_layers(c);
  const bool one_machine = !c.a.machine.empty() && c.a.machine == c.b.machine;
  const double limit = one_machine || other_name || other_layers ? kSame : kPadded;
  const bool other = ratio ? *ratio > limit : other_name && other_layers;
  if (!other) return "";
  const std::string what = other_name || other_layers ? "different models" : "one model at different sizes";
  return cat("A and B are ", what, ": ", name_and_work("A", c.a, a), ", ", name_and_work("B", c.b, b),
             ratio ? "" : " has other layers", ", so their times say nothing about each other");
}

bool is_known_model(const Case& c) {
  if (!c.a.model.empty() && c.a.model == c.b.model) return true;
  return ratio_of(work_of(c.a), work_of(c.b)).has_value() || has_same_layers(c);
}

}  // namespace tessera
