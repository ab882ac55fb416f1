// SPDX-License-Identifier: Apache-2.0
// tessera._tessera: the C ABI for Python, as thin as it can be. tessera/__init__.py makes it comfortable.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "python/tensors.h"
#include "tessera/tessera.hpp"

namespace tessera::python {
namespace {

// tessera.Error and what derives from it are made in Python; this calls the function that raises them.
nb::object& raiser() {
  static auto* held = new nb::object();  // never destroyed: Python is gone by then
  return *held;
}

[[noreturn]] void raise(const Status& status) {
  raiser()(status.code(), status.message());
  throw nb::python_error();  // (the call above raised already)
}
void check(tess_status* status) {
  if (status != nullptr) raise(Status(status));
}
template <class T>
T got(Result<T> result) {
  if (!result.ok()) raise(result.status());
  return std::move(result).value();
}

// The tensors of one side of a call. A few take no memory.
class Tensors {
 public:
  explicit Tensors(size_t count) {
    if (count <= kFew) return;
    more_ = std::make_unique<Borrowed[]>(count);
    more_pointers_.resize(count, nullptr);
  }
  void take(size_t i, nb::handle object, bool written) {
    Borrowed& b = more_ != nullptr ? more_[i] : few_[i];
    b.take(object, written);
    data()[i] = &b.tensor();
  }
  tess_tensor** data() { return more_ != nullptr ? more_pointers_.data() : few_pointers_.data(); }

 private:
  static constexpr size_t kFew = 3;
  std::array<Borrowed, kFew> few_;
  std::array<tess_tensor*, kFew> few_pointers_{};
  std::unique_ptr<Borrowed[]> more_;
  std::vector<tess_tensor*> more_pointers_;
};

// Lets Ctrl-C, and whatever else a signal calls, end a run that the main thread waits for.
class Signals {
 public:
  void begin() { next_ns_ = now_ns() + kPeriodNs; }
  // For tess_context_watch. It takes the GIL now and then only: another thread may keep it for milliseconds.
  static int32_t go_on(void* user) {
    auto& s = *static_cast<Signals*>(user);
    if (now_ns() < s.next_ns_) return 1;
    s.begin();
    const nb::gil_scoped_acquire held;
    return PyErr_CheckSignals() == 0 ? 1 : 0;
  }

 private:
  static constexpr int64_t kPeriodNs = 20'000'000;
  static int64_t now_ns() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);  // a tick of milliseconds will do, and costs nothing
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  }
  int64_t next_ns_ = 0;
};
// What a signal has raised goes before the status of the run that it ended.
void check_run(tess_status* status) {
  if (status != nullptr && PyErr_Occurred() != nullptr) {
    tess_status_free(status);
    throw nb::python_error();
  }
  check(status);
}

// What a context and a session have in common: ports and a call.
template <class Handle>
class Callable {
 public:
  Callable(Handle handle, std::vector<Port> inputs, std::vector<Port> outputs, bool on_cuda, int device)
      : handle_(std::move(handle)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        on_cuda_(on_cuda),
        device_(device) {
    watch();
  }

  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }
  Handle& handle() { return handle_; }
  Signals& signals() { return signals_; }

  // `inputs`: a tensor per input that lies in no state. `out`: none, a tensor, or several.
  nb::object call(const nb::args& inputs, nb::handle out, nb::handle stream) {
    Tensors in(inputs_.size()), results(outputs_.size());
    size_t next = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].is_state) continue;
      if (next >= inputs.size()) throw nb::type_error(counts(inputs.size()).c_str());
      in.take(i, inputs[next++], false);
    }
    if (next != inputs.size()) throw nb::type_error(counts(inputs.size()).c_str());
    const Exchange* framework = inputs.size() > 0 ? exchange_of(inputs[0]) : nullptr;
    nb::object given = take_outputs(out, framework, results);
    void* const on = stream_of(stream, framework);
    tess_status* status = nullptr;
    {
      const nb::gil_scoped_release released;
      signals_.begin();
      status = run(in.data(), results.data(), on);
    }
    check_run(status);
    return given;
  }

 private:
  std::string counts(size_t given) const {
    size_t wanted = 0;
    for (const Port& p : inputs_) wanted += p.is_state ? 0 : 1;
    return std::to_string(given) + " inputs were given where there are " + std::to_string(wanted);
  }

  tess_status* run(const tess_tensor* const* in, tess_tensor* const* out, void* stream);
  void watch();

  // What the call returns: the caller's tensors, or new ones.
  nb::object take_outputs(nb::handle out, const Exchange* framework, Tensors& tensors) const {
    std::vector<nb::object> results;
    const bool several = nb::isinstance<nb::tuple>(out) || nb::isinstance<nb::list>(out);
    const size_t few = several ? nb::len(out) : 1;
    for (size_t o = 0; o < outputs_.size(); ++o) {
      if (outputs_[o].is_state) continue;
      if (out.is_none()) {
        results.push_back(new_output(o, framework, tensors));
        continue;
      }
      if (results.size() >= few) throw nb::type_error("out= has fewer tensors than there are outputs");
      results.push_back(several ? nb::object(out[results.size()]) : nb::borrow(out));
      tensors.take(o, results.back(), true);
    }
    if (!out.is_none() && results.size() != few) throw nb::type_error("out= has more tensors than there are outputs");
    if (results.size() == 1) return results[0];
    nb::list all;
    for (nb::object& r : results) all.append(r);
    return nb::tuple(all);
  }

  // Of the inputs' framework, where they lie; of numpy where it has no table.
  nb::object new_output(size_t o, const Exchange* framework, Tensors& tensors) const {
    const Port& port = outputs_[o];
    if (framework == nullptr) {
      if (on_cuda_) throw nb::type_error("give out=: only PyTorch 2.10 or newer makes results on a GPU by itself");
      nb::object array = numpy_array(o);
      tensors.take(o, array, true);
      return array;
    }
    std::vector<int64_t> shape = port.shape;
    const tess_tensor prototype = {nullptr,
                                   {on_cuda_ ? TESS_CUDA : TESS_CPU, on_cuda_ ? device_ : 0},
                                   static_cast<int32_t>(shape.size()),
                                   port.dtype,
                                   shape.data(),
                                   nullptr,
                                   0};
    nb::object object = allocate(*framework, prototype);
    tensors.take(o, object, true);
    return object;
  }

  // Of numpy.empty: what it is called with for an output, made once.
  nb::object numpy_array(size_t o) const {
    static auto* const numpy = new nb::object(nb::module_::import_("numpy"));
    static auto* const empty = new nb::object(numpy->attr("empty"));
    numpy_arguments_.resize(outputs_.size());
    nb::object& arguments = numpy_arguments_[o];
    if (!arguments.is_valid()) {
      const Port& port = outputs_[o];
      nb::list shape;
      for (const int64_t d : port.shape) shape.append(d);
      const char kind = port.dtype.code == TESS_FLOAT ? 'f' : port.dtype.code == TESS_INT ? 'i' : 'u';
      if (port.dtype.code > TESS_FLOAT || port.dtype.bits % 8 != 0)
        throw nb::type_error(("numpy has no " + port.element + ": give torch tensors, or out=").c_str());
      const std::string name = std::string(1, kind) + std::to_string(port.dtype.bits / 8);
      arguments = nb::make_tuple(nb::tuple(shape), numpy->attr("dtype")(name));
    }
    nb::object array = nb::steal(PyObject_CallObject(empty->ptr(), arguments.ptr()));
    if (!array.is_valid()) throw nb::python_error();
    return array;
  }

  void* stream_of(nb::handle stream, const Exchange* framework) const {
    if (!on_cuda_) return nullptr;
    void* current = nullptr;
    if (!stream.is_none()) {  // an address, or an object that has one (torch.cuda.Stream)
      const nb::object address =
          nb::hasattr(stream, "cuda_stream") ? nb::object(stream.attr("cuda_stream")) : nb::borrow(stream);
      return reinterpret_cast<void*>(nb::cast<uintptr_t>(address));
    }
    if (framework != nullptr && framework->current_stream != nullptr &&
        framework->current_stream(TESS_CUDA, device_, &current) != 0)
      throw nb::python_error();
    return current;
  }

  Handle handle_;
  std::vector<Port> inputs_, outputs_;
  const bool on_cuda_;
  const int device_;
  Signals signals_;
  mutable std::vector<nb::object> numpy_arguments_;
};

using BoundContext = Callable<Context>;
using BoundSession = Callable<Session>;

template <>
tess_status* BoundContext::run(const tess_tensor* const* in, tess_tensor* const* out, void* stream) {
  return on_cuda_ ? tess_enqueue(handle_.c(), in, inputs_.size(), out, outputs_.size(), stream)
                  : tess_run(handle_.c(), in, inputs_.size(), out, outputs_.size());
}
template <>
void BoundContext::watch() {
  check(tess_context_watch(handle_.c(), &Signals::go_on, &signals_));
}
template <>
void BoundSession::watch() {}
template <>
tess_status* BoundSession::run(const tess_tensor* const* in, tess_tensor* const* out, void* stream) {
  return on_cuda_ ? tess_session_enqueue(handle_.c(), in, inputs_.size(), out, outputs_.size(), stream)
                  : tess_session_run(handle_.c(), in, inputs_.size(), out, outputs_.size());
}

// Arrays as they come, any number of samples; host memory.
void run_samples(BoundContext& context, const nb::list& inputs, const nb::list& outputs) {
  Tensors in(inputs.size()), out(outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) in.take(i, inputs[i], false);
  for (size_t o = 0; o < outputs.size(); ++o) out.take(o, outputs[o], true);
  tess_status* status = nullptr;
  {
    const nb::gil_scoped_release released;
    context.signals().begin();
    status = tess_run(context.handle().c(), in.data(), inputs.size(), out.data(), outputs.size());
  }
  check_run(status);
}

// The shapes that the outputs have for these inputs.
nb::list output_shapes(BoundContext& context, const nb::list& inputs) {
  Tensors in(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) in.take(i, inputs[i], false);
  nb::list shapes;
  for (size_t o = 0; o < context.outputs().size(); ++o) {
    std::vector<int64_t> shape(context.outputs()[o].shape.size());
    check(tess_output_shape(context.handle().c(), in.data(), inputs.size(), o, shape.data(), shape.size()));
    nb::list one;
    for (const int64_t n : shape) one.append(n);
    shapes.append(nb::tuple(one));
  }
  return shapes;
}

// The sentence is made with the GIL held.
template <class F>
auto without_gil(const F& body) {
  auto result = [&] {
    const nb::gil_scoped_release released;
    return body();
  }();
  return got(std::move(result));
}

const Plan* plan_named(const std::vector<Plan>& plans, const std::string& name) {
  for (const Plan& p : plans) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

class OpenEngine {
 public:
  explicit OpenEngine(Engine engine) : engine_(std::move(engine)) {
    for (size_t i = 0; i < engine_.plan_count(); ++i) plans_.push_back(got(engine_.plan(i)));
  }
  const std::vector<Plan>& plans() const { return plans_; }
  std::string manifest() const { return got(engine_.manifest()); }
  std::vector<Port> ports(size_t plan, bool outputs) const {
    if (plan >= plans_.size()) throw nb::index_error("no such plan");
    std::vector<Port> all;
    for (size_t i = 0; i < (outputs ? plans_[plan].outputs : plans_[plan].inputs); ++i)
      all.push_back(got(outputs ? engine_.output(plan, i) : engine_.input(plan, i)));
    return all;
  }
  Memory memory(const std::optional<std::string>& plan) const {
    return got(engine_.memory_needed({plan ? plan->c_str() : nullptr}));
  }

  BoundContext* context(const std::optional<std::string>& plan, const std::optional<std::string>& graph, int device,
                        int threads, bool verify, const State* state) const {
    ContextOptions options;
    options.plan = plan ? plan->c_str() : nullptr, options.graph = graph ? graph->c_str() : nullptr;
    options.device = device, options.threads = threads, options.verify = verify, options.state = state;
    Context context = without_gil([&] { return engine_.context(options); });
    const Plan* const named = plan ? plan_named(plans_, *plan) : nullptr;
    std::vector<Port> inputs, outputs;
    for (bool more = true; more;) {
      Result<Port> p = context.input(inputs.size());
      more = p.ok();
      if (more) inputs.push_back(std::move(p).value());
    }
    for (bool more = true; more;) {
      Result<Port> p = context.output(outputs.size());
      more = p.ok();
      if (more) outputs.push_back(std::move(p).value());
    }
    return new BoundContext(std::move(context), std::move(inputs), std::move(outputs),
                            named != nullptr && named->on_cuda, device);
  }

  State* state(int device) const { return new State(got(engine_.state(device))); }

  BoundSession* session(const State* state, int device, int threads, int64_t batch, bool verify,
                        const std::vector<std::pair<std::string, std::string>>& cases) const {
    SessionOptions options;
    options.state = state, options.device = device, options.threads = threads, options.batch = batch;
    options.verify = verify;
    for (const auto& [graph, plan] : cases) options.cases.push_back({graph.c_str(), plan.c_str()});
    Session session = without_gil([&] { return engine_.session(options); });
    auto inputs = got(session.inputs()), outputs = got(session.outputs());
    return new BoundSession(std::move(session), std::move(inputs), std::move(outputs),
                            !plans_.empty() && plans_[0].on_cuda, device);
  }

 private:
  Engine engine_;
  std::vector<Plan> plans_;
};

OpenEngine* open_path(const std::string& path, bool check_constants) {
  return new OpenEngine(without_gil([&] { return Engine::open(path, check_constants); }));
}
OpenEngine* open_bytes(const nb::bytes& bytes, bool check_constants) {
  return new OpenEngine(without_gil([&] { return Engine::open(bytes.data(), bytes.size(), check_constants); }));
}

}  // namespace
}  // namespace tessera::python

NB_MODULE(_tessera, m) {
  using namespace tessera;
  using namespace tessera::python;
  using namespace nb::literals;
  m.def("set_raiser", [](nb::object f) { raiser() = std::move(f); });
  m.def("version", [] { return tess_version(); });
  m.def("abi_version", [] { return tess_abi_version(); });
  nb::class_<Port>(m, "Port", "An input or output of a plan.")
      .def_ro("name", &Port::name)
      .def_ro("element", &Port::element)
      .def_ro("shape", &Port::shape)
      .def_ro("bytes", &Port::bytes)
      .def_ro("is_state", &Port::is_state)
      .def_prop_ro("dtype", [](const Port& p) { return nb::make_tuple(p.dtype.code, p.dtype.bits, p.dtype.lanes); });
  nb::class_<Plan>(m, "Plan", "One graph with every choice made, for one batch size.")
      .def_ro("name", &Plan::name)
      .def_ro("graph", &Plan::graph)
      .def_ro("arch", &Plan::arch)
      .def_ro("batch", &Plan::batch)
      .def_ro("arena_bytes", &Plan::arena_bytes)
      .def_ro("on_cuda", &Plan::on_cuda);
  nb::class_<Memory>(m, "Memory", "Bytes that a context takes.")
      .def_ro("weights_bytes", &Memory::weights_bytes)
      .def_ro("arena_bytes", &Memory::arena_bytes)
      .def_ro("state_bytes", &Memory::state_bytes);
  nb::class_<State>(m, "State", "What a session keeps between runs.").def("clear", [](State& s) {
    if (const Status status = s.clear(); !status.ok()) raise(status);
  });
  nb::class_<BoundContext>(m, "Context", "A plan with its working memory; one call at a time.")
      .def("__call__", &BoundContext::call, "inputs"_a, nb::kw_only(), "out"_a = nb::none(), "stream"_a = nb::none())
      .def("run_samples", &run_samples)
      .def("output_shapes", &output_shapes)
      .def("cancel",
           [](BoundContext& c) {
             if (const Status status = c.handle().cancel(); !status.ok()) raise(status);
           })
      .def_prop_ro("inputs", &BoundContext::inputs)
      .def_prop_ro("outputs", &BoundContext::outputs);
  nb::class_<BoundSession>(m, "Session", "The engine's schedule as one call.")
      .def("__call__", &BoundSession::call, "inputs"_a, nb::kw_only(), "out"_a = nb::none(), "stream"_a = nb::none())
      .def("clear",
           [](BoundSession& s) {
             if (const Status status = s.handle().clear(); !status.ok()) raise(status);
           })
      .def_prop_ro("inputs", &BoundSession::inputs)
      .def_prop_ro("outputs", &BoundSession::outputs);
  nb::class_<OpenEngine>(m, "Engine")
      .def_prop_ro("plans", &OpenEngine::plans)
      .def("manifest", &OpenEngine::manifest)
      .def("ports", &OpenEngine::ports)
      .def("memory", &OpenEngine::memory, "plan"_a.none() = nb::none())
      .def("context", &OpenEngine::context, "plan"_a.none(), "graph"_a.none(), "device"_a, "threads"_a, "verify"_a,
           "state"_a.none())
      .def("state", &OpenEngine::state)
      .def("session", &OpenEngine::session, "state"_a.none(), "device"_a, "threads"_a, "batch"_a, "verify"_a,
           "cases"_a);
  m.def("inspect", [](const std::string& path, bool scales) {
    tess_report* report = nullptr;
    tess_status* status = nullptr;
    {
      const nb::gil_scoped_release released;
      status = tess_inspect(path.c_str(), scales ? 1 : 0, &report);
    }
    check(status);
    nb::str json(tess_report_json(report));
    tess_report_free(report);
    return json;
  });
  m.def("open_path", &open_path);
  m.def("open_bytes", &open_bytes);
}
