// SPDX-License-Identifier: Apache-2.0
// Runs plans of the archs `cpu` and `ref` in host memory, step by step.
#include <chrono>
#include <cstring>
#include <fstream>

#include "base/memory.h"
#include "base/parallel.h"
#include "base/progress_sink.h"
#include "io/mmap.h"
#include "ops/ops.h"
#include "runtime/bind.h"
#include "runtime/executors.h"
#include "runtime/state.h"
#include "runtime/weights.h"

namespace tessera {
namespace {

// Kernels on Arm do not give their processor's name.
#ifdef __aarch64__
constexpr const char* kUnnamed = "aarch64 CPU";
#else
constexpr const char* kUnnamed = "CPU";
#endif

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

class HostExecutor : public Executor {
 public:
  HostExecutor(const Plan& plan, ExecutorOptions options) : plan_(plan), options_(std::move(options)) {}

  Status prepare(const Engine& engine) {
    const std::string plan = cat("plan '", plan_.name, "'");
    if (options_.arena != nullptr) {
      TS_TRY(check_arena(plan_, options_));
      memory_.arena = options_.arena;
    } else {
      TS_ASSIGN(arena_, allocate(plan_.arena_bytes, "the working memory of " + plan));
      memory_.arena = arena_.data();
    }
    // The caller's buffers; whoever holds a plan that fits neither would meet that sooner or later.
    for (const std::vector<Port>* ports : {&plan_.inputs, &plan_.outputs}) {
      for (const Port& p : *ports) TS_TRY(check_memory(port_bytes(plan_, p), cat("'", p.name, "' of ", plan)));
    }
    if (options_.state == nullptr) {
      TS_ASSIGN(options_.state, State::make(engine, DeviceKind::kHost));
      own_state_ = true;
    }
    TS_TRY(options_.state->check(engine, DeviceKind::kHost, 0));
    TS_ASSIGN(weights_, Weights::of(engine, DeviceKind::kHost));
    memory_.constants = weights_->constants();
    memory_.states = options_.state->blocks();
    if (options_.threads > 0) pool_ = make_pool(options_.threads);
    const UsePool pool(pool_.get());  // kernels divide their work by it
    TS_ASSIGN(steps_, bind_steps(plan_));
    lengths_ = cache_lengths(plan_);
    return {};
  }

  Status run(std::span<const void* const> inputs, std::span<void* const> outputs) override {
    return call([&] { return run_now(inputs, outputs); });
  }

  Status enqueue(std::span<const void* const> inputs, std::span<void* const> outputs, Stream) override {
    return run(inputs, outputs);
  }

  Result<std::vector<double>> time_runs(std::span<const void* const> inputs, int repeats, int warmup) override {
    return call([&]() -> Result<std::vector<double>> {
      std::vector<double> times;
      TS_TRY(repeat(inputs, repeats, warmup, nullptr, [&](double ms) { times.push_back(ms); }));
      return times;
    });
  }

  Result<std::vector<StepTimes>> time_steps(std::span<const void* const> inputs, int repeats, int warmup) override {
    return call([&]() -> Result<std::vector<StepTimes>> {
      std::vector<StepTimes> runs;
      Stamps stamps(steps_.size());
      TS_TRY(repeat(inputs, repeats, warmup, &stamps, [&](double ms) { runs.push_back(stamps.times(ms * 1e3)); }));
      return runs;
    });
  }

  std::string machine() const override {
    std::ifstream cpuinfo("/proc/cpuinfo");
    std::string line, name = kUnnamed;
    while (std::getline(cpuinfo, line)) {
      if (line.starts_with("model name")) {
        name = line.substr(line.find(':') + 2);
        break;
      }
    }
    const UsePool pool(pool_.get());
    return cat(name, ", ", threads(), threads() == 1 ? " thread" : " threads");
  }

 private:
  struct Scratch {
    explicit Scratch(const Plan& plan) {
      for (const Port& p : plan.outputs) {
        if (is_state(plan, p)) {
          pointers.push_back(nullptr);
          continue;
        }
        buffers.emplace_back(static_cast<size_t>(port_bytes(plan, p)));
        pointers.push_back(buffers.back().data());
      }
    }
    std::vector<Buffer> buffers;
    std::vector<void*> pointers;
  };

  // Taken while a run goes on, and made into times after it.
  struct Stamps {
    explicit Stamps(size_t steps) : begin(steps), end(steps) {}
    Clock::time_point start;
    std::vector<Clock::time_point> begin, end;
    StepTimes times(double run_us) const {
      StepTimes t{.begin_us = {}, .end_us = {}, .run_us = run_us};
      const auto since = [&](Clock::time_point at) {
        return std::chrono::duration<double, std::micro>(at - start).count();
      };
      for (const Clock::time_point at : begin) t.begin_us.push_back(since(at));
      for (const Clock::time_point at : end) t.end_us.push_back(since(at));
      return t;
    }
  };

  // Runs, of which `each` is told the time of those that count.
  template <class F>
  Status repeat(std::span<const void* const> inputs, int repeats, int warmup, Stamps* stamps, const F& each) {
    if (scratch_ == nullptr) scratch_ = std::make_unique<Scratch>(plan_);
    for (int i = -(warmup == kOwnWarmup ? 1 : warmup); i < repeats; ++i) {
      const auto start = Clock::now();
      if (stamps != nullptr) stamps->start = start;
      TS_TRY(run_now(inputs, scratch_->pointers, stamps));
      const double ms = milliseconds_since(start);
      if (i >= 0) each(ms);
    }
    return {};
  }

  // What every call is wrapped in: nothing of the executor is touched before it is this thread's turn.
  template <class F>
  auto call(const F& body) -> decltype(body()) {
    const Turn turn(*options_.state);
    if (!turn.mine()) return busy(own_state_);
    const UsePool pool(pool_.get());
    return body();
  }

  Status run_now(std::span<const void* const> inputs, std::span<void* const> outputs, Stamps* stamps = nullptr) {
    TS_TRY(check_buffers(plan_, inputs, outputs));
    TS_TRY(check_cache_lengths(plan_, lengths_, inputs));
    memory_.inputs = inputs;
    memory_.outputs = outputs;
    place_views(plan_, memory_, steps_);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (uint8_t* block = state_of(plan_.inputs[i]); block != nullptr && inputs[i] != nullptr)
        std::memcpy(block, inputs[i], static_cast<size_t>(port_bytes(plan_, plan_.inputs[i])));
    }
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (options_.go_on && !options_.go_on()) return Status(kCancelled, "the run was cancelled");
      if (stamps != nullptr) stamps->begin[i] = Clock::now();
      TS_TRY(run_step(i));
      if (stamps != nullptr) stamps->end[i] = Clock::now();
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (const uint8_t* block = state_of(plan_.outputs[i]); block != nullptr && outputs[i] != nullptr)
        std::memcpy(outputs[i], block, static_cast<size_t>(port_bytes(plan_, plan_.outputs[i])));
    }
    return {};
  }

  // The state that a port lies in; null where it lies in none.
  uint8_t* state_of(const Port& port) const {
    const PlanTensor& t = plan_.tensors[static_cast<size_t>(port.tensor)];
    return t.storage == Storage::kState ? memory_.states[static_cast<size_t>(t.index)] : nullptr;
  }

  Status run_step(size_t i) {
    BoundStep& b = steps_[i];
    Status status;
    if (options_.make && plan_.arch == Arch::ref && options_.make(i, b.problem, b.in, b.out)) {
      // made
    } else if (options_.noise && plan_.arch == Arch::ref) {
      status = run_reference(*find_op(b.step->op), b.problem, b.in, b.out, options_.noise(*b.step, i));
    } else {
      status = b.kernel->launch(b.in, b.out, memory_.arena + b.step->workspace_offset, {});
    }
    if (!status.ok()) return status.at(cat("layer ", b.step->layer));
    if (options_.observe) options_.observe(*b.step, b.in, b.out);
    // Weights of a model that is being built are mapped, and each step has its own.
    for (const TensorView& t : b.in) {
      if (t.desc != nullptr && t.desc->constant)
        give_back(t.data, static_cast<size_t>(packed_bytes(t.desc->type.element, elements(t.desc->shape))));
    }
    for (size_t r = 0; r < options_.replaced.size(); ++r) {
      const ExecutorOptions::Replaced& to = options_.replaced[r];
      for (size_t o = 0; o < b.step->out.size(); ++o) {
        if (b.step->out[o] != to.tensor) continue;
        options_.seen(r, static_cast<const uint8_t*>(b.out[o].data));
        if (to.data.size() > 0) std::memcpy(b.out[o].data, to.data.data(), to.data.size());
      }
    }
    return {};
  }

  const Plan& plan_;
  ExecutorOptions options_;
  bool own_state_ = false;
  std::shared_ptr<const Weights> weights_;
  std::shared_ptr<ThreadPool> pool_;  // null: the one that the process shares
  Buffer arena_;
  Memory memory_;
  std::vector<BoundStep> steps_;
  std::vector<CacheLength> lengths_;
  std::unique_ptr<Scratch> scratch_;  // results of runs that are timed: their pages are there after the first
};

}  // namespace

Result<std::unique_ptr<Executor>> bind_host(const Engine& engine, const Plan& plan, const ExecutorOptions& options) {
  auto executor = std::make_unique<HostExecutor>(plan, options);
  TS_TRY(executor->prepare(engine));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace tessera
