// SPDX-License-Identifier: Apache-2.0
// Sessions: graphs over one state, by a schedule and by hand. tests/llama_test.py has real ones.
#include "runtime/session.h"

#include <gtest/gtest.h>

#include <thread>

#include "plan/engine_file.h"
#include "runtime/batches.h"
#include "runtime/test_sessions.h"
#include "runtime/weights.h"
#include "testing/turns.h"
#ifdef TS_WITH_CUDA
#include "runtime/test_device.h"
#endif

namespace tessera {
namespace {

TEST(Session, RunsTheScheduleInOrder) {
  const Engine e = counting_engine();
  const Status sound = check_engine(e);
  ASSERT_TRUE(sound.ok()) << sound.message();
  const auto session = Session::make(e);
  ASSERT_TRUE(session.ok()) << session.status().message();
  ASSERT_EQ((*session)->inputs().size(), 1u);
  ASSERT_EQ((*session)->outputs().size(), 1u);
  EXPECT_EQ((*session)->inputs()[0].name, "x");
  EXPECT_EQ((*session)->outputs()[0].name, "y");
  for (int turn = 0; turn < 3; ++turn) {
    const std::vector<float> x = test_input(kCount, turn);
    std::vector<float> y(kCount, -1);
    const void* in[] = {x.data()};
    void* out[] = {y.data()};
    const Status ran = (*session)->run(in, out);
    ASSERT_TRUE(ran.ok()) << ran.message();
    EXPECT_EQ(y, after(x, 10));
  }
}

// Timed runs are whole ones: the state is what the schedule leaves, and the next step goes on from there.
void time_and_go_on(Arch arch) {
  const Engine e = counting_engine(arch);
  const auto session = Session::make(e);
  ASSERT_TRUE(session.ok()) << session.status().message();
  const std::vector<float> x = test_input(kCount, 3);
  const void* in[] = {x.data()};
  for (const int warmup : {0, 2}) {
    const auto times = (*session)->time_runs(in, 5, warmup);
    ASSERT_TRUE(times.ok()) << times.status().message();
    ASSERT_EQ(times->size(), 5u);
    for (const double ms : *times) EXPECT_GT(ms, 0);
    const auto step = (*session)->graph("step");
    ASSERT_TRUE(step.ok());
    std::vector<float> y(kCount);
    const void* state[] = {nullptr};
    void* out[] = {nullptr, y.data()};
    ASSERT_TRUE((*step)->run(state, out).ok());
    EXPECT_EQ(y, after(x, 11));
  }
  const void* null[] = {nullptr};
  EXPECT_FALSE((*session)->time_runs(null, 1).ok());
}

TEST(Session, TimesWholeRuns) { time_and_go_on(Arch::cpu); }

void run_buckets(Arch arch) {
  const Engine e = bucketed_engine(arch);
  const Status sound = check_engine(e);
  ASSERT_TRUE(sound.ok()) << sound.message();
  auto session = Session::make(e);
  ASSERT_TRUE(session.ok()) << session.status().message();
  const auto held = [&] { return (*(*session)->plan("begin"))->name; };
  EXPECT_EQ(held(), "begin.rows4") << "the largest, where nobody says which";
  std::vector<float> kept(4 * kCols, 0);
  for (const int turn : {0, 1, 2, 3, 4, 5}) {
    const bool few = turn % 2 == 1;
    ASSERT_TRUE((*session)->use({{"begin", few ? "begin.rows2" : "begin.rows4"}}).ok());
    ASSERT_EQ((*session)->inputs().size(), 1u);
    EXPECT_EQ((*session)->inputs()[0].plan->sizes.at("rows"), few ? 2 : 4);
    const std::vector<float> x = test_input((few ? 2 : 4) * kCols, turn);
    take_rows(kept, x);
    std::vector<float> y(4 * kCols, -1);
    const void* in[] = {x.data()};
    void* out[] = {y.data()};
    const Status ran = (*session)->run(in, out);
    ASSERT_TRUE(ran.ok()) << ran.message();
    EXPECT_EQ(y, kept) << "turn " << turn;
  }
  const Status unknown = (*session)->use({{"begin", "begin.rows3"}});
  EXPECT_NE(unknown.message().find("graph 'begin' has no plan called 'begin.rows3'"), std::string::npos);
  EXPECT_NE((*session)->use({{"end", "x"}}).message().find("no graph 'end'"), std::string::npos);
  EXPECT_EQ(held(), "begin.rows2") << "what is refused changes nothing";
}

TEST(Session, PlansOfFewerRowsUseTheFrontOfTheState) { run_buckets(Arch::cpu); }

TEST(Session, SamplesOfAnyLengthGoThroughTheLargestBucket) {
  const Engine e = bucketed_engine();
  ASSERT_EQ(runnable_plans(e, "begin").size(), 2u);
  ASSERT_EQ(largest_plans(e, "begin").size(), 1u);
  EXPECT_EQ(largest_plans(e, "begin")[0]->name, "begin.rows4");
  EXPECT_EQ(largest_plans(e).size(), 2u) << "one of each graph";
  EXPECT_TRUE(holds({{"views", 2}, {"prompt", 48}}, {{"views", 2}, {"prompt", 5}}));
  EXPECT_FALSE(holds({{"views", 2}, {"prompt", 48}}, {{"views", 3}, {"prompt", 5}}));
  EXPECT_TRUE(holds({{"views", 2}}, {{"views", 1}, {"prompt", 300}})) << "a size that it has none of is no limit";
}

TEST(Session, BucketsThatAreNoneAreRefused) {
  Engine other = bucketed_engine();
  other.plans[2].sizes = {{"views", 2}};
  EXPECT_NE(check_engine(other).message().find("told apart by the same sizes"), std::string::npos);
  Engine none = bucketed_engine();
  none.plans[2].sizes = none.plans[0].sizes;
  EXPECT_NE(check_engine(none).message().find("more than the batch differs"), std::string::npos);
  Engine two = bucketed_engine();  // the second sample's rows would not begin where the state has them
  for (const size_t p : {0, 2}) {
    for (PlanTensor& t : two.plans[p].tensors)
      t = test_tensor(t.name, {2, t.desc.shape[1] / 2, kCols}, t.storage, t.index);
    two.plans[p].batch = 2;
  }
  EXPECT_NE(check_engine(two).message().find("plans share a state of one form"), std::string::npos);
}

// Parts by hand, in two sessions by turns; what a caller hands over for a state is put there, and copied from there.
TEST(Session, PartsOverStatesOfTheirOwn) {
  const Engine e = counting_engine();
  const auto weights = Weights::of(e, DeviceKind::kHost);
  auto a = Session::make(e), b = Session::make(e);
  ASSERT_TRUE(a.ok() && b.ok());
  const std::vector<float> x[2] = {test_input(kCount, 1), test_input(kCount, 2)};
  Session* sessions[2] = {a->get(), b->get()};
  for (int s = 0; s < 2; ++s) {
    const auto begin = sessions[s]->graph("begin");
    ASSERT_TRUE(begin.ok());
    const void* in[] = {x[s].data(), nullptr};
    void* out[] = {nullptr};
    ASSERT_TRUE((*begin)->run(in, out).ok());
  }
  for (int turn = 1; turn <= 4; ++turn) {
    for (int s = 0; s < 2; ++s) {
      const auto step = sessions[s]->graph("step");
      ASSERT_TRUE(step.ok());
      std::vector<float> y(kCount), kept(kCount);
      const void* in[] = {nullptr};
      void* out[] = {kept.data(), y.data()};
      ASSERT_TRUE((*step)->run(in, out).ok());
      EXPECT_EQ(y, after(x[s], turn));
      EXPECT_EQ(kept, y);
    }
  }
  const auto step = sessions[0]->graph("step");
  std::vector<float> y(kCount);
  const void* given[] = {x[1].data()};
  void* out[] = {nullptr, y.data()};
  ASSERT_TRUE((*step)->run(given, out).ok());
  EXPECT_EQ(y, after(x[1], 1));
  ASSERT_TRUE(sessions[0]->clear().ok());
  const void* none[] = {nullptr};
  ASSERT_TRUE((*step)->run(none, out).ok());
  EXPECT_EQ(y, after(std::vector<float>(kCount, 0), 1));
}

// Each graph has its own smallest batch; a plan is asked for before it runs, and may be refused.
TEST(Session, GraphsOfOtherBatchesAndPlansThatAreNotAdmitted) {
  Engine e = counting_engine();
  for (PlanTensor& t : e.plans[0].tensors) t.desc = dense_operand({1, kRows * kCols}, Element::f32);
  e.plans[0].batch = 1;
  // A step would read rows of samples that `begin` does not have.
  EXPECT_EQ(Session::make(e).status().message(),
            "the schedule: plan 'step' of graph 'step' is for a batch of 3, and plan 'begin' of graph 'begin' for 1, "
            "and they share a state; plans of one batch are wanted: name one of each graph");
  e.states.push_back({"own", kCount * 4});
  for (PlanTensor& t : e.plans[0].tensors) t.index = t.storage == Storage::kState ? 1 : t.index;
  std::vector<std::string> asked;
  const auto session = Session::make(e, {.admit = [&](const Plan& p) {
                                       asked.push_back(p.name);
                                       return p.name == "step" ? bad_input("not this one") : Status();
                                     }});
  ASSERT_TRUE(session.ok()) << session.status().message();
  const std::vector<float> x = test_input(kCount, 1);
  std::vector<float> y(kCount, -1);
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  EXPECT_EQ((*session)->run(in, out).message(), "not this one");
  EXPECT_EQ(asked, (std::vector<std::string>{"begin", "step"}));
}

TEST(Session, SaysWhatItCannotRun) {
  Engine e = counting_engine();
  EXPECT_EQ(Session::make(e, {.batch = 7}).status().message(), "graph 'begin' has no plan of batch 7");
  const auto session = Session::make(e);
  EXPECT_EQ((*session)->graph("end").status().message(), "the engine has no graph 'end'; it has 'begin', 'step'");
  std::vector<float> y(kCount);
  void* out[] = {y.data()};
  const void* null[] = {nullptr};
  EXPECT_EQ((*session)->run(null, out).message(), "input 'x' of the schedule was given no buffer (null)");
  EXPECT_EQ((*session)->run({}, out).message(), "the schedule has 1 inputs, and 0 buffers were given");
  e.schedule.clear();
  const auto parts = Session::make(e);
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ((*parts)->run({}, {}).message(),
            "the engine has 2 graphs and no schedule that says in which order they run: run one of them");
  // A port that is no state must be given.
  const auto begin = (*parts)->graph("begin");
  void* kept[] = {nullptr};
  const void* nothing[] = {nullptr, nullptr};
  EXPECT_EQ((*begin)->run(nothing, kept).message(), "input 'x' of plan 'begin' was given no buffer (null)");
}

// A second thread is turned away or gets the right answer; never a wrong one.
TEST(Session, TwoThreadsOnOneSession) {
  const Engine e = counting_engine();
  const auto session = Session::make(e);
  std::atomic<int> wrong{0}, right{0};
  const int each = turns(400) / 2;
  const auto work = [&](int who) {
    for (int turn = 0; turn < each; ++turn) {
      const std::vector<float> x = test_input(kCount, who * 1000 + turn % 1000);
      std::vector<float> y(kCount, -1);
      const void* in[] = {x.data()};
      void* out[] = {y.data()};
      const Status ran = (*session)->run(in, out);
      if (!ran.ok()) continue;
      (y == after(x, 10) ? right : wrong)++;
    }
  };
  std::thread other(work, 1);
  work(2);
  other.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(right, 0);
}

#ifdef TS_WITH_CUDA

#define SKIP_WITHOUT_GPU() \
  if (const std::string why = why_not_here(Arch::cuda); !why.empty()) GTEST_SKIP() << why

TEST(Session, TimesWholeRuns_cuda) {
  SKIP_WITHOUT_GPU();
  time_and_go_on(Arch::cuda);
}

// The whole schedule is one graph: from host memory, and from device memory on two streams by turns.
TEST(Session, ScheduleIsOneGraph_cuda) {
  SKIP_WITHOUT_GPU();
  const Engine e = counting_engine(Arch::cuda);
  const auto session = Session::make(e);
  ASSERT_TRUE(session.ok()) << session.status().message();
  for (int turn = 0; turn < 20; ++turn) {
    const std::vector<float> x = test_input(kCount, turn);
    std::vector<float> y(kCount, -1);
    const void* in[] = {x.data()};
    void* out[] = {y.data()};
    const Status ran = (*session)->run(in, out);
    ASSERT_TRUE(ran.ok()) << ran.message();
    EXPECT_EQ(y, after(x, 10));
  }
  const TestStream streams[2];
  std::vector<DeviceFloats> xs, ys;
  const int in_all = turns(64);
  for (int turn = 0; turn < in_all; ++turn) {
    xs.emplace_back(kCount), ys.emplace_back(kCount);
    xs.back().put(test_input(kCount, turn % 1000), nullptr);
  }
  ASSERT_TRUE(device_synchronise().ok());
  for (int turn = 0; turn < in_all; ++turn) {
    const void* in[] = {xs[static_cast<size_t>(turn)].data()};
    void* out[] = {ys[static_cast<size_t>(turn)].data()};
    const Status put = (*session)->enqueue(in, out, {streams[turn % 2].get()});
    ASSERT_TRUE(put.ok()) << put.message();
  }
  ASSERT_TRUE(device_synchronise().ok());
  for (int turn = 0; turn < in_all; ++turn)
    EXPECT_EQ(ys[static_cast<size_t>(turn)].get(), after(test_input(kCount, turn % 1000), 10)) << turn;
}

// The schedule's graph reads and writes the caller's memory, wherever it begins: in the order of the stream, and of
// other calls, which use other memory.
TEST(Session, FindsTheCallersBuffers_cuda) {
  SKIP_WITHOUT_GPU();
  const Engine e = counting_engine(Arch::cuda);
  const auto session = Session::make(e);
  ASSERT_TRUE(session.ok()) << session.status().message();
  const TestStream stream;
  const DeviceFloats x(kCount, 1), y(kCount, 3), other_x(kCount), other_y(kCount);
  const auto put = [&](const DeviceFloats& from, const DeviceFloats& to) {
    const void* in[] = {from.data()};
    void* out[] = {to.data()};
    const Status s = (*session)->enqueue(in, out, {stream.get()});
    ASSERT_TRUE(s.ok()) << s.message();
  };
  for (int turn = 0; turn < 8; ++turn) {
    const std::vector<float> numbers = test_input(kCount, turn), others = test_input(kCount, turn + 100);
    x.put(std::vector<float>(kCount, 7), stream.get());  // not what is read: the next one comes before the call
    x.put(numbers, stream.get());
    put(x, y);
    x.put(std::vector<float>(kCount, 8), stream.get());  // nor what comes after it
    std::vector<float> got(kCount, -1);
    if (turn % 2 == 1) {  // a run from host memory in between, which has buffers of its own
      const void* in[] = {others.data()};
      void* out[] = {got.data()};
      ASSERT_TRUE((*session)->run(in, out).ok());
      EXPECT_EQ(got, after(others, 10)) << turn;
    } else {
      other_x.put(others, stream.get());
      put(other_x, other_y);
      stream.wait();
      EXPECT_EQ(other_y.get(), after(others, 10)) << turn;
    }
    stream.wait();
    EXPECT_EQ(y.get(), after(numbers, 10)) << turn;
    EXPECT_EQ(x.get(), std::vector<float>(kCount, 8)) << turn;
  }
}

// A graph for each combination, one after the other on two streams: they share the state and the executors' memory.
TEST(Session, PlansOfFewerRowsUseTheFrontOfTheState_cuda) {
  SKIP_WITHOUT_GPU();
  run_buckets(Arch::cuda);
  const Engine e = bucketed_engine(Arch::cuda);
  const auto session = Session::make(e);
  ASSERT_TRUE(session.ok()) << session.status().message();
  const TestStream streams[2];
  std::vector<DeviceFloats> xs, ys;
  std::vector<std::vector<float>> wanted;
  std::vector<float> kept(4 * kCols, 0);
  const int in_all = turns(64);
  const auto rows = [](int turn) { return turn % 3 == 1 ? 2 : 4; };
  for (int turn = 0; turn < in_all; ++turn) {
    const std::vector<float> x = test_input(static_cast<size_t>(rows(turn) * kCols), turn % 1000);
    xs.emplace_back(x.size()), ys.emplace_back(kept.size());
    xs.back().put(x, nullptr);
    take_rows(kept, x);
    wanted.push_back(kept);
  }
  ASSERT_TRUE(device_synchronise().ok());
  for (int turn = 0; turn < in_all; ++turn) {
    ASSERT_TRUE((*session)->use({{"begin", cat("begin.rows", rows(turn))}}).ok());
    const void* in[] = {xs[static_cast<size_t>(turn)].data()};
    void* out[] = {ys[static_cast<size_t>(turn)].data()};
    const Status put = (*session)->enqueue(in, out, {streams[turn % 2].get()});
    ASSERT_TRUE(put.ok()) << put.message();
  }
  ASSERT_TRUE(device_synchronise().ok());
  for (int turn = 0; turn < in_all; ++turn)
    EXPECT_EQ(ys[static_cast<size_t>(turn)].get(), wanted[static_cast<size_t>(turn)]) << turn;
}

// Parts by themselves, between runs of the schedule, over one state; a state is put and read on the device's side.
TEST(Session, PartsBesideTheSchedule_cuda) {
  SKIP_WITHOUT_GPU();
  const Engine e = counting_engine(Arch::cuda);
  const auto a = Session::make(e), b = Session::make(e);
  ASSERT_TRUE(a.ok() && b.ok());
  const std::vector<float> x = test_input(kCount, 3), other = test_input(kCount, 4);
  std::vector<float> y(kCount), kept(kCount);
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  ASSERT_TRUE((*a)->run(in, out).ok());
  const void* in_b[] = {other.data()};
  ASSERT_TRUE((*b)->run(in_b, out).ok());
  EXPECT_EQ(y, after(other, 10));
  const auto step = (*a)->graph("step");
  ASSERT_TRUE(step.ok()) << step.status().message();
  const void* none[] = {nullptr};
  void* both[] = {kept.data(), y.data()};
  for (int turn = 1; turn <= 3; ++turn) {
    ASSERT_TRUE((*step)->run(none, both).ok());
    EXPECT_EQ(y, after(x, 10 + turn));
    EXPECT_EQ(kept, y);
  }
  const void* given[] = {other.data()};
  ASSERT_TRUE((*step)->run(given, both).ok());
  EXPECT_EQ(y, after(other, 1));
}

#endif

}  // namespace
}  // namespace tessera
