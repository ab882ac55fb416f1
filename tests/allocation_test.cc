// SPDX-License-Identifier: Apache-2.0
// Running an engine on the CPU allocates nothing, the first time included, and executors share the weights. This
// program's own malloc family counts.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "assemble/build_engine.h"
#include "base/parallel.h"
#include "runtime/bind.h"
#include "runtime/executor.h"
#include "testing/engine_from.h"
#include "types/precisions/precision.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TS_COUNTS 1
#endif

namespace {
std::atomic<int64_t> allocations{0}, bytes_held{0};

[[maybe_unused]] void* counted(void* p) {
  ++allocations;
  bytes_held += static_cast<int64_t>(malloc_usable_size(p));
  return p;
}
}  // namespace

#ifdef TS_COUNTS
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
void* malloc(size_t n) { return counted(__libc_malloc(n)); }
void* calloc(size_t n, size_t size) { return counted(__libc_calloc(n, size)); }
void* realloc(void* p, size_t n) {
  bytes_held -= static_cast<int64_t>(malloc_usable_size(p));
  return counted(__libc_realloc(p, n));
}
void* aligned_alloc(size_t alignment, size_t n) { return counted(__libc_memalign(alignment, n)); }
int posix_memalign(void** out, size_t alignment, size_t n) {
  *out = counted(__libc_memalign(alignment, n));
  return *out == nullptr ? ENOMEM : 0;
}
void free(void* p) {
  bytes_held -= static_cast<int64_t>(malloc_usable_size(p));
  __libc_free(p);
}
// Large buffers are maps of their own.
void* mmap(void* address, size_t n, int protection, int flags, int fd, off_t offset) noexcept {
  ++allocations;
  bytes_held += static_cast<int64_t>(n);
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, n, protection, flags, fd, offset));
}
int munmap(void* address, size_t n) noexcept {
  bytes_held -= static_cast<int64_t>(n);
  return static_cast<int>(syscall(SYS_munmap, address, n));
}
}
#endif

namespace tessera {
namespace {

TEST(Allocation, RunningAllocatesNothing) {
#ifndef TS_COUNTS
  GTEST_SKIP() << "malloc cannot be counted here";
#endif
  const std::string model = std::string(TS_SOURCE_DIR) + "/assets/digits/vit.onnx";
  ASSERT_TRUE(std::filesystem::exists(model));
  set_threads(3);
  for (const std::string& precision : precision_names()) {
    SCOPED_TRACE(precision);
    BuildOptions options;
    options.model_path = model, options.target = Arch::cpu, options.batches = {5};
    options.precision = precision, options.quiet = true, options.golden = false;
    const auto built = engine_from(options);
    ASSERT_TRUE(built.ok()) << built.status().message();
    const Engine& engine = *built;
    const Plan& plan = engine.plans.front();
    EXPECT_GT(allocations, 0) << "nothing was counted so far: this test would say nothing";
    auto executor = bind(engine, plan);
    ASSERT_TRUE(executor.ok()) << executor.status().message();
    const auto floats = [](int64_t bytes) {
      return std::vector<float>(static_cast<size_t>(bytes) / sizeof(float), 0.5f);
    };
    std::vector<float> in = floats(port_bytes(plan, plan.inputs[0])), out = floats(port_bytes(plan, plan.outputs[0]));
    const void* ins[] = {in.data()};
    void* outs[] = {out.data()};
    for (int run = 0; run < 2; ++run) {
      const int64_t before = allocations;
      const Status s = (*executor)->run(ins, outs);
      EXPECT_EQ(allocations - before, 0) << "run " << run;
      EXPECT_TRUE(s.ok()) << s.message();
    }
  }
}

// n executors take the weights once, and n times arena and state.
TEST(Allocation, AnExecutorAddsItsArenaAndItsState) {
#ifndef TS_COUNTS
  GTEST_SKIP() << "malloc cannot be counted here";
#endif
  BuildOptions options;
  options.model_path = std::string(TS_SOURCE_DIR) + "/assets/digits/vit.onnx", options.target = Arch::cpu;
  options.batches = {5}, options.precision = "fp32", options.quiet = true, options.golden = false;
  auto built = engine_from(options);
  ASSERT_TRUE(built.ok()) << built.status().message();
  Engine& engine = *built;
  engine.states = {{"cache", 3 << 20}};
  int64_t weights = 0;
  for (const EngineConstant& c : engine.constants) weights += static_cast<int64_t>(c.data.size());
  const int64_t own = engine.plans[0].arena_bytes + engine.states[0].bytes;
  std::vector<std::unique_ptr<Executor>> executors;
  executors.reserve(5);
  for (int i = 0; i < 5; ++i) {
    const int64_t before = bytes_held;
    auto executor = bind(engine, engine.plans[0]);
    ASSERT_TRUE(executor.ok()) << executor.status().message();
    executors.push_back(std::move(executor).value());
    if (i == 0) continue;  // it also makes the blocks of scratch memory, which all kernels of the process share
    const int64_t added = bytes_held - before;
    EXPECT_GE(added, own);
    EXPECT_LT(added - own, weights / 8) << "of " << weights << " bytes of weights";
  }
  const int64_t all = bytes_held;
  executors.clear();
  EXPECT_LE(bytes_held, all - 5 * own) << "executors give back what they took";
}

}  // namespace
}  // namespace tessera
