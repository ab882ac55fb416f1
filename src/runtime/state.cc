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

}  // namespace

Result<std::shared_ptr<State>> State::make(const Engine& engine, DeviceKind kind, int device) {
  auto s = std::make_shared<State>();
  s->kind_ = kind;
  s->device_ = kind == DeviceKind::kHost ? 0 : device;
  for (const EngineState& e : engine.states) s->bytes_.push_back(e.bytes);
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
  for (const int64_t bytes : s->bytes_) s->memory_bytes_ += round_up(bytes, kAlignment);
  TS_TRY(s->memory_.allocate(static_cast<size_t>(s->memory_bytes_)));
  int64_t at = 0;
  for (const int64_t bytes : s->bytes_) {
    s->blocks_.push_back(s->memory_.data() + at);
    at += round_up(bytes, kAlignment);
  }
  TS_TRY(s->fill_with_zeros());
  return s;
}

Status State::check(const Engine& engine, DeviceKind kind, int device) const {
  if (kind != kind_ || (kind == DeviceKind::kCuda && device != device_)) {
    return bad_input(cat("the state lies ", where(kind_, device_), ", and the plan runs ", where(kind, device)));
  }
  std::vector<int64_t> wanted;
  for (const EngineState& e : engine.states) wanted.push_back(e.bytes);
  if (wanted != bytes_) return bad_input("the state was made for another engine: its parts have other sizes");
  return {};
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
