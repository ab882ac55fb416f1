// SPDX-License-Identifier: Apache-2.0
// tessera.h for C++17 and newer: handles that free themselves, and results in place of statuses. A header alone: what a
// program is linked with is the C ABI. docs/library.md is the guide.
#ifndef TESSERA_TESSERA_HPP
#define TESSERA_TESSERA_HPP

#include <tessera/tessera.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#if defined(__cpp_exceptions)
#include <stdexcept>
#endif

namespace tessera {
inline namespace v1 {

// Who would not run a layer as asked, and why; no kernel: the reason is of the layer itself.
struct Refusal {
  std::string kernel, reason;
};
struct RefusedLayer {
  std::string layer, op, asked;
  std::vector<Refusal> refusals;  // none: no kernel of this op is for the target
};

namespace detail {
inline std::vector<RefusedLayer> refused_layers(const tess_status* status) {
  std::vector<RefusedLayer> layers;
  for (size_t l = 0; l < tess_refused_count(status); ++l) {
    tess_refused_info layer{};
    layer.size = sizeof(layer);
    if (tess_status* bad = tess_refused(status, l, &layer)) return tess_status_free(bad), layers;
    layers.push_back({layer.layer, layer.op, layer.asked, {}});
    for (size_t r = 0; r < layer.refusals; ++r) {
      tess_refusal_info refusal{};
      refusal.size = sizeof(refusal);
      if (tess_status* bad = tess_refusal(status, l, r, &refusal)) return tess_status_free(bad), layers;
      layers.back().refusals.push_back({refusal.kernel, refusal.reason});
    }
  }
  return layers;
}
}  // namespace detail

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(int code, std::string message) : code_(code), message_(std::move(message)) {}
  // Takes the C status and frees it.
  explicit Status(tess_status* status) : code_(tess_status_code(status)), message_(tess_status_message(status)) {
    if (code_ == TESS_REFUSED) layers_ = detail::refused_layers(status);
    tess_status_free(status);
  }
  bool ok() const { return code_ == TESS_OK; }
  bool busy() const { return code_ == TESS_BUSY; }
  int code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::vector<RefusedLayer>& layers() const { return layers_; }  // of a refusal

 private:
  int code_ = TESS_OK;
  std::string message_;
  std::vector<RefusedLayer> layers_;
};

#if defined(__cpp_exceptions)
class Error : public std::runtime_error {
 public:
  explicit Error(const Status& status)
      : std::runtime_error(status.message()), code_(status.code()), layers_(status.layers()) {}
  int code() const { return code_; }
  const std::vector<RefusedLayer>& layers() const { return layers_; }

 private:
  int code_;
  std::vector<RefusedLayer> layers_;
};
#endif

// A value, or the status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::move(value)) {}         // NOLINT: implicit, so that `return value;` works
  Result(Status status) : held_(std::move(status)) {}  // NOLINT
  bool ok() const { return held_.index() == 0; }
  Status status() const { return ok() ? Status() : std::get<1>(held_); }
  // Where there is none: throws Error; without exceptions it prints the sentence and aborts.
  T& value() & { return const_cast<T&>(*checked()); }
  const T& value() const& { return *checked(); }
  T&& value() && { return std::move(const_cast<T&>(*checked())); }

 private:
  const T* checked() const {
    if (ok()) return &std::get<0>(held_);
#if defined(__cpp_exceptions)
    throw Error(std::get<1>(held_));
#else
    std::fprintf(stderr, "tessera: %s\n", std::get<1>(held_).message().c_str());
    std::abort();
#endif
  }
  std::variant<T, Status> held_;
};

// -------------------------------------------------------------------------------------------------------------- log

// Called from any thread, one line at a time; it must not call the library, nor throw. `level`: TESS_LOG_WARNING,
// TESS_LOG_NOTE.
using LogFunction = std::function<void(int level, const std::string& line)>;

namespace detail {
inline void on_log(int32_t level, const char* line, void* user) noexcept {
  (*static_cast<const LogFunction*>(user))(level, line);
}
}  // namespace detail

// Notes and warnings of all engines in the process; an empty function: they are dropped.
inline void set_log(LogFunction log) {
  static std::mutex lock;
  static LogFunction* held = nullptr;  // never destroyed: a thread may log while static objects go
  const std::lock_guard<std::mutex> one(lock);
  LogFunction* const made = log ? new LogFunction(std::move(log)) : nullptr;
  tess_set_log(made == nullptr ? nullptr : &detail::on_log, made);
  delete std::exchange(held, made);  // which nobody calls any more
}

// ---------------------------------------------------------------------------------------------------------- tensors

using Device = tess_device;
using Dtype = tess_dtype;
inline Device cpu() { return {TESS_CPU, 0}; }
inline Device cuda(int id) { return {TESS_CUDA, id}; }
inline constexpr Dtype f64{TESS_FLOAT, 64, 1}, f32{TESS_FLOAT, 32, 1}, f16{TESS_FLOAT, 16, 1}, bf16{TESS_BFLOAT, 16, 1},
    i64{TESS_INT, 64, 1}, i32{TESS_INT, 32, 1}, i8{TESS_INT, 8, 1}, u8{TESS_UINT, 8, 1};

template <class T>
constexpr Dtype dtype_of();
template <>
constexpr Dtype dtype_of<double>() {
  return f64;
}
template <>
constexpr Dtype dtype_of<float>() {
  return f32;
}
template <>
constexpr Dtype dtype_of<int64_t>() {
  return i64;
}
template <>
constexpr Dtype dtype_of<int32_t>() {
  return i32;
}
template <>
constexpr Dtype dtype_of<int8_t>() {
  return i8;
}
template <>
constexpr Dtype dtype_of<uint8_t>() {
  return u8;
}

// The caller's memory, in dense rows. It owns nothing and allocates nothing. At most kMostDimensions.
class View {
 public:
  static constexpr size_t kMostDimensions = 8;
  View(const void* data, const int64_t* shape, size_t ndim, Dtype dtype, Device device) {
    for (size_t i = 0; i < ndim && i < kMostDimensions; ++i) shape_[i] = shape[i];
    // (One that has more is no tensor that any port takes, and is turned away with that.)
    tensor_ = {const_cast<void*>(data), device, static_cast<int32_t>(ndim), dtype, nullptr, nullptr, 0};
    if (ndim > kMostDimensions) tensor_.ndim = -1;
  }
  // Valid until the view is changed or goes away.
  tess_tensor* c() {
    tensor_.shape = shape_.data();
    return &tensor_;
  }

 private:
  std::array<int64_t, kMostDimensions> shape_{};
  tess_tensor tensor_{};
};

inline View view(const void* data, std::initializer_list<int64_t> shape, Dtype dtype, Device device = cpu()) {
  return {data, shape.begin(), shape.size(), dtype, device};
}
inline View view(const void* data, const std::vector<int64_t>& shape, Dtype dtype, Device device = cpu()) {
  return {data, shape.data(), shape.size(), dtype, device};
}
template <class T>
View view(const T* data, std::initializer_list<int64_t> shape, Device device = cpu()) {
  return {data, shape.begin(), shape.size(), dtype_of<T>(), device};
}

// A tensor per port, in their order, at most kMost; null for a port that lies in the state and is not wanted.
class Views {
 public:
  static constexpr size_t kMost = 128;
  Views(std::initializer_list<View*> views) { take(views.begin(), views.size()); }
  Views(const std::vector<View*>& views) { take(views.data(), views.size()); }  // NOLINT
  const tess_tensor* const* in() const { return tensors_.data(); }
  tess_tensor* const* out() const { return tensors_.data(); }
  size_t size() const { return count_; }

 private:
  void take(View* const* views, size_t count) {
    count_ = count <= kMost ? count : static_cast<size_t>(-1);  // which the library turns away
    for (size_t i = 0; i < count && i < kMost; ++i) tensors_[i] = views[i] == nullptr ? nullptr : views[i]->c();
  }
  std::array<tess_tensor*, kMost> tensors_{};
  size_t count_ = 0;
};

// ----------------------------------------------------------------------------------------------------------- handles

struct Port {
  std::string name, element;
  Dtype dtype{};
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  bool is_state = false;
};
struct Plan {
  std::string name, graph, arch;
  int64_t batch = 0, arena_bytes = 0;
  size_t inputs = 0, outputs = 0;
  bool on_cuda = false;
};
struct Memory {
  int64_t weights_bytes = 0, arena_bytes = 0, state_bytes = 0;
};

namespace detail {
struct Free {
  void operator()(tess_engine* p) const { tess_engine_free(p); }
  void operator()(tess_state* p) const { tess_state_free(p); }
  void operator()(tess_context* p) const { tess_context_free(p); }
  void operator()(tess_session* p) const { tess_session_free(p); }
  void operator()(tess_report* p) const { tess_report_free(p); }
};
template <class T>
using Handle = std::unique_ptr<T, Free>;

inline Port port_of(const tess_port_info& p) {
  return {p.name, p.element, p.dtype, {p.shape, p.shape + p.ndim}, p.bytes, p.is_state != 0};
}
}  // namespace detail

class State {
 public:
  explicit State(tess_state* state) : handle_(state) {}
  Status clear() { return Status(tess_state_clear(handle_.get())); }
  tess_state* c() const { return handle_.get(); }

 private:
  detail::Handle<tess_state> handle_;
};

struct ContextOptions {
  const char* plan = nullptr;   // null: any number of samples, through the plans that fit
  const char* graph = nullptr;  // where the engine has several
  int device = 0, threads = 0;
  bool verify = true;  // golden values
  void* arena = nullptr;
  size_t arena_bytes = 0;
  const State* state = nullptr;

  tess_context_options c() const {
    tess_context_options o{};
    o.size = sizeof(o);
    o.plan = plan, o.graph = graph, o.device = device, o.threads = threads, o.no_verify = verify ? 0 : 1;
    o.arena = arena, o.arena_bytes = arena_bytes, o.state = state == nullptr ? nullptr : state->c();
    return o;
  }
};

namespace detail {

using GoOn = std::unique_ptr<std::function<bool()>>;

// The function's place stays the same where its owner is moved, and the one before is kept until the new one is known.
template <class Set, class Owner>
Status watch(Set set, Owner* owner, GoOn& held, std::function<bool()> go_on) {
  auto made = go_on ? std::make_unique<std::function<bool()>>(std::move(go_on)) : nullptr;
  const tess_go_on_function ask = [](void* user) noexcept -> int32_t {
    return (*static_cast<const std::function<bool()>*>(user))() ? 1 : 0;
  };
  if (Status s(set(owner, made ? ask : nullptr, made.get())); !s.ok()) return s;
  held = std::move(made);
  return {};
}

}  // namespace detail

class Context {
 public:
  explicit Context(tess_context* context) : handle_(context) {}
  // Host memory; returns when the outputs are there.
  Status run(const Views& in, const Views& out) {
    return Status(tess_run(handle_.get(), in.in(), in.size(), out.out(), out.size()));
  }
  // Device memory, asynchronous on a cudaStream_t.
  Status enqueue(const Views& in, const Views& out, void* stream) {
    return Status(tess_enqueue(handle_.get(), in.in(), in.size(), out.out(), out.size(), stream));
  }
  Status cancel() { return Status(tess_cancel(handle_.get())); }  // from another thread
  // Asked between steps, in the thread that runs; false: the run ends as by cancel(). It must not use the context, nor
  // throw. Empty: nobody is asked.
  Status watch(std::function<bool()> go_on) {
    return detail::watch(tess_context_watch, handle_.get(), go_on_, std::move(go_on));
  }
  Result<Port> input(size_t i) const { return port(0, i); }
  Result<Port> output(size_t i) const { return port(1, i); }
  // The shape of an output for these inputs, of which only the shapes are read.
  Result<std::vector<int64_t>> output_shape(const Views& in, size_t i) const {
    Result<Port> p = output(i);
    if (!p.ok()) return p.status();
    std::vector<int64_t> shape(p.value().shape.size());
    if (Status s(tess_output_shape(handle_.get(), in.in(), in.size(), i, shape.data(), shape.size())); !s.ok())
      return s;
    return shape;
  }
  tess_context* c() const { return handle_.get(); }

 private:
  Result<Port> port(int is_output, size_t i) const {
    tess_port_info p{};
    p.size = sizeof(p);
    if (Status s(tess_context_port(handle_.get(), is_output, i, &p)); !s.ok()) return s;
    return detail::port_of(p);
  }
  detail::GoOn go_on_;  // which the context may ask as long as it lives
  detail::Handle<tess_context> handle_;
};

struct SessionOptions {
  const State* state = nullptr;
  int device = 0, threads = 0;
  int64_t batch = 0;
  bool verify = true;
  std::vector<tess_case> cases = {};  // plans of graphs that are named
};

class Session {
 public:
  explicit Session(tess_session* session) : handle_(session) {}
  Status run(const Views& in, const Views& out) {
    return Status(tess_session_run(handle_.get(), in.in(), in.size(), out.out(), out.size()));
  }
  Status enqueue(const Views& in, const Views& out, void* stream) {
    return Status(tess_session_enqueue(handle_.get(), in.in(), in.size(), out.out(), out.size(), stream));
  }
  Status use(const std::vector<tess_case>& cases) {
    return Status(tess_session_use(handle_.get(), cases.data(), cases.size()));
  }
  Status clear() { return Status(tess_session_clear(handle_.get())); }
  // As of a Context; a run that is ended leaves half a schedule in the state.
  Status cancel() { return Status(tess_session_cancel(handle_.get())); }
  Status watch(std::function<bool()> go_on) {
    return detail::watch(tess_session_watch, handle_.get(), go_on_, std::move(go_on));
  }
  Result<std::vector<Port>> inputs() const { return ports(0); }
  Result<std::vector<Port>> outputs() const { return ports(1); }
  tess_session* c() const { return handle_.get(); }

 private:
  Result<std::vector<Port>> ports(int is_output) const {
    size_t count = 0;
    if (Status s(tess_session_port_count(handle_.get(), is_output, &count)); !s.ok()) return s;
    std::vector<Port> all;
    for (size_t i = 0; i < count; ++i) {
      tess_port_info p{};
      p.size = sizeof(p);
      if (Status s(tess_session_port(handle_.get(), is_output, i, &p)); !s.ok()) return s;
      all.push_back(detail::port_of(p));
    }
    return all;
  }
  detail::GoOn go_on_;
  detail::Handle<tess_session> handle_;
};

class Engine {
 public:
  static Result<Engine> open(const std::string& path, bool check_constants = false) {
    if (path.find('\0') != std::string::npos) return Status(TESS_USAGE, "the path of an engine has a zero byte in it");
    const tess_engine_options options = options_of(check_constants);
    tess_engine* engine = nullptr;
    if (Status s(tess_engine_open(path.c_str(), &options, &engine)); !s.ok()) return s;
    return Engine(engine);
  }
  static Result<Engine> open(const void* bytes, size_t count, bool check_constants = false) {
    const tess_engine_options options = options_of(check_constants);
    tess_engine* engine = nullptr;
    if (Status s(tess_engine_open_bytes(bytes, count, &options, &engine)); !s.ok()) return s;
    return Engine(engine);
  }

  Result<std::string> manifest() const {
    const char* json = nullptr;
    if (Status s(tess_engine_manifest(handle_.get(), &json)); !s.ok()) return s;
    return std::string(json);
  }
  size_t plan_count() const { return tess_plan_count(handle_.get()); }
  Result<Plan> plan(size_t index) const {
    tess_plan_info p{};
    p.size = sizeof(p);
    if (Status s(tess_plan(handle_.get(), index, &p)); !s.ok()) return s;
    return Plan{p.name, p.graph, p.arch, p.batch, p.arena_bytes, p.inputs, p.outputs, p.device_type == TESS_CUDA};
  }
  Result<Port> input(size_t plan, size_t i) const { return port(plan, 0, i); }
  Result<Port> output(size_t plan, size_t i) const { return port(plan, 1, i); }
  Result<Memory> memory_needed(const ContextOptions& options = {}) const {
    const tess_context_options o = options.c();
    tess_memory m{};
    m.size = sizeof(m);
    if (Status s(tess_memory_needed(handle_.get(), &o, &m)); !s.ok()) return s;
    return Memory{m.weights_bytes, m.arena_bytes, m.state_bytes};
  }

  Result<Context> context(const ContextOptions& options = {}) const {
    const tess_context_options o = options.c();
    tess_context* context = nullptr;
    if (Status s(tess_context_make(handle_.get(), &o, &context)); !s.ok()) return s;
    return Context(context);
  }
  Result<State> state(int device = 0) const {
    tess_state* state = nullptr;
    if (Status s(tess_state_make(handle_.get(), device, &state)); !s.ok()) return s;
    return State(state);
  }
  Result<Session> session(const SessionOptions& options = {}) const {
    tess_session_options o{};
    o.size = sizeof(o);
    o.batch = options.batch, o.device = options.device, o.threads = options.threads;
    o.no_verify = options.verify ? 0 : 1, o.state = options.state == nullptr ? nullptr : options.state->c();
    o.cases = options.cases.data(), o.case_count = options.cases.size();
    tess_session* session = nullptr;
    if (Status s(tess_session_make(handle_.get(), &o, &session)); !s.ok()) return s;
    return Session(session);
  }
  tess_engine* c() const { return handle_.get(); }

 private:
  explicit Engine(tess_engine* engine) : handle_(engine) {}
  static tess_engine_options options_of(bool check_constants) {
    tess_engine_options o{};
    o.size = sizeof(o), o.check_constants = check_constants ? 1 : 0;
    return o;
  }
  Result<Port> port(size_t plan, int is_output, size_t i) const {
    tess_port_info p{};
    p.size = sizeof(p);
    if (Status s(tess_port(handle_.get(), plan, is_output, i, &p)); !s.ok()) return s;
    return detail::port_of(p);
  }
  detail::Handle<tess_engine> handle_;
};

// `tessera inspect --json` of an engine file, which need not run here; with the numbers of its scales.
inline Result<std::string> inspect(const std::string& path, bool scales = false) {
  tess_report* report = nullptr;
  if (Status s(tess_inspect(path.c_str(), scales ? 1 : 0, &report)); !s.ok()) return s;
  const detail::Handle<tess_report> held(report);
  return std::string(tess_report_json(report));
}

}  // namespace v1
}  // namespace tessera

#endif
