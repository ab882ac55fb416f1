// SPDX-License-Identifier: Apache-2.0
// The reference as a variant of arch ref, so that plans of golden values are plans like any other.
#include <memory>
#include <string>
#include <vector>

#include "op/reference.h"
#include "ops/ops.h"
#include "types/quantize_array.h"

namespace tessera {
namespace {

class ReferenceKernel final : public Kernel {
 public:
  ReferenceKernel(const OpInfo& op, Problem problem) : op_(op), problem_(std::move(problem)) {}
  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    return run_reference(op_, problem_, in, out);
  }

 private:
  const OpInfo& op_;
  Problem problem_;
};

Verdict accepts(const Problem& p) {
  for (const Operand& o : p.out) {
    TS_REQUIRE(!o.type.product, "makes codes that are rounded once, not ", to_string(o.type));
    if (!o.type.scaled()) continue;
    TS_REQUIRE(o.dense(), "makes codes with scales in dense rows");
    if (const Status known = check_quantizable(o.type); !known.ok()) return {known.message()};
  }
  return {};
}

Arithmetic arithmetic(const Problem&) { return {.computed = "f64", .instruction = "f64", .accumulator_bits = 53}; }

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  if (const Verdict v = accepts(p); !v) return refused(cat(p.op, "/reference: ", v.refusal));
  const OpInfo* op = find_op(p.op);
  if (op == nullptr) return bad_input(cat("unknown op \"", p.op, "\""));
  return std::unique_ptr<Kernel>(std::make_unique<ReferenceKernel>(*op, p));
}

}  // namespace

const Variant* reference_variant(const OpInfo& op) {
  struct Named {
    const OpInfo* op;
    std::string name;
    Variant variant;
  };
  static const std::vector<Named> kAll = [] {
    std::vector<Named> all;
    for (const OpInfo* o : all_ops()) all.push_back({o, cat(o->name, "/reference"), {}});
    for (Named& n : all)
      n.variant = {
          .name = n.name.c_str(), .arch = Arch::ref, .accepts = accepts, .arithmetic = arithmetic, .bind = bind};
    return all;
  }();
  for (const Named& n : kAll) {
    if (n.op == &op) return &n.variant;
  }
  return nullptr;
}

}  // namespace tessera
