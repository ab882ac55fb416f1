// SPDX-License-Identifier: Apache-2.0
// Sessions: the schedule of an engine as one call.
#include "runtime/session.h"

#include "library/handles.h"
#include "library/ports.h"
#include "library/structs.h"
#include "runtime/batches.h"

using namespace tessera;

struct tess_session {
  struct Ports {
    std::vector<CPort> inputs, outputs;
  };
  std::shared_ptr<OpenEngine> engine;
  std::shared_ptr<SharedState> state;
  Watch watch;
  std::unique_ptr<Session> session;
  Place place;
  std::vector<void*> in, out;  // what a call hands on

  // Of the plans in use. Whoever asks for them holds what is there, while a call takes other plans.
  std::shared_ptr<const Ports> ports() const {
    const std::lock_guard lock(lock_);
    return ports_;
  }
  // Ports and plans change together, or not at all: nothing after the first line that changes something can fail.
  void use(Session::Route& route) {
    auto next = std::make_shared<const Ports>(ports_of(route.inputs(), false), ports_of(route.outputs(), true));
    std::vector<void*> next_in(next->inputs.size()), next_out(next->outputs.size());
    session->use(route);
    in.swap(next_in), out.swap(next_out);
    const std::lock_guard lock(lock_);
    ports_.swap(next);
  }
  Status take(const tess_tensor* const* ins, size_t in_count, tess_tensor* const* outs, size_t out_count,
              const Place& where) {
    const Ports& now = *ports_;  // changed under a Use alone, which the caller has
    int64_t samples = 0;
    TS_TRY(take_tensors(now.inputs, false, ins, in_count, where, in, samples));
    TS_TRY(take_tensors(now.outputs, true, outs, out_count, where, out, samples));
    return check_apart(now.inputs, in, now.outputs, out, samples);
  }

 private:
  mutable ShortLock lock_;  // of:
  std::shared_ptr<const Ports> ports_;
};

namespace {

Result<std::map<std::string, std::string>> read_cases(const tess_case* cases, size_t count) {
  std::map<std::string, std::string> named;
  if (count > 0) TS_TRY(check_argument(cases, "cases"));
  for (size_t i = 0; i < count; ++i) {
    if (cases[i].graph == nullptr || cases[i].plan == nullptr)
      return usage_error(cat("case ", i, " lacks its graph or its plan (NULL)"));
    named[cases[i].graph] = cases[i].plan;
  }
  return named;
}

Status take_plans(tess_session& s, const std::map<std::string, std::string>& plans) {
  TS_ASSIGN(Session::Route* const next, s.session->ready(plans));
  s.use(*next);
  return {};
}

Status make(const tess_engine& engine, const tess_session_options& asked, tess_session& s) {
  const Engine& e = engine.open->engine();
  TS_TRY(check_runs_here(e, asked.device));
  if (engine.open->plans().empty()) return bad_input("the engine has no plan to run");
  if (e.schedule.empty() && graph_names(e).size() > 1)
    return bad_input("the engine has several graphs and no schedule that says in which order they run: make contexts");
  SessionOptions options{.threads = asked.threads, .device = asked.device, .batch = asked.batch};
  TS_ASSIGN(options.cases, read_cases(asked.cases, asked.case_count));
  TS_ASSIGN(s.state, state_to_use(engine.open, asked.state));
  s.engine = engine.open;
  options.state = s.state->state;
  if (asked.no_verify == 0)
    options.admit = [open = engine.open.get(), device = asked.device, threads = asked.threads](const Plan& p) {
      return open->admit(p, device, threads);
    };
  s.place = {.device = info(engine.open->plans()[0]->arch).device == DeviceKind::kCuda, .id = asked.device};
  options.go_on = [&s] { return s.watch.goes_on(); };
  TS_ASSIGN(s.session, Session::make(e, options));
  // Bound, and found to pass their golden check, before anything is run.
  std::map<std::string, std::string> plans;
  for (const std::string& graph : graph_names(e)) {
    TS_ASSIGN(const Plan* const plan, s.session->plan(graph));
    plans[graph] = plan->name;
  }
  return take_plans(s, plans);
}

}  // namespace

extern "C" {

tess_status* tess_session_make(const tess_engine* engine, const tess_session_options* options, tess_session** out) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(engine, "engine"));
    TS_TRY(check_argument(out, "out"));
    *out = nullptr;
    tess_session_options asked;
    TS_TRY(read_struct(options, TS_UP_TO(tess_session_options, case_count), "tess_session_options", asked));
    TS_TRY(check_machine_options("tess_session_options", asked.threads, asked.device));
    auto s = std::make_unique<tess_session>();
    TS_TRY(make(*engine, asked, *s));
    *out = s.release();
    return {};
  });
}

void tess_session_free(tess_session* session) { delete session; }

tess_status* tess_session_use(tess_session* session, const tess_case* cases, size_t case_count) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(session, "session"));
    const Use use(*session->state);
    TS_TRY(use.status("session"));
    TS_ASSIGN(const auto named, read_cases(cases, case_count));
    return take_plans(*session, named);
  });
}

tess_status* tess_session_port_count(const tess_session* session, int32_t is_output, size_t* out) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(session, "session"));
    TS_TRY(check_argument(out, "out"));
    const auto ports = session->ports();
    *out = (is_output != 0 ? ports->outputs : ports->inputs).size();
    return {};
  });
}

tess_status* tess_session_port(const tess_session* session, int32_t is_output, size_t port, tess_port_info* out) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(session, "session"));
    const auto ports = session->ports();
    return describe_port(is_output != 0 ? ports->outputs : ports->inputs, is_output != 0, port, out);
  });
}

tess_status* tess_session_run(tess_session* session, const tess_tensor* const* inputs, size_t input_count,
                              tess_tensor* const* outputs, size_t output_count) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(session, "session"));
    const Use use(*session->state);
    TS_TRY(use.status("session"));
    session->watch.cancelled = false;
    TS_TRY(session->take(inputs, input_count, outputs, output_count, {}));
    return session->session->run({session->in.data(), session->in.size()}, session->out);
  });
}

tess_status* tess_session_enqueue(tess_session* session, const tess_tensor* const* inputs, size_t input_count,
                                  tess_tensor* const* outputs, size_t output_count, void* stream) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(session, "session"));
    const Use use(*session->state);
    TS_TRY(use.status("session"));
    session->watch.cancelled = false;
    TS_TRY(session->take(inputs, input_count, outputs, output_count, session->place));
    return session->session->enqueue({session->in.data(), session->in.size()}, session->out, {stream});
  });
}

tess_status* tess_session_clear(tess_session* session) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(session, "session"));
    const Use use(*session->state);
    TS_TRY(use.status("session"));
    return session->session->clear();
  });
}

tess_status* tess_session_watch(tess_session* session, tess_go_on_function go_on, void* user) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(session, "session"));
    const Use use(*session->state);
    TS_TRY(use.status("session"));
    session->watch.asked = go_on, session->watch.user = user;
    return {};
  });
}

tess_status* tess_session_cancel(tess_session* session) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(session, "session"));
    session->watch.cancelled = true;
    return {};
  });
}
}
