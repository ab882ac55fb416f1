// SPDX-License-Identifier: Apache-2.0
#include "profile/ceilings.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "archs/cuda/device_memory.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "ops/ops.h"
#include "plan/choose.h"
#include "profile/step_facts.h"
#include "runtime/recording.h"
#include "runtime/time_kernel.h"
#include "types/precisions/precision.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Seconds of the fastest of a few calls: what disturbs a run of the machine only makes it longer.
template <class F>
double fastest(int times, const F& call) {
  double best = 0;
  for (int i = 0; i < times; ++i) {
    const auto start = Clock::now();
    call();
    const double s = seconds_since(start);
    if (i == 0 || s < best) best = s;
  }
  return best;
}

// Reading alone, and copying (each byte read and written counts): the faster of the two. Larger than any cache.
Result<double> host_bandwidth() {
  constexpr int64_t kBytes = int64_t{192} << 20, kPiece = int64_t{1} << 20;
  TS_ASSIGN(Buffer from, allocate(kBytes, "the array that bandwidth is measured with"));
  TS_ASSIGN(Buffer to, allocate(kBytes, "the array that bandwidth is measured with"));
  std::memset(from.data(), 1, from.size());  // pages of its own, not the one of zeros
  std::memset(to.data(), 2, to.size());
  const double copied = fastest(8, [&] {
    parallel_for(kBytes / kPiece, 1, [&](int64_t begin, int64_t end) {
      std::memcpy(to.data() + begin * kPiece, from.data() + begin * kPiece,
                  static_cast<size_t>((end - begin) * kPiece));
    });
  });
  std::atomic<uint64_t> all{0};
  const double read = fastest(8, [&] {
    parallel_for(kBytes / kPiece, 1, [&](int64_t begin, int64_t end) {
      uint64_t sum[8] = {};
      const auto* words = reinterpret_cast<const uint64_t*>(from.data() + begin * kPiece);
      for (int64_t i = 0; i < (end - begin) * kPiece / 8; i += 8) {
        for (int64_t lane = 0; lane < 8; ++lane) sum[lane] += words[i + lane];
      }
      for (const uint64_t s : sum) all += s;
    });
  });
  TS_CHECK(all != 0, "the array holds ones");
  return static_cast<double>(kBytes) * std::max(1 / read, 2 / copied);
}

// By the driver's own copy, of arrays larger than the L2.
Result<double> device_bandwidth() {
  constexpr size_t kBytes = size_t{512} << 20;
  constexpr int kCopies = 20;
  DeviceBuffer from, to;
  TS_TRY(from.allocate(kBytes));
  TS_TRY(to.allocate(kBytes));
  TS_TRY(fill_device(from.data(), 1, kBytes));
  TS_TRY(device_synchronise());
  Recording copies;
  TS_TRY(copies.record([&](Stream stream) -> Status {
    for (int i = 0; i < kCopies; ++i) TS_TRY(copy_on_device(to.data(), from.data(), kBytes, stream));
    return {};
  }));
  Status status;
  const double seconds = fastest(5, [&] {
    if (status.ok()) status = copies.launch(copies.stream());
    if (status.ok()) status = copies.wait();
  });
  TS_TRY(status);
  return 2.0 * kBytes * kCopies / seconds;
}

// The fastest kernel that this arch has for the problem.
struct Best {
  double us = 0;  // 0: none runs here
  std::string computed;
};
Best best_kernel(const OpInfo& op, const Problem& problem, Arch arch) {
  Best best;
  const ProblemBytes bytes = random_bytes(problem, /*seed=*/1);
  for (const Candidate& c : candidates(op, problem, arch)) {
    Problem as = problem;
    as.config = c.config;
    const Result<KernelTimes> times = time_kernel(*c.variant, as, bytes, {.calls = 4, .replays = 9, .warm_ms = 2});
    if (!times.ok()) continue;  // a library that is not here: another kernel is the best then
    if (best.us > 0 && times->fastest_us >= best.us) continue;
    best = {times->fastest_us, precision_word(arithmetic_name(c.variant->arithmetic(as).computed))};
  }
  return best;
}

// Large enough that products, not the ends of tiles, take the time: eight waves of the largest tiles on 132 SMs.
struct Sizes {
  int64_t m, n, k;
};
Sizes sizes_for(Arch arch) {
  if (info(arch).device == DeviceKind::kCuda) return {8192, 4096, 4096};
  return threads() > 8 ? Sizes{2048, 2048, 2048} : Sizes{1024, 1024, 1024};
}

Problem product(const Precision& p, const Sizes& size) {
  return {.op = "matmul",
          .in = {dense_operand({size.m, size.k}, p.activation), dense_operand({size.n, size.k}, p.weight, true)},
          .out = {dense_operand({size.m, size.n}, p.carrier)},
          .attrs = {},
          .then = {}};
}

}  // namespace

Result<Ceilings> measure_ceilings(Arch arch, const std::string& machine) {
  Ceilings c{.machine = machine, .measured = true, .bytes_per_s = 0, .flops_per_s = {}};
  const bool on_host = info(arch).device == DeviceKind::kHost;
  TS_ASSIGN(c.bytes_per_s, on_host ? host_bandwidth() : device_bandwidth());
  if (!on_host) {
    const Operand array = dense_operand({8192, 8192}, Element::f32);
    const Problem copy{.op = "copy", .in = {array}, .out = {array}, .attrs = {}, .then = {}};
    const Best best = best_kernel(*find_op("copy"), copy, arch);
    if (best.us > 0) c.bytes_per_s = std::max(c.bytes_per_s, moved_bytes(copy) / best.us * 1e6);
  }
  const OpInfo& matmul = *find_op("matmul");
  const Sizes size = sizes_for(arch);
  for (const char* name : {"fp32", "fp16", "bf16", "fp8", "int8"}) {
    const Problem problem = product(*find_precision(name), size);
    const Best best = best_kernel(matmul, problem, arch);
    if (best.us <= 0) continue;
    const double rate = matmul.flops(problem) / best.us * 1e6;
    const auto known = std::find_if(c.flops_per_s.begin(), c.flops_per_s.end(),
                                    [&](const auto& r) { return r.first == best.computed; });
    if (known == c.flops_per_s.end()) {
      c.flops_per_s.push_back({best.computed, rate});
    } else {
      known->second = std::max(known->second, rate);
    }
  }
  return c;
}

}  // namespace tessera
