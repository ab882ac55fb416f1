// SPDX-License-Identifier: Apache-2.0
// The C ABI through the shared library, as a program calls it: numbers, states, schedules, threads, a fork. Answers
// are those of the runtime, bit for bit.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <tessera/tessera.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "runtime/test_engine.h"
#include "testing/library_calls.h"
#include "testing/turns.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 3, kCols = 5;
constexpr size_t kCount = kRows * kCols;

std::vector<float> random_numbers(size_t count) {
  static std::mt19937 generator(std::random_device{}());
  std::uniform_int_distribution<int> whole(-9999, 9999);
  std::vector<float> x(count);
  for (float& v : x) v = static_cast<float>(whole(generator));
  return x;
}

// The remembering engine: y = x * w, before = the x of the last run.
struct Remembered {
  std::vector<float> y = std::vector<float>(kCount), before = std::vector<float>(kCount);
  int code = 0;
};
Remembered remember(tess_context* context, std::vector<float>& x) {
  Remembered r;
  std::fill(r.y.begin(), r.y.end(), NAN), std::fill(r.before.begin(), r.before.end(), NAN);
  HostTensor in(x, {kRows, kCols}), y(r.y, {kRows, kCols}), before(r.before, {kRows, kCols});
  const tess_tensor* ins[] = {&in.tensor};
  tess_tensor* outs[] = {&y.tensor, &before.tensor};
  r.code = code_of(tess_run(context, ins, 1, outs, 2));
  return r;
}

TEST(Library, ListsPlansAndPorts) {
  const EngineFolder folder;
  const Held<tess_engine> engine = open_file(folder.write(remembering_engine(Arch::cpu, kRows, kCols), "e.tess"));
  ASSERT_NE(engine, nullptr);
  ASSERT_EQ(tess_plan_count(engine.get()), 1u);
  tess_plan_info plan{};
  plan.size = sizeof(plan);
  ASSERT_OK(tess_plan(engine.get(), 0, &plan));
  EXPECT_STREQ(plan.name, "main");
  EXPECT_STREQ(plan.graph, "main");
  EXPECT_STREQ(plan.arch, "cpu");
  EXPECT_EQ(plan.batch, kRows);
  EXPECT_EQ(plan.inputs, 1u);
  EXPECT_EQ(plan.outputs, 2u);
  EXPECT_EQ(plan.device_type, TESS_CPU);
  EXPECT_EQ(plan.arena_bytes, 2 * static_cast<int64_t>(kCount) * 4);
  tess_port_info port{};
  port.size = sizeof(port);
  ASSERT_OK(tess_port(engine.get(), 0, 1, 1, &port));
  EXPECT_STREQ(port.name, "before");
  EXPECT_STREQ(port.element, "f32");
  EXPECT_EQ(port.dtype.code, TESS_FLOAT);
  EXPECT_EQ(port.dtype.bits, 32);
  ASSERT_EQ(port.ndim, 2);
  EXPECT_EQ(port.shape[0], kRows);
  EXPECT_EQ(port.shape[1], kCols);
  EXPECT_EQ(port.bytes, static_cast<int64_t>(kCount) * 4);
  EXPECT_EQ(port.is_state, 0);
  tess_memory memory{};
  memory.size = sizeof(memory);
  ASSERT_OK(tess_memory_needed(engine.get(), nullptr, &memory));
  EXPECT_EQ(memory.weights_bytes, static_cast<int64_t>(kCount) * 4);
  EXPECT_EQ(memory.arena_bytes, plan.arena_bytes);
  EXPECT_EQ(memory.state_bytes, static_cast<int64_t>(kCount) * 4);
  const char* json = nullptr;
  ASSERT_OK(tess_engine_manifest(engine.get(), &json));
  EXPECT_NE(std::strstr(json, "\"plans\""), nullptr) << json;
}

TEST(Library, RunsAndRemembers) {
  const EngineFolder folder;
  const Held<tess_engine> engine = open_file(folder.write(remembering_engine(Arch::cpu, kRows, kCols), "e.tess"));
  const Held<tess_context> context = make_context(engine, "main");
  ASSERT_NE(context, nullptr);
  std::vector<float> last(kCount, 0);
  for (int run = 0; run < 5; ++run) {
    std::vector<float> x = random_numbers(kCount);
    const Remembered r = remember(context.get(), x);
    ASSERT_EQ(r.code, TESS_OK);
    EXPECT_TRUE(is_product(r.y, x));
    EXPECT_EQ(r.before, last);
    last = x;
  }
}

TEST(Library, ContextsShareAStateOrHaveTheirOwn) {
  const EngineFolder folder;
  Held<tess_engine> engine = open_file(folder.write(remembering_engine(Arch::cpu, kRows, kCols), "e.tess"));
  tess_state* made = nullptr;
  ASSERT_OK(tess_state_make(engine.get(), 0, &made));
  Held<tess_state> state(made);
  const Held<tess_context> a = make_context(engine, "main", 0, state.get()),
                           b = make_context(engine, "main", 0, state.get()), alone = make_context(engine, "main");
  // The engine and the caller's handle of the state may go first.
  engine.reset();
  std::vector<float> x = random_numbers(kCount), other = random_numbers(kCount);
  EXPECT_EQ(remember(a.get(), x).before, std::vector<float>(kCount, 0));
  EXPECT_EQ(remember(b.get(), other).before, x);
  EXPECT_EQ(remember(alone.get(), other).before, std::vector<float>(kCount, 0));
  ASSERT_OK(tess_state_clear(state.get()));
  state.reset();
  EXPECT_EQ(remember(a.get(), other).before, std::vector<float>(kCount, 0));
}

TEST(Library, RunsInTheCallersArena) {
  const EngineFolder folder;
  const Held<tess_engine> engine = open_file(folder.digits("fp8", "4"));
  const Held<tess_context> own = make_context(engine, "batch4");
  tess_context_options options{};
  options.size = sizeof(options), options.plan = "batch4";
  tess_memory memory{};
  memory.size = sizeof(memory);
  ASSERT_OK(tess_memory_needed(engine.get(), &options, &memory));
  const auto bytes = static_cast<size_t>(memory.arena_bytes);
  std::vector<uint8_t> block(bytes + 512 + 64, 0xFF);  // NaN, whatever it is read as
  auto* arena = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(block.data()) + 255) / 256 * 256);
  tess_context* made = nullptr;
  options.arena = arena, options.arena_bytes = bytes - 1;
  EXPECT_EQ(code_of(tess_context_make(engine.get(), &options, &made)), TESS_BAD_INPUT);
  options.arena = arena + 8, options.arena_bytes = bytes;
  EXPECT_EQ(code_of(tess_context_make(engine.get(), &options, &made)), TESS_BAD_INPUT);
  EXPECT_EQ(made, nullptr);
  options.arena = arena;
  ASSERT_OK(tess_context_make(engine.get(), &options, &made));
  const Held<tess_context> brought(made);
  std::vector<float> x = digits_images(4), want(40), got(40);
  ASSERT_EQ(run_one(own.get(), x, {4, 1, 8, 8}, want, {4, 10}), TESS_OK);
  ASSERT_EQ(run_one(brought.get(), x, {4, 1, 8, 8}, got, {4, 10}), TESS_OK);
  EXPECT_EQ(got, want);
  EXPECT_FALSE(std::all_of(arena, arena + bytes, [](uint8_t b) { return b == 0xFF; })) << "it ran elsewhere";
  for (uint8_t* p = arena + bytes; p < block.data() + block.size(); ++p) ASSERT_EQ(*p, 0xFF) << "beyond the arena";
}

// 13 samples through plans of 8 and 1: the same numbers as by hand.
TEST(Library, TakesAnyNumberOfSamples) {
  const EngineFolder folder;
  const Held<tess_engine> engine = open_file(folder.digits("fp8", "1,8"));
  const Held<tess_context> any = make_context(engine, nullptr, 1), eight = make_context(engine, "batch8", 1),
                           one = make_context(engine, "batch1", 1);
  std::vector<float> x = digits_images(13), got(130), want;
  std::vector<float> first(x.begin(), x.begin() + 8 * 64), y(80);
  ASSERT_EQ(run_one(eight.get(), first, {8, 1, 8, 8}, y, {8, 10}), TESS_OK);
  want = y;
  for (size_t i = 8; i < 13; ++i) {
    std::vector<float> image(x.begin() + static_cast<std::ptrdiff_t>(i) * 64,
                             x.begin() + static_cast<std::ptrdiff_t>(i + 1) * 64),
        logits(10);
    ASSERT_EQ(run_one(one.get(), image, {1, 1, 8, 8}, logits, {1, 10}), TESS_OK);
    want.insert(want.end(), logits.begin(), logits.end());
  }
  ASSERT_EQ(run_one(any.get(), x, {13, 1, 8, 8}, got, {13, 10}), TESS_OK);
  EXPECT_EQ(got, want);
  std::string said;
  EXPECT_EQ(run_one(any.get(), x, {13, 1, 8, 8}, got, {12, 10}, &said), TESS_BAD_INPUT);
  EXPECT_NE(said.find("13"), std::string::npos) << said;
  EXPECT_EQ(run_one(any.get(), x, {0, 1, 8, 8}, got, {0, 10}), TESS_BAD_INPUT);
}

TEST(Library, ARunIsCancelled) {
  constexpr int64_t kMany = 20000;
  const EngineFolder folder;
  const Held<tess_engine> engine = open_file(folder.digits("fp32", "1"));
  const Held<tess_context> context = make_context(engine, nullptr, 1);
  std::vector<float> image = digits_images(1), x, y(kMany * 10);
  for (int64_t i = 0; i < kMany; ++i) x.insert(x.end(), image.begin(), image.end());
  std::atomic<bool> done{false};
  int code = TESS_OK;
  std::thread runs([&] {
    code = run_one(context.get(), x, {kMany, 1, 8, 8}, y, {kMany, 10});
    done = true;
  });
  while (!done) {  // a cancel before the run begins is none
    EXPECT_OK(tess_cancel(context.get()));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  runs.join();
  EXPECT_EQ(code, TESS_CANCELLED);
  y.resize(10);
  EXPECT_EQ(run_one(context.get(), image, {1, 1, 8, 8}, y, {1, 10}), TESS_OK) << "the next run is a new one";
}

TEST(Library, ACancelBeforeARunIsNone) {
  const EngineFolder folder;
  const Held<tess_engine> engine = open_file(folder.digits("fp32", "1"));
  const Held<tess_context> context = make_context(engine, "batch1", 1);
  std::vector<float> image = digits_images(1), y(10);
  const HostTensor in(image, {1, 1, 8, 8});
  HostTensor out(y, {1, 10});
  const tess_tensor* ins[] = {&in.tensor};
  tess_tensor* outs[] = {&out.tensor};
  for (const bool enqueued : {false, true}) {
    EXPECT_OK(tess_cancel(context.get()));
    EXPECT_OK(enqueued ? tess_enqueue(context.get(), ins, 1, outs, 1, nullptr)
                       : tess_run(context.get(), ins, 1, outs, 1));
  }
}

// Of one plan too, between its steps.
TEST(Library, ARunIsWatched) {
  const EngineFolder folder;
  const Held<tess_engine> engine = open_file(folder.digits("fp32", "1"));
  struct Watch {
    int asked = 0, stop_at = 0;
  } w;
  const tess_go_on_function go_on = [](void* user) {
    auto& watch = *static_cast<Watch*>(user);
    return ++watch.asked == watch.stop_at ? 0 : 1;
  };
  std::vector<float> image = digits_images(1), y(10), want(10);
  for (const char* plan : {"batch1", static_cast<const char*>(nullptr)}) {
    const Held<tess_context> context = make_context(engine, plan, 1);
    ASSERT_EQ(run_one(context.get(), image, {1, 1, 8, 8}, want, {1, 10}), TESS_OK);
    EXPECT_OK(tess_context_watch(context.get(), go_on, &w));
    w = {};
    EXPECT_EQ(run_one(context.get(), image, {1, 1, 8, 8}, y, {1, 10}), TESS_OK);
    EXPECT_EQ(y, want);
    EXPECT_GT(w.asked, 3) << "nobody was asked between the steps";
    for (const int at : {1, w.asked / 2, w.asked}) {
      w = {.asked = 0, .stop_at = at};
      EXPECT_EQ(run_one(context.get(), image, {1, 1, 8, 8}, y, {1, 10}), TESS_CANCELLED) << at;
      EXPECT_EQ(w.asked, at) << "it went on";
    }
    EXPECT_OK(tess_context_watch(context.get(), nullptr, nullptr));
    w = {.asked = 0, .stop_at = 1};
    EXPECT_EQ(run_one(context.get(), image, {1, 1, 8, 8}, y, {1, 10}), TESS_OK);
    EXPECT_EQ(y, want);
    EXPECT_EQ(w.asked, 0);
  }
  EXPECT_EQ(code_of(tess_context_watch(nullptr, go_on, &w)), TESS_USAGE);
}

class LibraryThreads : public testing::Test {
 protected:
  void SetUp() override {
    engine_ = open_file(folder_.digits("fp8", "4"));
    const Held<tess_context> context = make_context(engine_, "batch4");
    const std::vector<float> images = digits_images(64);
    for (size_t i = 0; i < 16; ++i) {
      x_.emplace_back(images.begin() + static_cast<std::ptrdiff_t>(i) * 256,
                      images.begin() + static_cast<std::ptrdiff_t>(i + 1) * 256);
      want_.emplace_back(40);
      ASSERT_EQ(run_one(context.get(), x_[i], {4, 1, 8, 8}, want_[i], {4, 10}), TESS_OK);
    }
    ASSERT_NE(want_[0], want_[1]) << "all answers are alike: this test would say nothing";
  }
  // Answers of each kind: right, busy, and all else.
  struct Counts {
    std::atomic<int> right{0}, busy{0}, wrong{0};
  };
  void ask(tess_context* context, size_t thread, int runs, Counts& counts) {
    std::vector<float> x, y(40);
    for (int run = 0; run < runs; ++run) {
      const size_t i = (static_cast<size_t>(run) * 5 + thread) % x_.size();
      x = x_[i];
      const int code = run_one(context, x, {4, 1, 8, 8}, y, {4, 10});
      ++(code == TESS_BUSY ? counts.busy : code == TESS_OK && y == want_[i] ? counts.right : counts.wrong);
    }
  }

  EngineFolder folder_;
  Held<tess_engine> engine_;
  std::vector<std::vector<float>> x_, want_;
};

TEST_F(LibraryThreads, OneContextInEightThreads) {
  const Held<tess_context> context = make_context(engine_, "batch4");
  Counts counts;
  const int runs = turns(8 * 200) / 8;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 8; ++t) threads.emplace_back([&, t] { ask(context.get(), t, runs, counts); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(counts.wrong, 0);
  EXPECT_GT(counts.right, 0);
  EXPECT_GT(counts.busy, 0);
}

TEST_F(LibraryThreads, AContextInEachOfEightThreads) {
  Counts counts;
  const int runs = turns(8 * 40) / 8;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const Held<tess_context> mine = make_context(engine_, t % 2 == 0 ? "batch4" : nullptr, static_cast<int>(t % 3));
      ask(mine.get(), t, runs, counts);
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(counts.wrong, 0);
  EXPECT_EQ(counts.right, 8 * runs);
}

TEST_F(LibraryThreads, AForkedChildRunsOn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer forbids threads after a fork";
#endif
  const Held<tess_context> shared_pool = make_context(engine_, "batch4"), own_pool = make_context(engine_, "batch4", 3);
  Counts before;
  ask(shared_pool.get(), 0, 3, before);
  ask(own_pool.get(), 0, 3, before);
  ASSERT_EQ(before.right, 6);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    Counts counts;
    ask(shared_pool.get(), 1, 5, counts);
    ask(own_pool.get(), 2, 5, counts);
    _exit(counts.right == 10 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  ask(shared_pool.get(), 3, 3, before);
  EXPECT_EQ(before.right, 9) << "the parent goes on as well";
}

size_t threads_here() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

// The check of golden values runs in the context's own pool. In a child, where no pool has threads yet.
TEST_F(LibraryThreads, AContextOfOneThreadStartsNoOthers) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer forbids threads after a fork";
#endif
  const std::string path = folder_.digits("fp32", "2");
  for (const char* plan : {"batch2", static_cast<const char*>(nullptr)}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      const Held<tess_engine> engine = open_file(path);
      const Held<tess_context> context = make_context(engine, plan, 1);
      std::vector<float> x = digits_images(2), y(20);
      const int code = run_one(context.get(), x, {2, 1, 8, 8}, y, {2, 10});
      _exit(code != TESS_OK ? 100 : static_cast<int>(threads_here()));
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << "status " << status;
  }
}

// While other threads make contexts of the same engine, and are in the first runs of others: checks of golden values
// go on at the fork, in which nobody in the child will ever come to an end.
TEST_F(LibraryThreads, AChildNeverWaitsForItsParentsThreads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer forbids threads after a fork";
#endif
  tess_set_log([](int32_t, const char*, void*) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }, nullptr);
  const std::string path = folder_.digits("fp8", "4");
  for (int round = 0; round < 25; ++round) {
    const Held<tess_engine> engine = open_file(path);
    std::vector<std::thread> threads;
    std::atomic<int> begun{0};
    for (const char* plan : {"batch4", static_cast<const char*>(nullptr)}) {
      threads.emplace_back([&, plan] {
        ++begun;
        const Held<tess_context> context = make_context(engine, plan, 2);
        Counts counts;
        ask(context.get(), 0, 3, counts);
        EXPECT_EQ(counts.right, 3);
      });
    }
    while (begun < 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(400 * round));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      const Held<tess_context> context = make_context(engine, "batch4", 2), any = make_context(engine, nullptr, 2);
      const Held<tess_engine> other = open_file(path);
      const Held<tess_context> of_other = make_context(other, "batch4", 2);
      Counts counts;
      for (tess_context* c : {context.get(), any.get(), of_other.get()}) ask(c, 1, 2, counts);
      _exit(counts.right == 6 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "fork " << round << ": status " << status;
    for (std::thread& t : threads) t.join();
    if (HasFailure()) break;
  }
  tess_set_log(nullptr, nullptr);
}

// x into the state, then ten times x + w.
TEST(LibrarySession, IsTheScheduleAsOneCall) {
  const EngineFolder folder;
  const Held<tess_engine> engine = open_file(folder.write(counting_engine(), "c.tess"));
  tess_session_options options{};
  options.size = sizeof(options);
  tess_session* made = nullptr;
  ASSERT_OK(tess_session_make(engine.get(), &options, &made));
  const Held<tess_session> session(made);
  size_t inputs = 0, outputs = 0;
  ASSERT_OK(tess_session_port_count(session.get(), 0, &inputs));
  ASSERT_OK(tess_session_port_count(session.get(), 1, &outputs));
  ASSERT_EQ(inputs, 1u);
  ASSERT_EQ(outputs, 1u);
  tess_port_info port{};
  port.size = sizeof(port);
  ASSERT_OK(tess_session_port(session.get(), 1, 0, &port));
  EXPECT_STREQ(port.name, "y");
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<float> x = random_numbers(kCounted), y(kCounted, NAN);
    HostTensor in(x, {kCountedRows, kCountedCols}), out(y, {kCountedRows, kCountedCols});
    const tess_tensor* ins[] = {&in.tensor};
    tess_tensor* outs[] = {&out.tensor};
    ASSERT_OK(tess_session_run(session.get(), ins, 1, outs, 1));
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], x[i] + 10 * test_weight(static_cast<int64_t>(i)));
    EXPECT_EQ(code_of(tess_session_run(session.get(), ins, 1, outs, 0)), TESS_BAD_INPUT);
  }
  const tess_case unknown[] = {{"step", "batch9"}}, none[] = {{"step", nullptr}};
  EXPECT_EQ(code_of(tess_session_use(session.get(), unknown, 1)), TESS_BAD_INPUT);
  EXPECT_EQ(code_of(tess_session_use(session.get(), none, 1)), TESS_USAGE);
  EXPECT_OK(tess_session_clear(session.get()));
}

// Constants that golden plans alone read are not brought to a GPU, and nobody reads them on a CPU.
TEST(Library, MemoryNeededCountsWeightsThatPlansRead) {
  const EngineFolder folder;
  for (const auto& [arch, bytes] : {std::pair{Arch::cpu, int64_t{kCount} * 4}, {Arch::cuda, int64_t{256}}}) {
    Engine e = remembering_engine(arch, kRows, kCols);
    Engine golden = remembering_engine(Arch::ref, kRows, kCols);
    e.constants.push_back({"of golden", golden.constants[0].data});
    golden.plans[0].name = kGoldenPlan;
    for (PlanTensor& t : golden.plans[0].tensors) {
      if (t.storage == Storage::kConstant) t.index = 1;
    }
    e.plans.push_back(golden.plans[0]);
    const Held<tess_engine> engine = open_file(folder.write(e, "two.tess"));
    ASSERT_NE(engine, nullptr);
    tess_memory memory{};
    memory.size = sizeof(memory);
    ASSERT_OK(tess_memory_needed(engine.get(), nullptr, &memory));
    EXPECT_EQ(memory.weights_bytes, bytes) << info(arch).name;
  }
}

TEST(Library, TellsItsLogAndPrintsNothing) {
  const EngineFolder folder;
  const std::string path = folder.write(remembering_engine(Arch::cpu, kRows, kCols), "e.tess");
  std::string lines;
  testing::internal::CaptureStderr();
  open_file(path);
  tess_set_log([](int32_t level, const char* line,
                  void* user) { *static_cast<std::string*>(user) += cat(level, " ", line, "\n"); },
               &lines);
  open_file(path);
  tess_set_log(nullptr, nullptr);
  open_file(path);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(lines.find("1 the engine holds no golden values"), 0u) << lines;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
}

}  // namespace
}  // namespace tessera
