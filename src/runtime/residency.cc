// SPDX-License-Identifier: Apache-2.0
#include "runtime/residency.h"

#include "base/memory.h"

namespace tessera {

Result<std::shared_ptr<Residency>> Residency::make(const Engine& engine, DeviceKind kind) {
  auto r = std::make_shared<Residency>();
  if (kind == DeviceKind::kCuda) {
    TS_TRY(r->upload(engine));
    return r;
  }
  for (const EngineConstant& c : engine.constants) r->constants_.push_back(c.data.data());
  for (const EngineState& s : engine.states) {
    TS_ASSIGN(Buffer state, allocate(s.bytes, cat("state '", s.name, "'")));
    r->host_states_.push_back(std::move(state));
    r->states_.push_back(r->host_states_.back().data());
  }
  return r;
}

Status Residency::upload(const Engine& engine) {
  std::vector<bool> used(engine.constants.size(), false);
  for (const Plan& plan : engine.plans) {
    if (info(plan.arch).device != DeviceKind::kCuda) continue;
    for (const PlanTensor& t : plan.tensors) {
      if (t.storage == Storage::kConstant) used[static_cast<size_t>(t.index)] = true;
    }
  }
  constexpr int64_t kAlignment = 256;  // what cudaMalloc itself gives
  std::vector<int64_t> offsets(used.size(), 0);
  int64_t bytes = 0;
  for (size_t i = 0; i < used.size(); ++i) {
    offsets[i] = bytes;
    if (used[i]) bytes += round_up(static_cast<int64_t>(engine.constants[i].data.size()), kAlignment);
  }
  TS_TRY(device_constants_.allocate(static_cast<size_t>(bytes)));
  for (size_t i = 0; i < used.size(); ++i) {
    const Bytes& data = engine.constants[i].data;
    constants_.push_back(used[i] ? device_constants_.data() + offsets[i] : nullptr);
    if (used[i]) TS_TRY(copy_to_device(device_constants_.data() + offsets[i], data.data(), data.size()));
  }
  bytes = 0;
  for (const EngineState& s : engine.states) bytes += round_up(s.bytes, kAlignment);
  TS_TRY(device_states_.allocate(static_cast<size_t>(bytes)));
  TS_TRY(fill_device(device_states_.data(), 0, static_cast<size_t>(bytes)));
  bytes = 0;
  for (const EngineState& s : engine.states) {
    states_.push_back(device_states_.data() + bytes);
    bytes += round_up(s.bytes, kAlignment);
  }
  return {};
}

}  // namespace tessera
