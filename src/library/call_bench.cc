// SPDX-License-Identifier: Apache-2.0
// What a call through the C ABI costs over the same call of the executor: an engine so small that little else is left.
#include <benchmark/benchmark.h>
#include <tessera/tessera.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "plan/engine_file.h"
#include "runtime/test_engine.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 1, kCols = 4;

void executor_run(benchmark::State& state) {
  const Engine engine = remembering_engine(Arch::cpu, kRows, kCols);
  auto executor = bind(engine, engine.plans[0], {.threads = 1});
  if (!executor.ok()) return state.SkipWithError(executor.status().message().c_str());
  float x[kCols] = {1, 2, 3, 4}, y[kCols], before[kCols];
  const void* in[] = {x};
  void* out[] = {y, before};
  for (auto _ : state) {
    if (!(*executor)->run(in, out).ok()) return state.SkipWithError("run failed");
  }
}
BENCHMARK(executor_run);

void tess_run_call(benchmark::State& state) {
  const std::string path = cat("/tmp/tessera_call_bench_", std::rand(), ".tess");
  const Status written = write_engine(remembering_engine(Arch::cpu, kRows, kCols), path);
  tess_engine* engine = nullptr;
  tess_context* context = nullptr;
  tess_context_options options{};
  options.size = sizeof(options), options.plan = "main", options.threads = 1;
  const bool made = written.ok() && tess_engine_open(path.c_str(), nullptr, &engine) == nullptr &&
                    tess_context_make(engine, &options, &context) == nullptr;
  std::remove(path.c_str());
  if (!made) return state.SkipWithError("no context");
  float x[kCols] = {1, 2, 3, 4}, y[kCols], before[kCols];
  int64_t shape[] = {kRows, kCols};
  const auto tensor = [&](float* data) {
    return tess_tensor{data, {TESS_CPU, 0}, 2, {TESS_FLOAT, 32, 1}, shape, nullptr, 0};
  };
  tess_tensor tx = tensor(x), ty = tensor(y), tb = tensor(before);
  const tess_tensor* in[] = {&tx};
  tess_tensor* out[] = {&ty, &tb};
  for (auto _ : state) {
    if (tess_run(context, in, 1, out, 2) != nullptr) return state.SkipWithError("run failed");
  }
  tess_context_free(context);
  tess_engine_free(engine);
}
BENCHMARK(tess_run_call);

}  // namespace
}  // namespace tessera

BENCHMARK_MAIN();
