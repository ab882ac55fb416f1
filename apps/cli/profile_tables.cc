// SPDX-License-Identifier: Apache-2.0
#include "cli/profile_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "cli/output.h"
#include "traces/roofline.h"

namespace tessera {
namespace {

constexpr size_t kSlowest = 10;            // layers that are shown without --all
constexpr double kCostWorthSaying = 1.05;  // of a profiled run beside another

void add_to(std::optional<double>& sum, const std::optional<double>& more) {
  if (more) sum = sum.value_or(0) + *more;
}

template <class Key>
std::vector<KernelTime> summed(const Profile& profile, const Key& key) {
  std::vector<KernelTime> lines;
  std::map<decltype(key(profile.kernels[0])), size_t> at;
  for (const KernelTime& k : profile.kernels) {
    const auto [found, fresh] = at.try_emplace(key(k), lines.size());
    if (fresh) {
      lines.push_back(k);
      lines.back().begin_us.clear(), lines.back().end_us.clear();
      continue;
    }
    KernelTime& line = lines[found->second];
    line.calls += k.calls;
    line.us += k.us;
    add_to(line.flops, k.flops);
    add_to(line.bytes, k.bytes);
  }
  std::stable_sort(lines.begin(), lines.end(), [](const KernelTime& a, const KernelTime& b) { return a.us > b.us; });
  return lines;
}

std::string share(double part, double all) { return all > 0 ? fmt::format("{:.1f} %", part / all * 100) : "-"; }
// Times of a profile in one unit: microseconds where they are short.
struct TimeUnit {
  const char* name = "us";
  double us = 1;
  int digits = 1;
  std::string text(double time_us) const { return fmt::format("{:.{}f}", time_us / us, digits); }
  std::string said(double time_us) const { return cat(text(time_us), " ", name); }
};
TimeUnit unit_of_time(const Profile& p) {
  const double all = p.kernel_us();
  if (all >= 20e3) return {"ms", 1e3, 3};
  return {"us", 1, all < 1e3 ? 2 : 1};
}
std::string in_units(const std::optional<double>& v, double unit) {
  if (!v) return "-";
  const double x = *v / unit;
  return fmt::format("{:.{}f}", x, x < 10 ? 2 : x < 100 ? 1 : 0);
}

std::string say_bound(const Achieved& a) {
  if (!a.bound) return "-";
  return fmt::format("{}, {:.0f} %", name_of(*a.bound), a.share_of_bound() * 100);
}

// Rates of a table in one unit: that of its largest.
struct RateUnit {
  const char* name = "GFLOP/s";
  double value = 1e9;
};
RateUnit unit_for(const std::vector<KernelTime>& lines) {
  double most = 0;
  for (const KernelTime& k : lines) {
    if (k.us > 0) most = std::max(most, k.flops.value_or(0) / k.us * 1e6);
  }
  return most >= 1e13 ? RateUnit{"TFLOP/s", 1e12} : RateUnit{};
}

std::string say_shown(size_t shown, size_t all, const std::string& what) {
  return shown == all
             ? cat(what, ", slowest first")
             : fmt::format("the {} slowest of {} (--all: each)", shown, plural(static_cast<int64_t>(all), "layer"));
}

size_t shown_of(const std::vector<KernelTime>& lines, bool all) {
  return all ? lines.size() : std::min(kSlowest, lines.size());
}

std::string steps_of(const Profile& p) { return plural(static_cast<int64_t>(p.kernels.size()), "step"); }

void print_times(const Profile& p) {
  const TimeUnit unit = unit_of_time(p);
  print_record("kernels", cat(unit.said(p.kernel_us()), " in ", steps_of(p)));
  if (p.gap_us && p.overlap_us && p.span_us) {
    print_record(
        "", cat(unit.said(*p.span_us), " from the first to the last, of which none ran for ", unit.said(*p.gap_us)));
  }
  if (p.early_us.value_or(0) > 0)
    print_record("early", cat(unit.said(*p.early_us),
                              " in which a kernel had begun beside the one before; in no kernel's time"));
  if (const auto rest = p.residual_us) {
    print_record("residual",
                 cat(unit.said(*rest), *rest >= 0 ? ": the rest of a run, before the first step and after the last"
                                                  : ": runs take longer while they are profiled"));
  }
  if (p.host_to_device_us && p.device_to_host_us) {
    print_record("copies",
                 cat("inputs to the GPU ", unit.said(*p.host_to_device_us), ", outputs from it ",
                     unit.said(*p.device_to_host_us), p.copies_in_latency ? "" : "; not part of the latency"));
  }
  if (p.enqueue_us) print_record("enqueue", fmt::format("{:.1f} us of host time per run", *p.enqueue_us));
  if (p.profiled_ms && p.latency && *p.profiled_ms > kCostWorthSaying * p.latency->median_ms) {
    print_record("profiling", fmt::format("costs {:.1f} %: a run takes {:.3f} ms while it is profiled",
                                          (*p.profiled_ms / p.latency->median_ms - 1) * 100, *p.profiled_ms));
  }
}

// Each graph of a schedule, how often it runs, and what that makes in all.
void print_graphs(const Profile& p) {
  if (p.graphs.empty()) return;
  const bool latency = std::all_of(p.graphs.begin(), p.graphs.end(), [](const GraphTime& g) { return g.ms; });
  const auto ms = [](double v) { return fmt::format("{:.3f}", v); };
  const auto one = [&](const GraphTime& g) { return latency ? *g.ms : g.kernel_us / 1e3; };
  double sum = 0;
  for (const GraphTime& g : p.graphs) sum += static_cast<double>(g.times) * one(g);
  Table table({"graph", "plan", ">times", latency ? ">ms each" : ">kernels ms", ">in all", ">share"});
  for (const GraphTime& g : p.graphs) {
    const double all = static_cast<double>(g.times) * one(g);
    table.add({g.graph, g.plan, std::to_string(g.times), ms(one(g)), ms(all), share(all, sum)});
  }
  table.add({"sum", "", "", "", ms(sum), share(sum, sum)});
  fmt::print("{}", table.text());
  if (p.latency && latency) {
    print_record("schedule",
                 fmt::format("{:.3f} ms as one run; its graphs add up to {:.3f} ms", p.latency->median_ms, sum));
  }
}

// Limits of a line by the ceilings alone.
struct Limits {
  double intensity = 0;  // flop/byte
  std::optional<double> ridge, least_us;
  const char* limit = "-";  // "memory", "products"
};
Limits limits_of(const KernelTime& k, const Ceilings& ceilings) {
  Limits l;
  const bool multiplies = is_product(k.kernel_class) || k.kernel_class == KernelClass::kAttention;
  const std::optional<double> rate = multiplies ? rate_of(ceilings, k) : std::nullopt;
  const double bytes = k.bytes.value_or(0), flops = k.flops.value_or(0);
  if (bytes > 0) l.intensity = flops / bytes;
  if (multiplies) l.ridge = ridge_of(ceilings, k);
  if (ceilings.bytes_per_s <= 0 || (multiplies && !rate)) return l;
  l.least_us = std::max(rate ? flops / *rate : 0, bytes / ceilings.bytes_per_s) * 1e6;
  l.limit = l.ridge && l.intensity >= *l.ridge ? "products" : "memory";
  return l;
}

}  // namespace

std::vector<KernelTime> by_kernel(const Profile& profile) {
  return summed(profile, [](const KernelTime& k) { return std::tie(k.name, k.kernel_class, k.precision); });
}
std::vector<KernelTime> by_layer(const Profile& profile) {
  return summed(profile, [](const KernelTime& k) { return std::tie(k.graph, k.layer, k.name); });
}

std::string say_rate(double per_second, const char* unit) {
  const char* prefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t i = 0;
  for (; per_second >= 1000 && i + 1 < std::size(prefixes); ++i) per_second /= 1000;
  return fmt::format("{:.{}f} {}{}", per_second, per_second < 10 ? 2 : per_second < 100 ? 1 : 0, prefixes[i], unit);
}

void print_profile_summary(const Profile& p) {
  const std::string what = p.source == "tessera" ? cat(shorten(printable(p.model), 60), " in ", p.precision, ", ",
                                                       p.graphs.empty() ? "plan " : "schedule ", p.plan)
                                                 : cat(shorten(printable(p.path), 60), ", of ", p.source);
  if (p.machine.empty()) {
    fmt::print("{}\n", wrap(cat(what, ", ", plural(p.runs, "run")), 0, 2));
  } else if (p.predicted) {
    fmt::print("{}\n", wrap(cat(what, ": predicted for ", p.machine, " from the chip's data, not measured"), 0, 2));
  } else {
    fmt::print("{}\n", wrap(cat(what, " on ", p.machine, ", ", plural(p.runs, "run")), 0, 2));
  }
  if (p.latency) {
    const Latency& l = *p.latency;
    Table latency({">mean ms", ">median ms", ">p90 ms", ">p95 ms", ">p99 ms", ">least ms", ">most ms", ">samples/s"});
    const auto in_ms = [](double v) { return fmt::format("{:.3f}", v); };
    latency.add({in_ms(l.mean_ms), in_ms(l.median_ms), in_ms(l.p90_ms), in_ms(l.p95_ms), in_ms(l.p99_ms),
                 in_ms(l.least_ms), in_ms(l.most_ms), p.per_second() ? fmt::format("{:.1f}", *p.per_second()) : "-"});
    fmt::print("{}", latency.text());
  }
  print_graphs(p);
  if (p.predicted) {
    print_record("predicted", cat(unit_of_time(p).said(p.kernel_us()), ", the sum over ", steps_of(p)));
  } else {
    print_times(p);
  }
  if (p.ceilings) {
    std::string rates = say_rate(p.ceilings->bytes_per_s, "B/s");
    for (const auto& [precision, rate] : p.ceilings->flops_per_s)
      rates += cat(", ", precision, " ", say_rate(rate, "FLOP/s"));
    print_record("ceilings", cat(rates, !p.ceilings->measured       ? " (the chip's data)"
                                        : p.ceilings->doubt.empty() ? " (measured here, and kept)"
                                                                    : " (measured here, and kept; may be too low)"));
  }
  for (const std::string& n : p.notes) print_record("note", n);
}

void print_profile_tables(const Profile& p, bool all) {
  const double total = p.kernel_us();
  const std::vector<KernelTime> kernels = by_kernel(p), layers = by_layer(p);
  const Ceilings ceilings = p.ceilings.value_or(Ceilings{});
  const RateUnit rate = unit_for(layers);
  const TimeUnit unit = unit_of_time(p);
  // Predicted times are the ceilings: what they would reach of them says nothing.
  const auto numbers = [&](const KernelTime& k) {
    std::vector<std::string> cells = {unit.text(k.us), share(k.us, total)};
    if (p.predicted) {
      cells.emplace_back(limits_of(k, ceilings).limit);
      return cells;
    }
    const Achieved a = achieved(k, ceilings);
    cells.insert(cells.end(), {in_units(a.bytes_per_s, 1e9), in_units(a.flops_per_s, rate.value), say_bound(a)});
    return cells;
  };
  const auto titled = [&](std::vector<std::string> titles) {
    titles.insert(titles.end(), {cat(">", p.predicted ? "predicted " : "", unit.name), ">share"});
    if (!p.predicted) titles.insert(titles.end(), {">GB/s", cat(">", rate.name)});
    titles.emplace_back(p.predicted ? "limited by" : "bound by");
    return titles;
  };
  const auto row = [&](std::vector<std::string> cells, const KernelTime& k) {
    for (std::string& cell : numbers(k)) cells.push_back(std::move(cell));
    return cells;
  };
  Table table(titled({"kernel", "class", "precision", ">calls"}));
  int64_t calls = 0;
  for (const KernelTime& k : kernels) {
    table.add(row({k.name, name_of(k.kernel_class), k.precision, std::to_string(k.calls)}, k));
    calls += k.calls;
  }
  std::vector<std::string> sum = {"all", "", "", std::to_string(calls), unit.text(total), share(total, total), ""};
  if (!p.predicted) sum.insert(sum.end(), {"", ""});
  table.add(std::move(sum));
  const size_t shown = shown_of(layers, all);
  // Several graphs need a column of their own, and what was asked stands in --json and inspect.
  std::vector<std::string> titles = {"layer", "kernel"};
  titles.insert(p.graphs.empty() ? titles.end() : titles.begin(), p.graphs.empty() ? "asked" : "graph");
  Table slowest(titled(titles));
  for (size_t i = 0; i < shown; ++i) {
    std::vector<std::string> cells = {layers[i].layer, layers[i].name};
    cells.insert(p.graphs.empty() ? cells.end() : cells.begin(), p.graphs.empty() ? layers[i].asked : layers[i].graph);
    slowest.add(row(std::move(cells), layers[i]));
  }
  fmt::print("\n{}\n{}\n{}", table.text(), say_shown(shown, layers.size(), "layers"), slowest.text());
}

void print_intensity(const Profile& p, bool all) {
  const std::vector<KernelTime> layers = by_layer(p);
  const Ceilings ceilings = p.ceilings.value_or(Ceilings{});
  const TimeUnit unit = unit_of_time(p);
  const size_t shown = shown_of(layers, all);
  std::vector<std::string> titles = {"layer", "precision", ">MFLOP", ">MB", ">flop/byte", ">ridge", "limited by"};
  if (!p.predicted) titles.push_back(cat(">least ", unit.name));
  titles.push_back(cat(">", p.predicted ? "predicted " : "", unit.name));
  Table table(titles);
  for (size_t i = 0; i < shown; ++i) {
    const KernelTime& k = layers[i];
    const Limits l = limits_of(k, ceilings);
    std::vector<std::string> cells = {k.layer,
                                      k.precision,
                                      in_units(k.flops, 1e6),
                                      in_units(k.bytes, 1e6),
                                      fmt::format("{:.1f}", l.intensity),
                                      l.ridge ? fmt::format("{:.1f}", *l.ridge) : "-",
                                      l.limit};
    if (!p.predicted) cells.push_back(l.least_us ? unit.text(*l.least_us) : "-");
    cells.push_back(unit.text(k.us));
    table.add(std::move(cells));
  }
  fmt::print("\n{}\n{}",
             wrap(cat("intensity, ", say_shown(shown, layers.size(), "layer by layer"),
                      ": below the ridge, in flop/byte, a layer meets the memory's ceiling first"),
                  0, 2),
             table.text());
}

}  // namespace tessera
