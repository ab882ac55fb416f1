// SPDX-License-Identifier: Apache-2.0
#include "runtime/state.h"

#include <cstring>

#include "base/memory.h"

namespace tessera {
namespace {

constexpr int64_t kAlignment = 256;  // what cudaMalloc itself gives

std::string where(DeviceKind kind, int device) {
  return kind == DeviceKind::kHost ? "in host memory" : cat("on GPU ", device);
}

// What the thread has claimed, while none of the claim's calls runs: a function that is called back within one has no
// turn of its own.
thread_local const State* claimed = nullptr;

}  // namespace

Turn::Turn(State& state)
    : state_(state),
      within_(claimed == &state),
      mine_(within_ || !state.taken_.exchange(true, std::memory_order_acquire)) {
  if (within_) claimed = nullptr;
}

Turn::~Turn() {
  if (within_) {
    claimed = &state_;
  } else if (mine_) {
    state_.taken_.store(false, std::memory_order_release);
  }
}

Claim::Claim(State& state) : turn_(state), before_(claimed) {
  if (turn_.mine()) claimed = &state;
}

Claim::~Claim() {
  if (turn_.mine()) claimed = before_;
}

Result<std::shared_ptr<State>> State::make(const Engine& engine, DeviceKind kind, int device) {
  auto s = std::make_shared<State>();
  s->kind_ = kind;
  s->device_ = kind == DeviceKind::kHost ? 0 : device;
  s->parts_ = parts_of(engine);
  if (kind == DeviceKind::kHost) {
    for (const EngineState& e : engine.states) {
      TS_ASSIGN(Buffer block, allocate(e.bytes, cat("state '", e.name, "'")));
      s->host_.push_back(std::move(block));
      s->blocks_.push_back(s->host_.back().data());
    }
    return s;
  }
  const OnDevice here(device);
  TS_TRY(here.status());
  TS_TRY(s->order_.make());
  for (const Part& p : s->parts_) s->memory_bytes_ += round_up(p.bytes, kAlignment);
  TS_TRY(s->memory_.allocate(static_cast<size_t>(s->memory_bytes_)));
  int64_t at = 0;
  for (const Part& p : s->parts_) {
    s->blocks_.push_back(s->memory_.data() + at);
    at += round_up(p.bytes, kAlignment);
  }
  TS_TRY(s->fill_with_zeros());
  return s;
}

Status State::check(const Engine& engine, DeviceKind kind, int device) const {
  if (kind != kind_ || (kind == DeviceKind::kCuda && device != device_)) {
    return bad_input(cat("the state lies ", where(kind_, device_), ", and the plan runs ", where(kind, device)));
  }
  const std::vector<Part> wanted = parts_of(engine);
  if (wanted.size() != parts_.size())
    return bad_input(cat("the state was made for another engine: the number of its parts is ", parts_.size(), ", and ",
                         wanted.size(), " in this one"));
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (parts_[i] != wanted[i])
      return bad_input(cat("the state was made for another engine: its part ", parts_[i].what(), " is ",
                           wanted[i].what(), " in this one"));
  }
  return {};
}

std::string State::Part::what() const {
  return cat("'", name, "' of ", bytes, " bytes", shape.empty() ? "" : cat(", ", to_string(type), to_string(shape)));
}

std::vector<State::Part> State::parts_of(const Engine& engine) {
  std::vector<Part> parts;
  for (const EngineState& e : engine.states)
    parts.push_back({.name = e.name, .bytes = e.bytes, .type = {}, .shape = {}});
  for (const Plan& p : engine.plans) {
    for (const std::vector<Port>* ports : {&p.inputs, &p.outputs}) {
      for (const Port& port : *ports) {
        if (!is_state(p, port)) continue;
        const PlanTensor& t = p.tensors[static_cast<size_t>(port.tensor)];
        Part& part = parts[static_cast<size_t>(t.index)];
        if (!part.shape.empty() && elements(part.shape) >= elements(t.desc.shape)) continue;
        part.type = t.desc.type, part.shape = t.desc.shape;
      }
    }
  }
  return parts;
}

Status State::fill_with_zeros() {
  for (Buffer& b : host_) std::memset(b.data(), 0, b.size());
  if (memory_bytes_ == 0) return {};
  const OnDevice here(device_);
  TS_TRY(here.status());
  return fill_device(memory_.data(), 0, static_cast<size_t>(memory_bytes_));
}

Status State::clear() {
  const Turn turn(*this);
  if (!turn.mine()) return machine_error("the state is in use in another thread");
  TS_TRY(order_.settle());
  return fill_with_zeros();
}

}  // namespace tessera
