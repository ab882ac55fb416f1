// SPDX-License-Identifier: Apache-2.0
// tessera._tessera: the C ABI for Python, as thin as it can be. tessera/__init__.py makes it comfortable.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "python/callable.h"
#include "python/log_lines.h"
#include "python/numpy_arrays.h"

namespace tessera::python {
using BoundContext = Callable<Context>;
using BoundSession = Callable<Session>;

template <>
tess_status* BoundContext::run(const Side<const tess_tensor>& in, const Side<tess_tensor>& out, void* stream) {
  return on_cuda_ ? tess_enqueue(handle_.c(), in.tensors, in.count, out.tensors, out.count, stream)
                  : tess_run(handle_.c(), in.tensors, in.count, out.tensors, out.count);
}
template <>
void BoundContext::watch() {
  check(tess_context_watch(handle_.c(), &Signals::go_on, &signals_));
}
template <>
void BoundSession::watch() {
  check(tess_session_watch(handle_.c(), &Signals::go_on, &signals_));
}
template <>
tess_status* BoundSession::run(const Side<const tess_tensor>& in, const Side<tess_tensor>& out, void* stream) {
  return on_cuda_ ? tess_session_enqueue(handle_.c(), in.tensors, in.count, out.tensors, out.count, stream)
                  : tess_session_run(handle_.c(), in.tensors, in.count, out.tensors, out.count);
}

namespace {

// Arrays as they come, any number of samples; host memory.
void run_samples(BoundContext& context, const nb::list& inputs, const nb::list& outputs) {
  Tensors in(inputs.size()), out(outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) in.take(i, inputs[i], false);
  for (size_t o = 0; o < outputs.size(); ++o) out.take(o, outputs[o], true);
  tess_status* status = nullptr;
  {
    const WithoutGil released;
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
    const WithoutGil released;
    return body();
  }();
  LogLines::deliver();
  return got(std::move(result));
}

// Plans by their graph, as Python has them.
void use_plans(BoundSession& session, nb::handle plans) {
  const auto refuse = [](const std::string& said) { raise(Status(TESS_USAGE, said)); };
  const auto text_of = [&](const char* what, nb::handle given) {
    if (!nb::isinstance<nb::str>(given))
      refuse(std::string(what) + " is " + nb::repr(given).c_str() + ": text is wanted");
    return nb::cast<std::string>(given);
  };
  if (!nb::isinstance<nb::dict>(plans))
    refuse(std::string("plans is a ") + nb::type_name(plans.type()).c_str() +
           ": a dict is wanted, such as {'main': 'batch8'}");
  std::vector<std::pair<std::string, std::string>> named;
  for (const auto& [graph, plan] : nb::borrow<nb::dict>(plans))
    named.emplace_back(text_of("a graph", graph), text_of("a plan", plan));
  session.change_ports([&] {
    std::vector<tess_case> cases;
    for (const auto& [graph, plan] : named) cases.push_back({graph.c_str(), plan.c_str()});
    Status status;
    {
      const WithoutGil released;
      status = session.handle().use(cases);
    }
    LogLines::deliver();
    if (!status.ok()) raise(status);
    return std::pair(got(session.handle().inputs()), got(session.handle().outputs()));
  });
}

const Plan* plan_named(const std::vector<Plan>& plans, const std::string& name,
                       const std::optional<std::string>& graph) {
  for (const Plan& p : plans) {
    if (p.name == name && (!graph || p.graph == *graph)) return &p;
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
  Memory memory(const std::optional<std::string>& plan, const std::optional<std::string>& graph) const {
    ContextOptions options;
    options.plan = plan ? plan->c_str() : nullptr, options.graph = graph ? graph->c_str() : nullptr;
    return got(engine_.memory_needed(options));
  }

  BoundContext* context(const std::optional<std::string>& plan, const std::optional<std::string>& graph, int device,
                        int threads, bool verify, const State* state) const {
    ContextOptions options;
    options.plan = plan ? plan->c_str() : nullptr, options.graph = graph ? graph->c_str() : nullptr;
    options.device = device, options.threads = threads, options.verify = verify, options.state = state;
    Context context = without_gil([&] { return engine_.context(options); });
    const Plan* const named = plan ? plan_named(plans_, *plan, graph) : nullptr;
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

// What a user sees who prints one.
std::string text_of(const std::vector<Port>& ports) {
  std::string all;
  for (const Port& p : ports) {
    all += (all.empty() ? "" : ", ") + p.name + " " + p.element + " [";
    for (size_t i = 0; i < p.shape.size(); ++i) all += (i > 0 ? "," : "") + std::to_string(p.shape[i]);
    all += p.is_state ? "] in a state" : "]";
  }
  return all;
}
std::string text_of(const Plan& p) {
  return "<tessera.Plan " + p.name + ": graph " + p.graph + ", batch " + std::to_string(p.batch) + ", for " + p.arch +
         ", " + std::to_string(p.arena_bytes) + " bytes of working memory>";
}
std::string text_of(const Memory& m) {
  return "<tessera.Memory: weights " + std::to_string(m.weights_bytes) + ", arena " + std::to_string(m.arena_bytes) +
         ", state " + std::to_string(m.state_bytes) + " bytes>";
}
template <class T>
std::string text_of(const char* what, const T& callable) {
  return std::string("<tessera.") + what + ": " + text_of(callable.inputs()) + " -> " + text_of(callable.outputs()) +
         ">";
}

OpenEngine* open_path(const std::string& path, bool check_constants) {
  return new OpenEngine(without_gil([&] { return Engine::open(path, check_constants); }));
}
OpenEngine* open_bytes(const nb::bytes& bytes, bool check_constants) {
  return new OpenEngine(without_gil([&] { return Engine::open(bytes.data(), bytes.size(), check_constants); }));
}

// What an engine says of itself, and a state.
void bind_descriptions(nb::module_& m) {
  nb::class_<Port>(m, "Port", "An input or output of a plan.")
      .def_ro("name", &Port::name)
      .def_ro("element", &Port::element)
      .def_ro("shape", &Port::shape)
      .def_ro("bytes", &Port::bytes)
      .def_ro("is_state", &Port::is_state)
      .def("__repr__", [](const Port& p) { return "<tessera.Port " + text_of(std::vector<Port>{p}) + ">"; })
      .def_prop_ro("dtype", [](const Port& p) { return nb::make_tuple(p.dtype.code, p.dtype.bits, p.dtype.lanes); });
  nb::class_<Plan>(m, "Plan", "One graph with every choice made, for one batch size.")
      .def_ro("name", &Plan::name)
      .def_ro("graph", &Plan::graph)
      .def_ro("arch", &Plan::arch)
      .def_ro("batch", &Plan::batch)
      .def_ro("arena_bytes", &Plan::arena_bytes)
      .def_ro("on_cuda", &Plan::on_cuda)
      .def("__repr__", [](const Plan& p) { return text_of(p); });
  nb::class_<Memory>(m, "Memory", "Bytes that a context takes.")
      .def_ro("weights_bytes", &Memory::weights_bytes)
      .def_ro("arena_bytes", &Memory::arena_bytes)
      .def_ro("state_bytes", &Memory::state_bytes)
      .def("__repr__", [](const Memory& m) { return text_of(m); });
  nb::class_<State>(m, "State", "What a session keeps between runs.").def("clear", [](State& s) {
    if (const Status status = s.clear(); !status.ok()) raise(status);
  });
}

}  // namespace
}  // namespace tessera::python

NB_MODULE(_tessera, m) {
  using namespace tessera;
  using namespace tessera::python;
  using namespace nb::literals;
  nb::set_leak_warnings(false);  // a thread that Python ends with keeps what it holds
  m.def("set_raiser", [](nb::object f) { raiser() = std::move(f); });
  m.def("set_listener", [](nb::object f) {
    LogLines::listener() = std::move(f);
    tess_set_log(&LogLines::take, nullptr);
  });
  m.def("version", [] { return tess_version(); });
  m.def("abi_version", [] { return tess_abi_version(); });
  bind_descriptions(m);
  static const PyType_Slot context_slots[] = {{Py_tp_call, reinterpret_cast<void*>(&call_slot<BoundContext>)}, {}};
  static const PyType_Slot session_slots[] = {{Py_tp_call, reinterpret_cast<void*>(&call_slot<BoundSession>)}, {}};
  nb::class_<BoundContext>(
      m, "Context", nb::type_slots(context_slots),
      "A plan with its working memory; one call at a time.\n\n"
      "context(*inputs, out=None, stream=None): a tensor per input, in the order of `inputs`; those "
      "that lie in a state are left out. Returns the output, or a tuple of them: new ones of the "
      "inputs' kind (numpy, torch), or those of out=. stream= is for a GPU, and for tensors that "
      "live until it has passed the call: torch gives memory away in the order of its own current "
      "stream, so a temporary (x.half()) belongs into `with torch.cuda.stream(s)`, without stream=.")
      .def("run_samples", &run_samples)
      .def("output_shapes", &output_shapes)
      .def("__repr__", [](const BoundContext& c) { return text_of("Context", c); })
      .def("cancel",
           [](BoundContext& c) {
             if (const Status status = c.handle().cancel(); !status.ok()) raise(status);
           })
      .def_prop_ro("inputs", &BoundContext::inputs)
      .def_prop_ro("outputs", &BoundContext::outputs);
  nb::class_<BoundSession>(m, "Session", nb::type_slots(session_slots),
                           "The engine's schedule over one state; one call at a time.\n\n"
                           "session(*inputs, out=None, stream=None): as a Context is called.")
      .def("__repr__", [](const BoundSession& s) { return text_of("Session", s); })
      .def("cancel",
           [](BoundSession& s) {
             if (const Status status = s.handle().cancel(); !status.ok()) raise(status);
           })
      .def("clear",
           [](BoundSession& s) {
             if (const Status status = s.handle().clear(); !status.ok()) raise(status);
           })
      .def("use", &use_plans, "plans"_a,
           "From the next call on these plans, by their graph: {'main': 'batch8'}. `inputs` and `outputs` are theirs.")
      .def_prop_ro("inputs", &BoundSession::inputs, nb::rv_policy::copy)
      .def_prop_ro("outputs", &BoundSession::outputs, nb::rv_policy::copy);
  nb::class_<OpenEngine>(m, "Engine")
      .def_prop_ro("plans", &OpenEngine::plans)
      .def("manifest", &OpenEngine::manifest)
      .def("ports", &OpenEngine::ports)
      .def("memory", &OpenEngine::memory, "plan"_a.none(), "graph"_a.none())
      .def("context", &OpenEngine::context, "plan"_a.none(), "graph"_a.none(), "device"_a, "threads"_a, "verify"_a,
           "state"_a.none())
      .def("state", &OpenEngine::state)
      .def("session", &OpenEngine::session, "state"_a.none(), "device"_a, "threads"_a, "batch"_a, "verify"_a,
           "cases"_a);
  m.def("inspect", [](const std::string& path, bool scales) {
    tess_report* report = nullptr;
    tess_status* status = nullptr;
    {
      const WithoutGil released;
      status = tess_inspect(path.c_str(), scales ? 1 : 0, &report);
    }
    LogLines::deliver();
    check(status);
    nb::str json(tess_report_json(report));
    tess_report_free(report);
    return json;
  });
  m.def("reads_numpy", [](nb::handle object) {  // for tests: whether it is read without the buffer protocol
    NumpyArray array;
    return read_numpy(object.ptr(), array);
  });
  m.def("open_path", &open_path);
  m.def("open_bytes", &open_bytes);
}
