// SPDX-License-Identifier: Apache-2.0
#include "runtime/weights.h"

#include "base/fork_locks.h"
#include "plan/engine_file.h"
#include "plan/golden_plans.h"

namespace tessera {
namespace {

constexpr int64_t kAlignment = 256;  // what cudaMalloc itself gives

std::vector<bool> used_on_gpus(const Engine& engine) {
  std::vector<bool> used(engine.constants.size(), false);
  for (const Plan& plan : engine.plans) {
    if (info(plan.arch).device == DeviceKind::kCuda) mark_constants(plan, used);
  }
  return used;
}

}  // namespace

Result<std::shared_ptr<const Weights>> Weights::of(const Engine& engine, DeviceKind kind, int device) {
  auto made = std::make_shared<Weights>();
  if (kind == DeviceKind::kHost) {
    for (const EngineConstant& c : engine.constants) made->constants_.push_back(c.data.data());
    return std::shared_ptr<const Weights>(std::move(made));
  }
  // Held while uploading: who comes at the same time waits for the one copy.
  static Turns turns;
  static std::vector<std::weak_ptr<const Weights>> resident;
  const Turns::Turn turn = turns.take();
  const std::vector<bool> used = used_on_gpus(engine);
  std::erase_if(resident, [](const auto& w) { return w.expired(); });
  for (const auto& w : resident) {
    if (std::shared_ptr<const Weights> found = w.lock(); found != nullptr && found->hold(engine, used, device))
      return found;
  }
  TS_TRY(made->upload(engine, used, device));
  resident.push_back(made);
  return std::shared_ptr<const Weights>(std::move(made));
}

int64_t Weights::bytes_of(const Engine& engine, DeviceKind kind) {
  std::vector<bool> used(engine.constants.size(), false);
  for (const Plan& plan : engine.plans) {
    if (!is_golden(plan) && info(plan.arch).device == kind) mark_constants(plan, used);
  }
  if (kind == DeviceKind::kCuda) used = used_on_gpus(engine);
  int64_t bytes = 0;
  for (size_t i = 0; i < used.size(); ++i) {
    const auto own = static_cast<int64_t>(engine.constants[i].data.size());
    if (used[i]) bytes += kind == DeviceKind::kCuda ? round_up(own, kAlignment) : own;
  }
  return bytes;
}

bool Weights::hold(const Engine& engine, const std::vector<bool>& used, int device) const {
  if (device != device_ || sources_.size() != used.size()) return false;
  for (size_t i = 0; i < used.size(); ++i) {
    const Bytes& data = engine.constants[i].data;
    if (used[i] && (constants_[i] == nullptr || sources_[i].data() != data.data() || sources_[i].size() != data.size()))
      return false;
  }
  return true;
}

Status Weights::upload(const Engine& engine, const std::vector<bool>& used, int device) {
  const OnDevice here(device);
  TS_TRY(here.status());
  device_ = device;
  std::vector<int64_t> offsets(used.size(), 0);
  int64_t bytes = 0;
  for (size_t i = 0; i < used.size(); ++i) {
    offsets[i] = bytes;
    if (used[i]) bytes += round_up(static_cast<int64_t>(engine.constants[i].data.size()), kAlignment);
  }
  TS_TRY(memory_.allocate(static_cast<size_t>(bytes)));
  for (size_t i = 0; i < used.size(); ++i) {
    const Bytes& data = engine.constants[i].data;
    constants_.push_back(used[i] ? memory_.data() + offsets[i] : nullptr);
    sources_.push_back(used[i] ? data : Bytes());
    if (used[i]) TS_TRY(copy_to_device(memory_.data() + offsets[i], data.data(), data.size()));
  }
  return {};
}

}  // namespace tessera
