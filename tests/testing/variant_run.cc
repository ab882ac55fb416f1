// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "op/prepack.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

constexpr uint8_t kPoison = 0xa5;
constexpr size_t kGuard = 256;  // bytes before and after, and the alignment that device allocations have

// Memory of the variant's arch with poisoned guards around it, `shift` bytes behind a multiple of kGuard.
class Guarded {
 public:
  Guarded(bool on_device, size_t bytes, size_t shift = 0)
      : on_device_(on_device), bytes_(bytes), front_(kGuard + shift), host_(bytes + front_ + kGuard) {
    std::memset(host_.data(), kPoison, host_.size());
  }
  Status put(const void* from) {
    if (from != nullptr) std::memcpy(host_.data() + front_, from, bytes_);
    if (!on_device_) return {};
    TS_TRY(device_.allocate(host_.size()));
    return copy_to_device(device_.data(), host_.data(), host_.size());
  }
  // Fetches what is there now; false where a guard was written.
  Result<bool> fetch() {
    if (on_device_) TS_TRY(copy_to_host(host_.data(), device_.data(), host_.size()));
    bool whole = true;
    for (size_t i = 0; i < front_; ++i) whole &= host_.data()[i] == kPoison;
    for (size_t i = 0; i < kGuard; ++i) whole &= host_.data()[front_ + bytes_ + i] == kPoison;
    return whole;
  }
  void* data() { return (on_device_ ? device_.data() : host_.data()) + front_; }
  const uint8_t* host() const { return host_.data() + front_; }

 private:
  bool on_device_;
  size_t bytes_, front_;
  Buffer host_;
  DeviceBuffer device_;
};

// A weight's codes as the variant wants them stored.
struct Placed {
  std::vector<std::unique_ptr<Guarded>> all;
  Result<void*> put(bool on_device, const Buffer& bytes, size_t shift = 0) {
    if (bytes.size() == 0) return static_cast<void*>(nullptr);
    all.push_back(std::make_unique<Guarded>(on_device, bytes.size(), shift));
    TS_TRY(all.back()->put(bytes.data()));
    return all.back()->data();
  }
};

}  // namespace

Result<std::vector<HostTensor>> run_on(const Variant& variant, const Case& c) {
  const bool on_device = info(variant.arch).device == DeviceKind::kCuda;
  if (variant.bind == nullptr) return machine_error(cat(variant.name, ": this build holds only its contract"));
  Problem problem = c.problem;
  TS_ASSIGN(problem.config, checked_config(variant, problem));
  const std::vector<OperandLayout> layouts = layouts_of(variant, problem);

  Placed placed;
  std::vector<TensorView> in(problem.in.size()), out(problem.out.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const HostTensor& t = c.in[i];
    if (!t.desc.present) continue;
    Operand& desc = problem.in[i];
    desc.layout = layouts[i];
    in[i].desc = &desc;
    TS_ASSIGN(const Prepacked packed, prepack(desc, t.data.data(), t.scale.data()));
    TS_ASSIGN(in[i].data, placed.put(on_device, layouts[i].codes == Layout::kRows ? t.data : packed.codes, c.shift));
    TS_ASSIGN(in[i].scale, placed.put(on_device, layouts[i].scales == Layout::kRows ? t.scale : packed.scales));
    TS_ASSIGN(in[i].scale2, placed.put(on_device, t.scale2));
  }
  std::vector<std::unique_ptr<Guarded>> results, made_scales;  // the latter null where scales are static
  for (size_t i = 0; i < out.size(); ++i) {
    const Operand& desc = problem.out[i];
    results.push_back(std::make_unique<Guarded>(
        on_device, static_cast<size_t>(packed_bytes(desc.type.element, elements(desc.shape))), c.shift));
    TS_TRY(results.back()->put(nullptr));
    out[i] = {.desc = &desc, .data = results.back()->data()};
    TS_ASSIGN(out[i].scale2, placed.put(on_device, c.out[i].scale2));
    made_scales.emplace_back();
    if (!desc.type.dynamic) {
      TS_ASSIGN(out[i].scale, placed.put(on_device, c.out[i].scale));
      continue;
    }
    made_scales.back() = std::make_unique<Guarded>(on_device, c.out[i].scale.size());
    TS_TRY(made_scales.back()->put(c.out[i].scale.data()));
    out[i].scale = made_scales.back()->data();
  }

  TS_ASSIGN(const std::unique_ptr<Kernel> kernel, variant.bind(problem));
  Guarded workspace(on_device,
                    static_cast<size_t>(variant.workspace_bytes != nullptr ? variant.workspace_bytes(problem) : 0));
  TS_TRY(workspace.put(nullptr));
  TS_TRY(kernel->launch(in, out, workspace.data(), {}));
  if (on_device) TS_TRY(device_synchronise());

  const auto expect_whole = [&](Guarded& memory, const char* what) -> Status {
    TS_ASSIGN(const bool whole, memory.fetch());
    EXPECT_TRUE(whole) << variant.name << " wrote outside " << what << ": " << c.text();
    return {};
  };
  for (const auto& memory : placed.all) TS_TRY(expect_whole(*memory, "an operand"));
  TS_TRY(expect_whole(workspace, "its workspace"));
  std::vector<HostTensor> got;
  for (size_t i = 0; i < results.size(); ++i) {
    TS_TRY(expect_whole(*results[i], "its result"));
    HostTensor t{
        .desc = c.problem.out[i],
        .data =
            Buffer(static_cast<size_t>(packed_bytes(c.problem.out[i].type.element, elements(c.problem.out[i].shape)))),
        .scale = Buffer(c.out[i].scale.size()),
        .scale2 = Buffer(c.out[i].scale2.size())};
    if (t.data.size() > 0) std::memcpy(t.data.data(), results[i]->host(), t.data.size());
    const uint8_t* scale = c.out[i].scale.data();
    if (made_scales[i] != nullptr) {
      TS_TRY(expect_whole(*made_scales[i], "the scales of its result"));
      scale = made_scales[i]->host();
    }
    if (t.scale.size() > 0) std::memcpy(t.scale.data(), scale, t.scale.size());
    if (t.scale2.size() > 0) std::memcpy(t.scale2.data(), c.out[i].scale2.data(), t.scale2.size());
    got.push_back(std::move(t));
  }
  return got;
}

}  // namespace tessera
