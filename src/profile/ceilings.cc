// SPDX-License-Identifier: Apache-2.0
#include "profile/ceilings.h"

#include <time.h>

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

constexpr double kAgree = 0.9;  // of the highest: two measurements that are nearer are of one machine

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

double cpu_seconds() {
  struct timespec t {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// What makes measurements doubtful, as they are made.
class Doubts {
 public:
  void look_at_cores() { share_ = std::min(share_, share_of_cores()); }
  // Where others compute, repeating takes long and mends nothing: the result is in doubt anyhow.
  int repeats() const { return share_ < kAlone ? 1 : 4; }
  double take(const std::string& what, const Repeated& r) {
    if (!r.agree() && r.second > 0)
      add(cat("two measurements of ", what, " differ by ", std::llround(100 * (1 - r.second / r.best)), " %"));
    return r.best;
  }
  std::string text() {
    if (share_ < kAlone) add(cat("other programs had ", std::llround(100 * (1 - share_)), " % of the cores meanwhile"));
    return text_;
  }

 private:
  void add(const std::string& what) { text_ += cat(text_.empty() ? "" : ", and ", what); }
  double share_ = 1;
  std::string text_;
};

// Reading alone, and copying (each byte read and written counts): the faster of the two. Larger than any cache.
Result<double> host_bandwidth(Doubts& doubts) {
  constexpr int64_t kBytes = int64_t{192} << 20, kPiece = int64_t{1} << 20;
  TS_ASSIGN(Buffer from, allocate(kBytes, "the array that bandwidth is measured with"));
  TS_ASSIGN(Buffer to, allocate(kBytes, "the array that bandwidth is measured with"));
  std::memset(from.data(), 1, from.size());  // pages of its own, not the one of zeros
  std::memset(to.data(), 2, to.size());
  const auto copy = [&] {
    parallel_for(kBytes / kPiece, 1, [&](int64_t begin, int64_t end) {
      std::memcpy(to.data() + begin * kPiece, from.data() + begin * kPiece,
                  static_cast<size_t>((end - begin) * kPiece));
    });
  };
  std::atomic<uint64_t> all{0};
  const auto read = [&] {
    parallel_for(kBytes / kPiece, 1, [&](int64_t begin, int64_t end) {
      uint64_t sum[8] = {};
      const auto* words = reinterpret_cast<const uint64_t*>(from.data() + begin * kPiece);
      for (int64_t i = 0; i < (end - begin) * kPiece / 8; i += 8) {
        for (int64_t lane = 0; lane < 8; ++lane) sum[lane] += words[i + lane];
      }
      for (const uint64_t s : sum) all += s;
    });
  };
  const double rate =
      doubts.take("the bandwidth", repeat_until_agreed(
                                       [&] {
                                         const double reading = fastest(8, read), copying = fastest(8, copy);
                                         return static_cast<double>(kBytes) * std::max(1 / reading, 2 / copying);
                                       },
                                       doubts.repeats()));
  TS_CHECK(all != 0, "the array holds ones");
  return rate;
}

// By the driver's own copy, of arrays larger than the L2.
Result<double> device_bandwidth(Doubts& doubts) {
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
  const auto launch = [&] {
    if (status.ok()) status = copies.launch(copies.stream());
    if (status.ok()) status = copies.wait();
  };
  const double rate =
      doubts.take("the bandwidth",
                  repeat_until_agreed([&] { return 2.0 * kBytes * kCopies / fastest(5, launch); }, doubts.repeats()));
  TS_TRY(status);
  return rate;
}

// The fastest kernel that this arch has for the problem.
struct Best {
  Repeated per_us;  // `work` of the problem; 0: none runs here
  std::string computed;
};
Best best_kernel(const OpInfo& op, const Problem& problem, Arch arch, double work, int repeats) {
  const ProblemBytes bytes = random_bytes(problem, /*seed=*/1);
  const auto us_of = [&](const Candidate& c) {
    Problem as = problem;
    as.config = c.config;
    const Result<KernelTimes> times = time_kernel(*c.variant, as, bytes, {.calls = 4, .replays = 9, .warm_ms = 2});
    return times.ok() ? times->fastest_us : 0;  // a library that is not here: another kernel is the best then
  };
  const std::vector<Candidate> all = candidates(op, problem, arch);
  const Candidate* best = nullptr;
  double least = 0;
  for (const Candidate& c : all) {
    const double us = us_of(c);
    if (us > 0 && (best == nullptr || us < least)) best = &c, least = us;
  }
  if (best == nullptr) return {};
  bool first = true;  // it was measured already
  const Repeated rate = repeat_until_agreed(
      [&] {
        const double us = first ? least : us_of(*best);
        first = false;
        return us > 0 ? work / us : 0;
      },
      repeats);
  Problem as = problem;
  as.config = best->config;
  return {rate, precision_word(arithmetic_name(best->variant->arithmetic(as).computed))};
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

void raise(Ceilings& c, const std::string& precision, double rate) {
  const auto known =
      std::find_if(c.flops_per_s.begin(), c.flops_per_s.end(), [&](const auto& r) { return r.first == precision; });
  if (known == c.flops_per_s.end()) {
    c.flops_per_s.push_back({precision, rate});
  } else {
    known->second = std::max(known->second, rate);
  }
}

}  // namespace

bool Repeated::agree() const { return best > 0 && second >= kAgree * best; }

Repeated repeat_until_agreed(const std::function<double()>& measure, int most) {
  Repeated r;
  for (int i = 0; i < most && !r.agree(); ++i) {
    const double value = measure();
    r.second = std::max(r.second, std::min(r.best, value));
    r.best = std::max(r.best, value);
  }
  return r;
}

double share_of_cores() {
  constexpr double kSeconds = 0.05;
  const int count = threads();
  const double before = cpu_seconds();
  const auto start = Clock::now();
  parallel_for(count, 1, [&](int64_t, int64_t) {
    while (seconds_since(start) < kSeconds) continue;
  });
  const double wall = seconds_since(start);
  return std::min(1.0, (cpu_seconds() - before) / (wall * count));
}

Ceilings higher_of(Ceilings a, const Ceilings& b) {
  a.bytes_per_s = std::max(a.bytes_per_s, b.bytes_per_s);
  for (const auto& [precision, rate] : b.flops_per_s) raise(a, precision, rate);
  return a;
}

Result<Ceilings> measure_ceilings(Arch arch, const std::string& machine) {
  Ceilings c{.machine = machine, .measured = true, .bytes_per_s = 0, .flops_per_s = {}};
  const bool on_host = info(arch).device == DeviceKind::kHost;
  Doubts doubts;
  if (on_host) doubts.look_at_cores();
  TS_ASSIGN(c.bytes_per_s, on_host ? host_bandwidth(doubts) : device_bandwidth(doubts));
  if (!on_host) {
    const Operand array = dense_operand({8192, 8192}, Element::f32);
    const Problem copy{.op = "copy", .in = {array}, .out = {array}, .attrs = {}, .then = {}};
    const Best best = best_kernel(*find_op("copy"), copy, arch, moved_bytes(copy), doubts.repeats());
    c.bytes_per_s = std::max(c.bytes_per_s, best.per_us.best * 1e6);
  }
  const OpInfo& matmul = *find_op("matmul");
  const Sizes size = sizes_for(arch);
  for (const char* name : {"fp32", "fp16", "bf16", "fp8", "int8"}) {
    const Problem problem = product(*find_precision(name), size);
    const Best best = best_kernel(matmul, problem, arch, matmul.flops(problem), doubts.repeats());
    if (best.per_us.best <= 0) continue;
    raise(c, best.computed, doubts.take(cat("products in ", best.computed), best.per_us) * 1e6);
    if (on_host) doubts.look_at_cores();
  }
  c.doubt = doubts.text();
  return c;
}

}  // namespace tessera
