// SPDX-License-Identifier: Apache-2.0
#include "testing/device_bench.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "archs/chip.h"
#include "io/atomic_file.h"
#include "op/reference.h"
#include "ops/ops.h"
#include "plan/choose.h"
#include "runtime/time_kernel.h"
#include "testing/mutations.h"

namespace tessera {
namespace {

// Indices to take along each axis; an axis without any is taken whole.
using Picks = std::vector<std::vector<int64_t>>;

// At both ends, around the edges of tiles, and spread over the rest.
std::vector<int64_t> few_of(int64_t n) {
  std::vector<int64_t> rows;
  for (int64_t r :
       {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{64}, int64_t{127}, int64_t{128}, n / 2, n - 65, n - 2, n - 1}) {
    if (r >= 0 && r < n) rows.push_back(r);
  }
  constexpr int64_t kSpread = 100;
  for (int64_t i = 0; i < kSpread && n > kSpread; ++i) rows.push_back((i * n / kSpread * 7919 + i) % n);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

// Which part of each input and of the result is looked at.
struct Part {
  std::vector<Picks> in;
  Picks out;
};

Part part_of(const Problem& p) {
  Part part;
  part.in.resize(p.in.size());
  if (p.op == "attention") {
    // How wide heads are cut into blocks depends on the number of queries: of those all are looked at.
    constexpr int64_t kWide = 128;
    const std::vector<int64_t> batch = {p.in[0].shape[0] - 1},
                               queries = p.in[0].shape[3] > kWide ? std::vector<int64_t>() : few_of(p.in[0].shape[1]);
    part.in[0] = {batch, queries};
    for (size_t i = 1; i < p.in.size(); ++i) part.in[i] = {batch};
    part.out = {batch, queries};
    return part;
  }
  const int64_t rows = p.out[0].shape[0];
  part.out = {few_of(rows)};
  for (size_t i = 0; i < p.in.size(); ++i) {
    if (!p.in[i].constant && p.in[i].present && p.in[i].shape.size() >= p.out[0].shape.size() &&
        p.in[i].shape[0] == rows)  // a pooled norm's x has an axis more
      part.in[i] = part.out;
  }
  return part;
}

Buffer copy_of(const Bytes& b) {
  Buffer out(b.size());
  if (b.size() > 0) std::memcpy(out.data(), b.data(), b.size());
  return out;
}

// The picked elements as a dense tensor. Contract: elements of whole bytes, last axis whole and contiguous, scales per
// tensor or of a whole weight.
HostTensor take(const Operand& o, const uint8_t* codes, const OperandBytes& bytes, const Picks& picks) {
  HostTensor t{.desc = o, .data = {}, .scale = copy_of(bytes.scale), .scale2 = copy_of(bytes.scale2)};
  if (!o.present) return t;
  Shape shape = o.shape;
  for (size_t a = 0; a < picks.size(); ++a) {
    if (!picks[a].empty()) shape[a] = static_cast<int64_t>(picks[a].size());
  }
  t.desc.shape = shape;
  t.desc.strides = dense_strides(shape);
  const int64_t cols = shape.empty() ? 1 : shape.back(), rows = elements(shape) / std::max<int64_t>(cols, 1);
  const auto bytes_of = [&](int64_t count) { return static_cast<size_t>(packed_bytes(o.type.element, count)); };
  t.data = Buffer(bytes_of(elements(shape)));
  for (int64_t r = 0; r < rows; ++r) {
    int64_t at = 0, rest = r;
    for (size_t a = shape.size() - (shape.empty() ? 0 : 1); a-- > 0;) {
      const int64_t i = rest % shape[a];
      rest /= shape[a];
      at += (a < picks.size() && !picks[a].empty() ? picks[a][static_cast<size_t>(i)] : i) * o.strides[a];
    }
    std::memcpy(t.data.data() + bytes_of(r * cols), codes + bytes_of(at), bytes_of(cols));  // rows end at whole bytes
  }
  return t;
}

using Json = nlohmann::ordered_json;

struct Row {
  Json json;
  bool fine = false;
};

Row bench_one(const std::string& gpu, const DeviceForm& form, const Variant& v, const std::string& config,
              const ProblemBytes& bytes, Case& few) {
  Row row;
  row.json = {{"op", form.problem.op}, {"form", form.label}, {"variant", v.name}, {"config", config}};
  Problem p = form.problem;
  p.config = config;
  std::vector<Buffer> results;
  const auto times = time_kernel(v, p, bytes, {}, &results);
  if (!times.ok()) {
    row.json["error"] = times.status().message();
    return row;
  }
  few.problem.config = config;
  const Judge judge = judge_of(v, few);
  std::vector<HostTensor> rows;
  rows.push_back(sampled_result(p, bytes, results[0]));
  const Judgement found = judge.of(views_of(rows));
  row.json["worst_error"] = found.share;
  const bool exact = judge.emulated() && found.allowed_l2 == 0;
  row.json["check"] = {{"kind", exact              ? "bit-equal"
                                : judge.emulated() ? "emulated"
                                                   : "bounded"},
                       {"relative_l2", found.relative_l2},
                       {"relative_l2_allowed", found.allowed_l2},
                       {"results", elements(rows[0].desc.shape)},
                       {"mutations_caught", mutations_caught(judge, rows)}};
  const OpInfo& op = *find_op(p.op);
  const double flops = op.flops != nullptr ? op.flops(p) : 0, seconds = times->us * 1e-6;
  row.json.update({{"us", times->us},
                   {"fastest_us", times->fastest_us},
                   {"bytes", times->bytes},
                   {"flops", flops},
                   {"tflops", flops / seconds * 1e-12},
                   {"gb_per_s", times->bytes / seconds * 1e-9},
                   {"roofline", roofline_seconds(gpu, v.arithmetic(p).computed, flops, times->bytes) / seconds},
                   {"calls", times->calls},
                   {"replays", times->replays},
                   {"sets", times->sets}});
  row.fine = found.ok();
  if (!row.fine) row.json["error"] = "wrong result";
  return row;
}

}  // namespace

DeviceBench device_bench_arguments(int& argc, char** argv) {
  DeviceBench bench;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--gpu") {
      bench.wanted = true;
    } else if (word.starts_with("--gpu=")) {
      bench.wanted = true, bench.file = word.substr(6);
    } else if (word == "--gpu_list") {
      bench.wanted = bench.list = true;
    } else if (word.starts_with("--gpu_filter=")) {
      bench.filter = word.substr(13);
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  return bench;
}

double roofline_seconds(const std::string& gpu, Element computed, double flops, double bytes) {
  const Chip* chip = find_chip(gpu);
  if (chip == nullptr) return 0;
  const int bits = info(computed).bits;
  const double rate = computed == Element::i8 ? chip->i8_per_s
                      : bits == 8             ? chip->f8_per_s
                      : bits == 16            ? chip->f16_per_s
                                              : 0;
  return std::max(rate > 0 ? flops / rate : 0, bytes / chip->bytes_per_s);
}

Case sampled_case(const Problem& problem, const ProblemBytes& bytes) {
  const Part part = part_of(problem);
  Case c{.problem = problem, .in = {}, .out = {}, .numbers = {}, .exact = {}};
  for (size_t i = 0; i < problem.in.size(); ++i) {
    c.in.push_back(take(problem.in[i], bytes.in[i].data.data(), bytes.in[i], part.in[i]));
    c.problem.in[i] = c.in[i].desc;
    c.numbers.push_back(problem.in[i].present ? decode(c.in[i].view()) : Dense{});
  }
  Shape& shape = c.problem.out[0].shape;
  for (size_t a = 0; a < part.out.size(); ++a) {
    if (!part.out[a].empty()) shape[a] = static_cast<int64_t>(part.out[a].size());
  }
  c.problem.out[0].strides = dense_strides(shape);
  c.out.push_back({.desc = c.problem.out[0],
                   .data = {},
                   .scale = copy_of(bytes.out[0].scale),
                   .scale2 = copy_of(bytes.out[0].scale2)});
  c.exact = compute_reference(*find_op(problem.op), c.problem, c.numbers);
  return c;
}

HostTensor sampled_result(const Problem& problem, const ProblemBytes& bytes, const Buffer& codes) {
  return take(problem.out[0], codes.data(), bytes.out[0], part_of(problem).out);
}

int bench_on_device(const DeviceBench& bench, const std::vector<DeviceForm>& forms) {
  if (bench.list) {
    for (const DeviceForm& form : forms) {
      std::printf("%s/%s:", form.problem.op.c_str(), form.label.c_str());
      for (const Candidate& c : candidates(*find_op(form.problem.op), form.problem, Arch::sm90))
        std::printf(" [%s]", kernel_name(c.variant->name, c.config).c_str());
      std::printf("\n");
    }
    return 0;
  }
  if (const std::string why = why_no_device(Arch::cuda); !why.empty()) {
    std::fprintf(stderr, "--gpu: %s\n", why.c_str());
    return 1;
  }
  const std::string gpu = device_name(0);
  Json rows = Json::array();
  bool fine = true;
  std::printf("%-58s %-36s %9s %8s %8s %9s %6s\n", "form", "kernel", "us", "TFLOP/s", "GB/s", "roofline", "error");
  for (const DeviceForm& form : forms) {
    if ((form.problem.op + "/" + form.label).find(bench.filter) == std::string::npos) continue;
    ProblemBytes bytes;
    Case few;
    for (const Variant* v : find_op(form.problem.op)->variants) {
      if (info(v->arch).device != DeviceKind::kCuda || !device_present(v->arch) || !v->accepts(form.problem)) continue;
      if (bytes.in.empty())
        bytes = random_bytes(form.problem, 1, form.result_amax), few = sampled_case(form.problem, bytes);
      for (const std::string& config : configs_of(*v, form.problem)) {
        const Row row = bench_one(gpu, form, *v, config, bytes, few);
        fine = fine && row.fine;
        const std::string kernel = kernel_name(v->name, config);
        if (row.json.contains("us")) {
          std::printf("%-58s %-36s %9.2f %8.1f %8.0f %8.1f%% %6.2f%s\n", form.label.c_str(), kernel.c_str(),
                      row.json["us"].get<double>(), row.json["tflops"].get<double>(),
                      row.json["gb_per_s"].get<double>(), 100 * row.json["roofline"].get<double>(),
                      row.json["worst_error"].get<double>(), row.fine ? "" : "  WRONG RESULT");
        } else {
          std::printf("%-58s %-36s %s\n", form.label.c_str(), kernel.c_str(),
                      row.json["error"].get<std::string>().c_str());
        }
        std::fflush(stdout);
        rows.push_back(row.json);
      }
    }
  }
  const Chip* chip = find_chip(gpu);
  Json record = {{"gpu", gpu}, {"peaks", Json::object()}, {"rows", rows}};
  if (chip != nullptr)
    record["peaks"] = {{"tflops_16_bits", chip->f16_per_s * 1e-12},
                       {"tflops_8_bits", chip->f8_per_s * 1e-12},
                       {"tb_per_s", chip->bytes_per_s * 1e-12}};
  if (!bench.file.empty()) {
    if (const Status s = write_file(bench.file, record.dump(1) + "\n"); !s.ok()) {
      std::fprintf(stderr, "%s\n", s.message().c_str());
      return 1;
    }
  }
  return fine ? 0 : 1;
}

}  // namespace tessera
