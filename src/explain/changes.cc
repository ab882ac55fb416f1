// SPDX-License-Identifier: Apache-2.0
// What changed from A to B: by class, by layer, attention, the work outside products, the time outside kernels.
#include <algorithm>
#include <cmath>
#include <map>

#include "explain/parts.h"

namespace tessera {
namespace {

constexpr double kUnchanged = 0.03;     // of the time: runs of one engine differ by as much
constexpr double kLayersMatched = 0.5;  // of both times: below it, names of layers are not those of one model

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

using Name = std::string (*)(const KernelTime&);

std::string layer_name(const KernelTime& k) { return k.layer; }
std::string group_name(const KernelTime& k) {
  const std::string kind = name_of(k.kernel_class);
  if (!is_product(k.kernel_class)) return kind;
  const std::string precision = multiplied_in(k.precision);
  return kind + " " + (precision.empty() ? std::string("of unknown precision") : precision);
}

// Adds the times of one profile to the rows; a row has the precision of its largest kernel.
void add_times(std::vector<LayerChange>& rows, const Profile& p, Name name, bool is_a) {
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < rows.size(); ++i) places[rows[i].name] = i;
  std::map<std::string, double> largest;
  for (const KernelTime& k : p.kernels) {
    const std::string n = name(k);
    const auto [at, fresh] = places.insert({n, rows.size()});
    if (fresh) rows.push_back({.name = n});
    LayerChange& row = rows[at->second];
    (is_a ? row.a_ms : row.b_ms) += k.us / 1000;
    (is_a ? row.in_a : row.in_b) = true;
    const auto [most, first] = largest.insert({n, k.us});
    if (first || k.us > most->second) {
      most->second = k.us;
      (is_a ? row.a_precision : row.b_precision) = k.precision;
    }
  }
}

std::vector<LayerChange> rows_by(const Case& c, Name name) {
  std::vector<LayerChange> rows;
  add_times(rows, c.a, name, true);
  add_times(rows, c.b, name, false);
  return rows;
}

bool layers_match(const std::vector<LayerChange>& rows) {
  double a = 0, b = 0, matched_a = 0, matched_b = 0;
  for (const LayerChange& r : rows) {
    a += r.a_ms, b += r.b_ms;
    if (r.in_a && r.in_b && !r.name.empty()) matched_a += r.a_ms, matched_b += r.b_ms;
  }
  return share(matched_a, a) >= kLayersMatched && share(matched_b, b) >= kLayersMatched;
}

std::string main_precision(const Profile& p, KernelClass of) {
  const KernelTime* most = nullptr;
  for (const KernelTime& k : p.kernels) {
    if (k.kernel_class == of && (most == nullptr || k.us > most->us)) most = &k;
  }
  return most == nullptr ? "" : most->precision;
}

ClassTime class_time(const Case& c, size_t i) {
  const double a = c.in_a.by_class[i], b = c.compared ? c.in_b.by_class[i] : 0;
  return {.name = name_of(static_cast<KernelClass>(i)),
          .a_ms = a / 1000,
          .b_ms = b / 1000,
          .a_share = share(a, c.in_a.kernels),
          .b_share = share(b, c.in_b.kernels)};
}

// Times of a class of products by precision, highest first.
std::vector<PrecisionTime> precisions_of(const Case& c, KernelClass of) {
  std::vector<PrecisionTime> rows;
  const auto add = [&](const Profile& p, double PrecisionTime::*ms) {
    for (const KernelTime& k : p.kernels) {
      if (k.kernel_class != of || k.us <= 0) continue;
      std::string precision = multiplied_in(k.precision);
      if (precision.empty()) precision = kUnknownPrecision;
      auto at = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.precision == precision; });
      if (at == rows.end()) at = rows.insert(at, {.precision = precision});
      (*at).*ms += k.us / 1000;
    }
  };
  add(c.a, &PrecisionTime::a_ms);
  if (c.compared) add(c.b, &PrecisionTime::b_ms);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& x, const auto& y) { return bits_of(x.precision) > bits_of(y.precision); });
  return rows;
}

}  // namespace

std::vector<ClassTime> classes_of(const Case& c) {
  std::vector<ClassTime> classes;
  for (size_t i = 0; i < kClassCount; ++i) {
    if (c.in_a.by_class[i] <= 0 && c.in_b.by_class[i] <= 0) continue;
    classes.push_back(class_time(c, i));
    if (is_product(static_cast<KernelClass>(i)))
      classes.back().precisions = precisions_of(c, static_cast<KernelClass>(i));
  }
  return classes;
}

std::vector<GraphChange> graphs_of(const Case& c) {
  std::vector<GraphChange> graphs;
  std::map<std::string, size_t> places;
  const auto add = [&](const Profile& p, double GraphChange::*ms, int64_t GraphChange::*times) {
    for (const GraphTime& g : p.graphs) {
      const auto [at, fresh] = places.emplace(g.graph, graphs.size());
      if (fresh) graphs.push_back({.graph = g.graph});
      graphs[at->second].*times += g.times;
      graphs[at->second].*ms += static_cast<double>(g.times) * g.kernel_us / 1000;
    }
  };
  add(c.a, &GraphChange::a_ms, &GraphChange::a_times);
  if (c.compared) add(c.b, &GraphChange::b_ms, &GraphChange::b_times);
  return graphs;
}

Changes changes_of(const Case& c) {
  if (!c.compared) return {};
  Changes changes{.by = "layer", .all = rows_by(c, layer_name)};
  if (!layers_match(changes.all)) changes = {.by = "kernel group", .all = rows_by(c, group_name)};
  std::stable_sort(changes.all.begin(), changes.all.end(), [](const LayerChange& x, const LayerChange& y) {
    return std::fabs(x.b_ms - x.a_ms) > std::fabs(y.b_ms - y.a_ms);
  });
  return changes;
}

std::optional<AttentionChange> attention_of(const Case& c) {
  if (c.in_a.attention <= 0 && c.in_b.attention <= 0) return {};
  AttentionChange change{.a_us = c.in_a.attention,
                         .b_us = c.compared ? c.in_b.attention : 0,
                         .a_precision = main_precision(c.a, KernelClass::kAttention),
                         .b_precision = c.compared ? main_precision(c.b, KernelClass::kAttention) : ""};
  change.unchanged = c.compared && change.a_us > 0 && std::fabs(change.b_us - change.a_us) <= kUnchanged * change.a_us;
  return change;
}

std::string attention_precision(const Case& c) {
  const std::string told = multiplied_in(main_precision(c.b, KernelClass::kAttention));
  if (!told.empty() || !c.compared) return told;
  const std::optional<AttentionChange> change = attention_of(c);
  if (!change || !change->unchanged) return "";
  const std::string before = multiplied_in(change->a_precision);
  return before.empty() ? c.in_a.main_precision() : before;
}

GrownWork growth_of(const Case& c) {
  GrownWork growth{.a_ms = (c.in_a.rest + c.in_a.attention) / 1000,
                   .b_ms = c.compared ? (c.in_b.rest + c.in_b.attention) / 1000 : 0,
                   .a_rest_ms = c.in_a.rest / 1000,
                   .b_rest_ms = c.compared ? c.in_b.rest / 1000 : 0,
                   .grown = {}};
  for (size_t i = 0; i < kClassCount; ++i) {
    const auto kind = static_cast<KernelClass>(i);
    if (is_product(kind) || kind == KernelClass::kAttention || !c.compared) continue;
    if (c.in_b.by_class[i] > c.in_a.by_class[i]) growth.grown.push_back(class_time(c, i));
  }
  std::stable_sort(growth.grown.begin(), growth.grown.end(),
                   [](const ClassTime& x, const ClassTime& y) { return x.b_ms - x.a_ms > y.b_ms - y.a_ms; });
  return growth;
}

std::optional<Outside> outside_of(const Profile& p) {
  if (!p.latency) return {};
  const double latency = p.latency->median_ms > 0 ? p.latency->median_ms : p.latency->mean_ms;
  if (latency <= 0) return {};
  const auto in_ms = [](const std::optional<double>& us) {
    return us ? std::optional<double>(*us / 1000) : std::nullopt;
  };
  Outside o{.latency_ms = latency,
            .busy_ms = (p.kernel_us() - p.overlap_us.value_or(0)) / 1000,
            .gap_ms = in_ms(p.gap_us),
            .overlap_ms = in_ms(p.overlap_us),
            .copies_ms = {},
            .enqueue_ms = in_ms(p.enqueue_us)};
  if (p.copies_in_latency && (p.host_to_device_us || p.device_to_host_us))
    o.copies_ms = (p.host_to_device_us.value_or(0) + p.device_to_host_us.value_or(0)) / 1000;
  o.outside_ms = o.latency_ms - o.busy_ms;
  o.unexplained_ms = o.outside_ms - o.gap_ms.value_or(0) - o.copies_ms.value_or(0);
  return o;
}

}  // namespace tessera
