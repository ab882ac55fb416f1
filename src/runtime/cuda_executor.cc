// SPDX-License-Identifier: Apache-2.0
// Runs CUDA plans: constants and arena on the device, every step captured once into one CUDA graph. The caller's
// buffers are reached through a table of pointers in device memory (slots), so that one graph serves any buffers; the
// table is rewritten, in stream order, only when the pointers change. A capture of the caller's gets the steps instead,
// with the pointers as arguments.
#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <optional>

#include "archs/cuda/device_memory.h"
#include "archs/cuda/status.h"
#include "base/forks.h"
#include "runtime/bind.h"
#include "runtime/cuda_slots.h"
#include "runtime/executors.h"
#include "runtime/layer_range.h"
#include "runtime/state.h"
#include "runtime/weights.h"
#include "tiles/sm90/chain/chain.h"

namespace tessera {
namespace {

struct Events {
  std::vector<cudaEvent_t> all;
  ~Events() {
    for (const cudaEvent_t e : all) (void)cudaEventDestroy(e);
  }
  Status make(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      cudaEvent_t event = nullptr;
      TS_TRY(cuda::cuda_status("making an event", cudaEventCreate(&event)));
      all.push_back(event);
    }
    return {};
  }
};

class CudaExecutor : public Executor {
 public:
  CudaExecutor(const Engine& engine, const Plan& plan, const ExecutorOptions& options)
      : engine_(engine),
        plan_(plan),
        device_(options.device),
        made_under_(forks()),
        state_(options.state),
        own_state_(options.state == nullptr),
        observe_(options.observe),
        replaced_(options.replaced),
        seen_(options.seen),
        given_arena_(options.arena) {}

  ~CudaExecutor() override {
    if (made_under_ != forks()) return;  // the parent's
    const OnDevice here(device_);
    // Runs of this executor on streams of the caller's. A state that others use is not this thread's to ask.
    if (own_state_ && state_ != nullptr) (void)state_->order().settle();
    if (!own_state_) (void)cudaDeviceSynchronize();
    if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
    if (exec_ != nullptr) (void)cudaGraphExecDestroy(exec_);
    if (start_ != nullptr) (void)cudaEventDestroy(start_);
    if (stop_ != nullptr) (void)cudaEventDestroy(stop_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  Status prepare() {
    const OnDevice here(device_);
    TS_TRY(here.status());
    TS_TRY(cuda::cuda_status("making a stream", cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)));
    TS_TRY(cuda::cuda_status("making an event", cudaEventCreate(&start_)));
    TS_TRY(cuda::cuda_status("making an event", cudaEventCreate(&stop_)));
    if (own_state_) {
      TS_ASSIGN(state_, State::make(engine_, DeviceKind::kCuda, device_));
    }
    TS_TRY(state_->check(engine_, DeviceKind::kCuda, device_));
    TS_ASSIGN(weights_, Weights::of(engine_, DeviceKind::kCuda, device_));
    TS_TRY(check_constants());
    memory_.constants = weights_->constants();
    if (given_arena_ == nullptr) TS_TRY(arena_.allocate(static_cast<size_t>(plan_.arena_bytes)));
    const size_t ports = plan_.inputs.size() + plan_.outputs.size();
    TS_TRY(slots_.allocate(ports * sizeof(void*)));
    for (const Port& p : plan_.inputs) TS_TRY(stage(p));
    for (const Port& p : plan_.outputs) TS_TRY(stage(p));
    memory_.arena = given_arena_ != nullptr ? given_arena_ : arena_.data();
    memory_.input_slots = reinterpret_cast<void* const*>(slots_.data());
    memory_.output_slots = memory_.input_slots + plan_.inputs.size();
    TS_ASSIGN(steps_, bind_steps(plan_));
    lengths_ = cache_lengths(plan_);
    TS_TRY(set_slots(staged_, stream_));
    TS_TRY(rehearse());
    memory_.states = state_->blocks();
    place_views(plan_, memory_, steps_);
    TS_TRY(make_chains());
    return capture();
  }

  Status run(std::span<const void* const> inputs, std::span<void* const> outputs) override {
    return call([&] { return run_now(inputs, outputs); });
  }

  Status enqueue(std::span<const void* const> inputs, std::span<void* const> outputs, Stream stream) override {
    return call([&] { return enqueue_now(inputs, outputs, static_cast<cudaStream_t>(stream.handle)); });
  }

  Status enqueue_through(void* const* table, Stream stream) override {
    return call([&] {
      Memory through = memory_;
      through.input_slots = table;
      through.output_slots = table + plan_.inputs.size();
      return launch_in(through, static_cast<cudaStream_t>(stream.handle));
    });
  }

  Result<std::vector<double>> time_runs(std::span<const void* const> inputs, int repeats, int warmup) override {
    return call([&] { return time_runs_now(inputs, repeats, warmup); });
  }

  Result<std::vector<StepTimes>> time_steps(std::span<const void* const> inputs, int repeats, int warmup) override {
    return call([&] { return time_steps_now(inputs, repeats, warmup); });
  }

  std::vector<int> launches() const override { return launches_; }

  std::string machine() const override { return device_name(device_); }

 private:
  // What every call is wrapped in: nothing of the executor is touched before it is this thread's turn, and the thread
  // gets its own GPU back.
  template <class F>
  auto call(const F& body) -> decltype(body()) {
    if (made_under_ != forks()) return machine_error("CUDA does not survive a fork; make the executor in the child");
    const Turn turn(*state_);
    if (!turn.mine()) return busy(own_state_);
    const OnDevice here(device_);
    TS_TRY(here.status());
    return body();
  }

  Status run_now(std::span<const void* const> inputs, std::span<void* const> outputs) {
    TS_TRY(check_buffers(plan_, inputs, outputs));
    TS_TRY(check_cache_lengths(plan_, lengths_, inputs));
    TS_TRY(state_->order().wait({stream_}));
    if (observe_) return run_observed(inputs, outputs);
    if (!replaced_.empty()) return run_replacing(inputs, outputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const size_t bytes = static_cast<size_t>(port_bytes(plan_, plan_.inputs[i]));
      if (inputs[i] == nullptr) continue;  // a state
      TS_TRY(cuda::cuda_status("copying an input to the GPU",
                               cudaMemcpyAsync(staged_[i], inputs[i], bytes, cudaMemcpyHostToDevice, stream_)));
    }
    TS_TRY(set_slots(staged_, stream_));
    TS_TRY(cuda::cuda_status("launching the graph", cudaGraphLaunch(exec_, stream_)));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t bytes = static_cast<size_t>(port_bytes(plan_, plan_.outputs[i]));
      if (outputs[i] == nullptr) continue;  // a state
      TS_TRY(cuda::cuda_status(
          "copying an output from the GPU",
          cudaMemcpyAsync(outputs[i], staged_[inputs.size() + i], bytes, cudaMemcpyDeviceToHost, stream_)));
    }
    TS_TRY(cuda::cuda_status("running the graph", cudaStreamSynchronize(stream_)));
    state_->order().settled();
    return {};
  }

  Status enqueue_now(std::span<const void* const> inputs, std::span<void* const> outputs, cudaStream_t stream) {
    TS_TRY(check_buffers(plan_, inputs, outputs));
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    TS_TRY(cuda::cuda_status("asking whether the stream is under capture", cudaStreamIsCapturing(stream, &capturing)));
    if (capturing == cudaStreamCaptureStatusInvalidated)
      return bad_input("the capture of the stream has failed already: end it and begin another");
    if (capturing == cudaStreamCaptureStatusActive) {
      TS_TRY(put_states(inputs, stream));
      TS_TRY(launch_with(inputs, outputs, stream));
      return copy_states(outputs, stream);
    }
    TS_TRY(state_->order().wait({stream}));
    wanted_ = staged_;  // of states: where they lie
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!is_state(plan_, plan_.inputs[i])) wanted_[i] = const_cast<void*>(inputs[i]);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!is_state(plan_, plan_.outputs[i])) wanted_[inputs.size() + i] = outputs[i];
    }
    Status status = put_states(inputs, stream);
    if (status.ok()) status = set_slots(wanted_, stream);
    if (status.ok()) status = cuda::cuda_status("launching the graph", cudaGraphLaunch(exec_, stream));
    if (status.ok()) status = copy_states(outputs, stream);
    // Also after an error: the table may be written already.
    TS_TRY(state_->order().note({stream}));
    return status;
  }

  // What the caller hands over for ports that lie in the state, and what it wants a copy of.
  Status put_states(std::span<const void* const> inputs, cudaStream_t stream) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == nullptr || !is_state(plan_, plan_.inputs[i])) continue;
      const size_t bytes = static_cast<size_t>(port_bytes(plan_, plan_.inputs[i]));
      TS_TRY(cuda::cuda_status("copying into a state",
                               cudaMemcpyAsync(staged_[i], inputs[i], bytes, cudaMemcpyDeviceToDevice, stream)));
    }
    return {};
  }
  Status copy_states(std::span<void* const> outputs, cudaStream_t stream) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == nullptr || !is_state(plan_, plan_.outputs[i])) continue;
      const size_t bytes = static_cast<size_t>(port_bytes(plan_, plan_.outputs[i]));
      TS_TRY(cuda::cuda_status("copying from a state", cudaMemcpyAsync(outputs[i], staged_[plan_.inputs.size() + i],
                                                                       bytes, cudaMemcpyDeviceToDevice, stream)));
    }
    return {};
  }

  // The steps themselves, for a capture of the caller's. The pointers are arguments of the kernels: a replay neither
  // reads nor writes the table, which other runs use in between.
  Status launch_with(std::span<const void* const> inputs, std::span<void* const> outputs, cudaStream_t stream) {
    Memory direct = memory_;
    direct.inputs = inputs;
    direct.outputs = outputs;
    direct.input_slots = nullptr;
    direct.output_slots = nullptr;
    return launch_in(direct, stream);
  }

  Status launch_in(const Memory& memory, cudaStream_t stream) {
    place_views(plan_, memory, steps_);
    const Status launched = launch_all(stream);
    place_views(plan_, memory_, steps_);
    return launched;
  }

  static int warmup_of(int asked) { return asked == kOwnWarmup ? 20 : asked; }

  Result<std::vector<double>> time_runs_now(std::span<const void* const> inputs, int repeats, int warmup) {
    TS_TRY(stage_inputs(inputs));
    for (int i = 0; i < warmup_of(warmup); ++i)
      TS_TRY(cuda::cuda_status("launching the graph", cudaGraphLaunch(exec_, stream_)));
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i) {
      TS_TRY(cuda::cuda_status("recording an event", cudaEventRecord(start_, stream_)));
      TS_TRY(cuda::cuda_status("launching the graph", cudaGraphLaunch(exec_, stream_)));
      TS_TRY(cuda::cuda_status("recording an event", cudaEventRecord(stop_, stream_)));
      TS_TRY(cuda::cuda_status("running the graph", cudaEventSynchronize(stop_)));
      TS_ASSIGN(const double ms, elapsed(start_, stop_));
      times.push_back(ms);
    }
    return times;
  }

  Result<std::vector<StepTimes>> time_steps_now(std::span<const void* const> inputs, int repeats, int warmup) {
    TS_TRY(stage_inputs(inputs));
    Events between;
    TS_TRY(between.make(steps_.size() + 1));
    std::vector<StepTimes> runs;
    for (int i = -warmup_of(warmup); i < repeats; ++i) {
      TS_TRY(cuda::cuda_status("recording an event", cudaEventRecord(between.all[0], stream_)));
      for (size_t s = 0; s < steps_.size(); ++s) {
        TS_TRY(launch(steps_[s], stream_));
        TS_TRY(cuda::cuda_status("recording an event", cudaEventRecord(between.all[s + 1], stream_)));
      }
      TS_TRY(cuda::cuda_status("running the steps", cudaStreamSynchronize(stream_)));
      if (i < 0) continue;
      StepTimes t;
      for (size_t s = 0; s < steps_.size(); ++s) {
        TS_ASSIGN(const double end, elapsed(between.all[0], between.all[s + 1]));
        t.begin_us.push_back(s == 0 ? 0 : t.end_us.back());
        t.end_us.push_back(end * 1e3);
      }
      t.run_us = t.end_us.empty() ? 0 : t.end_us.back();
      runs.push_back(std::move(t));
    }
    return runs;
  }

  // Step by step, without the graph; only what is replaced, and the outputs, come to the host.
  Status run_replacing(std::span<const void* const> inputs, std::span<void* const> outputs) {
    TS_TRY(stage_inputs(inputs));
    std::vector<uint8_t> bytes;
    for (BoundStep& b : steps_) {
      TS_TRY(launch(b, stream_));
      for (size_t r = 0; r < replaced_.size(); ++r) {
        for (size_t o = 0; o < b.step->out.size(); ++o) {
          if (b.step->out[o] != replaced_[r].tensor || b.out[o].data == nullptr) continue;
          TS_TRY(cuda::cuda_status("running a step", cudaStreamSynchronize(stream_)));
          bytes.resize(replaced_[r].data.size());
          TS_TRY(copy_to_host(bytes.data(), b.out[o].data, bytes.size()));
          seen_(r, bytes.data());
          TS_TRY(copy_to_device(b.out[o].data, replaced_[r].data.data(), bytes.size()));
        }
      }
    }
    TS_TRY(cuda::cuda_status("running the steps", cudaStreamSynchronize(stream_)));
    return outputs_to_host(outputs);
  }

  // Step by step, without the graph. After each step the arena and the outputs are brought to the host, where views
  // like those of a host plan show them.
  Status run_observed(std::span<const void* const> inputs, std::span<void* const> outputs) {
    TS_TRY(stage_inputs(inputs));
    Buffer arena(static_cast<size_t>(plan_.arena_bytes));
    std::vector<Buffer> states;
    Memory host;
    host.arena = arena.data();
    std::vector<const uint8_t*> constants;
    for (const EngineConstant& c : engine_.constants) constants.push_back(c.data.data());
    std::vector<uint8_t*> state_data;
    for (const EngineState& s : engine_.states) {
      states.emplace_back(static_cast<size_t>(s.bytes));
      state_data.push_back(states.back().data());
    }
    host.constants = constants;
    host.states = state_data;
    host.inputs = inputs;
    host.outputs = outputs;
    std::vector<BoundStep> shown(steps_.size());
    for (size_t i = 0; i < steps_.size(); ++i) shown[i].step = steps_[i].step, shown[i].problem = steps_[i].problem;
    place_views(plan_, host, shown);
    for (size_t i = 0; i < steps_.size(); ++i) {
      TS_TRY(launch(steps_[i], stream_));
      TS_TRY(cuda::cuda_status("running a step", cudaStreamSynchronize(stream_)));
      TS_TRY(copy_to_host(arena.data(), memory_.arena, arena.size()));
      for (size_t s = 0; s < states.size(); ++s)
        TS_TRY(copy_to_host(states[s].data(), memory_.states[s], states[s].size()));
      TS_TRY(outputs_to_host(outputs));
      observe_(*shown[i].step, shown[i].in, shown[i].out);
    }
    return {};
  }

  Status outputs_to_host(std::span<void* const> outputs) {
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o] == nullptr) continue;  // a state
      TS_TRY(copy_to_host(outputs[o], staged_[plan_.inputs.size() + o],
                          static_cast<size_t>(port_bytes(plan_, plan_.outputs[o]))));
    }
    return {};
  }

  // Of a plan that is not the engine's own: those of the engine's plans are all there.
  Status check_constants() const {
    for (const PlanTensor& t : plan_.tensors) {
      if (t.storage == Storage::kConstant && weights_->constants()[static_cast<size_t>(t.index)] == nullptr)
        return bad_input(cat("plan '", plan_.name, "' reads constant '",
                             engine_.constants[static_cast<size_t>(t.index)].name,
                             "', which no CUDA plan of its engine has"));
    }
    return {};
  }

  // The plan once outside a capture: lazily loaded modules and first-launch work stay out of the graph. It leaves no
  // trace in the state: one that was handed in may be in the middle of a session.
  Status rehearse() {
    std::shared_ptr<State> state = state_;
    if (!own_state_) {
      TS_ASSIGN(state, State::make(engine_, DeviceKind::kCuda, device_));
    }
    memory_.states = state->blocks();
    place_views(plan_, memory_, steps_);
    TS_TRY(make_chains());
    TS_TRY(launch_all(stream_));
    TS_TRY(cuda::cuda_status("running the plan once", cudaStreamSynchronize(stream_)));
    return own_state_ ? state->clear() : Status();
  }

  // Where run() puts a port on the device: a state's place is its own.
  Status stage(const Port& port) {
    if (is_state(plan_, port)) {
      const PlanTensor& t = plan_.tensors[static_cast<size_t>(port.tensor)];
      staged_.push_back(state_->blocks()[static_cast<size_t>(t.index)]);
      return {};
    }
    const size_t bytes = static_cast<size_t>(port_bytes(plan_, port));
    DeviceBuffer buffer;
    TS_TRY(buffer.allocate(bytes));
    TS_TRY(fill_device(buffer.data(), 0, bytes));  // row numbers among the inputs are valid when the plan is rehearsed
    staged_.push_back(buffer.data());
    staging_.push_back(std::move(buffer));
    return {};
  }

  Status stage_inputs(std::span<const void* const> inputs) {
    TS_TRY(check_buffers(plan_, inputs, std::span(staged_).subspan(plan_.inputs.size())));
    TS_TRY(check_cache_lengths(plan_, lengths_, inputs));
    TS_TRY(state_->order().settle());  // what is copied next is not in the order of a stream
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == nullptr) continue;  // a state
      TS_TRY(copy_to_device(staged_[i], inputs[i], static_cast<size_t>(port_bytes(plan_, plan_.inputs[i]))));
    }
    TS_TRY(set_slots(staged_, stream_));
    TS_TRY(cuda::cuda_status("staging inputs", cudaStreamSynchronize(stream_)));
    state_->order().settled();
    return {};
  }

  // Contract: what the stream does next comes after the run before (StreamOrder).
  Status set_slots(const std::vector<void*>& wanted, cudaStream_t stream) {
    if (wanted == current_) return {};
    current_.clear();  // unknown, until the write is on its way
    TS_TRY(write_slots(reinterpret_cast<void**>(slots_.data()), wanted, {stream}));
    current_ = wanted;
    return {};
  }

  Status launch(BoundStep& b, cudaStream_t stream) {
    const LayerRange range(b.step->layer);
    const Status s = b.kernel->launch(b.in, b.out, memory_.arena + b.step->workspace_offset, {stream});
    return s.ok() ? s : s.at(cat("layer ", b.step->layer));
  }

  // Chains read and write the arena, constants and states only: they stay as they are where ports change.
  Status make_chains() {
    chains_.clear();
    for (size_t i = 0; i < steps_.size();) {
      const int id = steps_[i].step->chain;
      size_t end = i + 1;
      while (id >= 0 && end < steps_.size() && steps_[end].step->chain == id) ++end;
      if (id >= 0) {
        std::vector<Bytes> phases;
        for (size_t s = i; s < end; ++s) {
          auto phase = steps_[s].kernel->phase(steps_[s].in, steps_[s].out);
          if (!phase.ok()) return phase.status().at(cat("layer ", steps_[s].step->layer));
          phases.push_back(std::move(phase).value());
        }
        auto chain = sm90::Chain::make(phases);
        if (!chain.ok()) return chain.status().at(cat("the chain from layer ", steps_[i].step->layer, " on"));
        chains_[i] = {end, std::move(chain).value()};
      }
      i = end;
    }
    return {};
  }

  // The step at `i`, or the chain that begins there; then the step behind it.
  Result<size_t> launch_next(size_t i, cudaStream_t stream) {
    const auto chain = chains_.find(i);
    if (chain == chains_.end()) {
      TS_TRY(launch(steps_[i], stream));
      return i + 1;
    }
    const LayerRange range(steps_[i].step->layer);
    TS_TRY(chain->second.chain->launch(stream).at(cat("the chain from layer ", steps_[i].step->layer, " on")));
    return chain->second.end;
  }

  Status launch_all(cudaStream_t stream) {
    for (size_t i = 0; i < steps_.size();) {
      TS_ASSIGN(i, launch_next(i, stream));
    }
    return {};
  }

  Status capture() {
    TS_TRY(
        cuda::cuda_status("starting the capture", cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal)));
    const Status launched = capture_steps();
    cudaGraph_t graph = nullptr;
    const Status ended = cuda::cuda_status("ending the capture", cudaStreamEndCapture(stream_, &graph));
    Status status = launched.ok() ? ended : launched;
    if (status.ok()) status = cuda::cuda_status("making the graph", cudaGraphInstantiate(&exec_, graph, 0));
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    return status;
  }

  // Also counts the nodes that each step adds to the graph; without a count there are no launches() to tell.
  Status capture_steps() {
    std::vector<int> counts;
    std::optional<size_t> before = 0;
    for (size_t i = 0; i < steps_.size();) {
      TS_ASSIGN(i, launch_next(i, stream_));
      const std::optional<size_t> nodes = before ? captured_nodes() : std::nullopt;
      if (nodes) counts.push_back(static_cast<int>(*nodes - *before));
      while (nodes && counts.size() < i) counts.push_back(0);  // the other steps of a chain
      before = nodes;
    }
    if (before) launches_ = std::move(counts);
    return {};
  }

  std::optional<size_t> captured_nodes() const {
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    cudaGraph_t graph = nullptr;
    size_t nodes = 0;
#if CUDART_VERSION >= 13000
    cudaError_t error = cudaStreamGetCaptureInfo(stream_, &capturing, nullptr, &graph, nullptr, nullptr, nullptr);
#else
    cudaError_t error = cudaStreamGetCaptureInfo_v2(stream_, &capturing, nullptr, &graph, nullptr, nullptr);
#endif
    if (error == cudaSuccess && capturing == cudaStreamCaptureStatusActive)
      error = cudaGraphGetNodes(graph, nullptr, &nodes);
    if (error == cudaSuccess && capturing == cudaStreamCaptureStatusActive) return nodes;
    (void)cudaGetLastError();
    return {};
  }

  static Result<double> elapsed(cudaEvent_t start, cudaEvent_t stop) {
    float ms = 0;
    TS_TRY(cuda::cuda_status("reading events", cudaEventElapsedTime(&ms, start, stop)));
    return static_cast<double>(ms);
  }

  const Engine& engine_;
  const Plan& plan_;
  const int device_;
  const int64_t made_under_;  // forks()
  std::shared_ptr<State> state_;
  const bool own_state_;
  std::shared_ptr<const Weights> weights_;
  const decltype(ExecutorOptions::observe) observe_;
  const decltype(ExecutorOptions::replaced) replaced_;
  const decltype(ExecutorOptions::seen) seen_;
  uint8_t* const given_arena_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
  std::vector<int> launches_;  // per step, in the graph
  DeviceBuffer arena_, slots_;
  std::vector<DeviceBuffer> staging_;
  std::vector<void*> staged_;   // device buffers of run(): inputs, then outputs
  std::vector<void*> current_;  // what the slots hold for the next run; empty: unknown
  std::vector<void*> wanted_;
  Memory memory_;
  std::vector<BoundStep> steps_;
  std::vector<CacheLength> lengths_;
  struct ChainOfSteps {
    size_t end = 0;  // the step behind it
    std::unique_ptr<sm90::Chain> chain;
  };
  std::map<size_t, ChainOfSteps> chains_;  // by their first step
};

}  // namespace

Result<std::unique_ptr<Executor>> bind_cuda(const Engine& engine, const Plan& plan, const ExecutorOptions& options) {
  if (options.arena != nullptr) TS_TRY(check_arena(plan, options));
  auto executor = std::make_unique<CudaExecutor>(engine, plan, options);
  TS_TRY(executor->prepare());
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace tessera
