// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "base/log.h"
#include "base/log_sink.h"
#include "base/memory.h"
#include "library/handles.h"
#include "library/ports.h"
#include "library/structs.h"
#include "ops/ops.h"
#include "plan/engine_file.h"
#include "plan/golden_plans.h"
#include "runtime/batches.h"
#include "runtime/executor.h"

namespace tessera {
namespace {

// Nothing is printed that TESSERA_LOG does not ask for: a program has its own log.
// And tables of ops are made before there are threads: a child that is forked while one makes them would wait for it.
const bool loaded = [] {
  be_library();
  return find_variant("matmul/reference") != nullptr;
}();

Status open(Result<Engine> read, const tess_engine_options& options, tess_engine** out) {
  if (!read.ok()) return read.status();
  if (options.check_constants != 0) TS_TRY(check_constants(*read));
  if (read->golden.forms.empty()) warn(kNoGoldenValues);
  *out = new tess_engine{std::make_shared<OpenEngine>(std::move(read).value())};
  return {};
}

Status read_engine_options(const tess_engine_options* options, tess_engine_options& out) {
  return read_struct(options, TS_UP_TO(tess_engine_options, reserved), "tess_engine_options", out);
}

}  // namespace

OpenEngine::OpenEngine(Engine engine) : engine_(std::move(engine)), plans_(runnable_plans(engine_)) { (void)loaded; }

const char* OpenEngine::manifest() {
  {
    const std::lock_guard lock(lock_);
    if (!manifest_.empty()) return manifest_.c_str();
  }
  std::string made = manifest_json(engine_);
  const std::lock_guard lock(lock_);
  if (manifest_.empty()) manifest_ = std::move(made);
  return manifest_.c_str();
}

bool OpenEngine::is_admitted(const Plan& plan, int device) {
  const std::lock_guard lock(lock_);
  return admitted_.contains({&plan, device});
}

Status OpenEngine::admit(const Plan& plan, int device, int threads) {
  if (is_admitted(plan, device)) return {};
  const Turns::Turn turn = checks_.take();
  if (is_admitted(plan, device)) return {};
  TS_TRY(require_golden(engine_, plan, checked_, {.threads = threads, .device = device}));
  {
    const std::lock_guard lock(lock_);
    admitted_.insert({&plan, device});
  }
  if (has_golden_values(engine_, plan)) note(cat("plan ", plan.name, " reproduces its golden values here"));
  return {};
}

Status Use::status(const char* what) const {
  if (mine_) return {};
  return Status(kBusy, cat("this ", what,
                           " or its state is in use in another thread; make one per thread, they "
                           "share the weights"));
}

Result<std::shared_ptr<SharedState>> state_to_use(const std::shared_ptr<OpenEngine>& engine, const tess_state* given) {
  if (given != nullptr) return given->shared;
  auto own = std::make_shared<SharedState>();
  own->engine = engine;
  return own;
}

}  // namespace tessera

using namespace tessera;

extern "C" {

uint32_t tess_abi_version(void) { return TESS_ABI_VERSION; }
const char* tess_version(void) { return TS_VERSION; }

void tess_set_log(tess_log_function log, void* user) {
  if (log == nullptr) return set_log_sink(nullptr);
  set_log_sink([=](LogLevel level, const std::string& line) { log(static_cast<int32_t>(level), line.c_str(), user); });
}

tess_status* tess_engine_open(const char* path, const tess_engine_options* options, tess_engine** out) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(path, "path"));
    TS_TRY(check_argument(out, "out"));
    *out = nullptr;
    tess_engine_options asked;
    TS_TRY(read_engine_options(options, asked));
    return open(read_engine(path), asked, out);
  });
}

tess_status* tess_engine_open_bytes(const void* bytes, size_t count, const tess_engine_options* options,
                                    tess_engine** out) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(bytes, "bytes"));
    TS_TRY(check_argument(out, "out"));
    *out = nullptr;
    tess_engine_options asked;
    TS_TRY(read_engine_options(options, asked));
    TS_ASSIGN(Buffer copy, allocate(static_cast<int64_t>(std::min<size_t>(count, INT64_MAX)), "a copy of the engine"));
    std::memcpy(copy.data(), bytes, count);
    const Status opened = open(parse_engine(Bytes::own(std::move(copy))), asked, out);
    return opened.at("bytes of an engine");
  });
}

void tess_engine_free(tess_engine* engine) { delete engine; }

tess_status* tess_engine_manifest(const tess_engine* engine, const char** json) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(engine, "engine"));
    TS_TRY(check_argument(json, "json"));
    *json = engine->open->manifest();
    return {};
  });
}

tess_status* tess_inspect(const char* path, int32_t scales, tess_report** out) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(out, "out"));
    *out = nullptr;
    TS_TRY(check_argument(path, "path"));
    TS_ASSIGN(const Engine engine, read_engine(path));
    *out = make_report(manifest_json(engine, scales != 0));
    return {};
  });
}

size_t tess_plan_count(const tess_engine* engine) { return engine == nullptr ? 0 : engine->open->plans().size(); }

tess_status* tess_plan(const tess_engine* engine, size_t plan, tess_plan_info* out) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(engine, "engine"));
    const auto& plans = engine->open->plans();
    if (plan >= plans.size()) return usage_error(cat("plan ", plan, ": the engine has ", plans.size()));
    const Plan& p = *plans[plan];
    tess_plan_info info{};
    info.name = p.name.c_str(), info.graph = p.graph.c_str(), info.arch = tessera::info(p.arch).name;
    info.batch = p.batch, info.arena_bytes = p.arena_bytes;
    info.inputs = p.inputs.size(), info.outputs = p.outputs.size();
    info.device_type = tessera::info(p.arch).device == DeviceKind::kHost ? TESS_CPU : TESS_CUDA;
    return write_struct(info, TS_UP_TO(tess_plan_info, reserved), "tess_plan_info", out);
  });
}

tess_status* tess_port(const tess_engine* engine, size_t plan, int32_t is_output, size_t port, tess_port_info* out) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(engine, "engine"));
    const auto& plans = engine->open->plans();
    if (plan >= plans.size()) return usage_error(cat("plan ", plan, ": the engine has ", plans.size()));
    return describe_port(ports_of(*plans[plan], is_output != 0, false), is_output != 0, port, out);
  });
}

tess_status* tess_state_make(const tess_engine* engine, int32_t device, tess_state** out) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(engine, "engine"));
    TS_TRY(check_argument(out, "out"));
    *out = nullptr;
    if (engine->open->plans().empty()) return bad_input("the engine has no plan to run");
    if (device < 0) return usage_error(cat("device is ", device, ": 0 or more"));
    TS_TRY(check_runs_here(engine->open->engine(), device));
    auto shared = std::make_shared<SharedState>();
    shared->engine = engine->open;
    const DeviceKind kind = info(engine->open->plans()[0]->arch).device;
    TS_ASSIGN(shared->state, State::make(engine->open->engine(), kind, device));
    *out = new tess_state{std::move(shared)};
    return {};
  });
}

tess_status* tess_state_clear(tess_state* state) {
  return guarded([&]() -> Status {
    TS_TRY(check_argument(state, "state"));
    const Use use(*state->shared);
    TS_TRY(use.status("state"));
    return state->shared->state->clear();
  });
}

void tess_state_free(tess_state* state) { delete state; }
}
