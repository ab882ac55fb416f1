// SPDX-License-Identifier: Apache-2.0
// Variant: one way to run one op on one arch. `accepts` may refuse, with the reason; what it accepts it must run
// exactly as asked, in the arithmetic that it states. The name is the path of its file: "matmul/cpu".
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "archs/arch.h"
#include "base/buffer.h"
#include "base/status.h"
#include "op/emulation.h"
#include "op/problem.h"
#include "op/sass.h"

namespace tessera {

struct Verdict {
  std::string refusal;  // empty: accepted
  explicit operator bool() const { return refusal.empty(); }
};

// What the multiplications and sums really are. Tolerances of tests and the bound of golden values are derived from it:
// |got - want| <= (2 * operand_error + accumulator_error(terms)) * sum|products|, then one rounding to the result's
// type.
struct Arithmetic {
  Element computed = Element::f32;  // what operands are when they are multiplied
  std::string instruction;          // as people know it: "FMA", "wgmma e4m3 (QGMMA)", "cuBLASLt"
  // Significand bits of the running sum. 32: an exact int32 accumulator, converted to fp32 once at the end.
  int accumulator_bits = 24;
  int promote_every = 0;     // products after which a short accumulator is added to an fp32 one; 0: never
  double operand_error = 0;  // relative error of bringing a decoded operand into `computed` (0: exact)
  // Extra error of an approximate activation, relative to its argument, on top of normal fp32 rounding.
  double activation_error = 0;

  // Relative to the sum of the products' magnitudes, for a sum of `terms` products in any order.
  double accumulator_error(int64_t terms) const;
};

// An Arithmetic as the derivation of errors asks it (OpInfo::errors).
//   kWorst  all roundings of a sum go to the same side: no data and no order of additions errs by more
//   kWalk   they go to both sides. A sum of n products p then errs by about sqrt(n) roundings, each relative to a
//           partial sum of the size sqrt(sum of p^2). Results are allowed a multiple of this (judge.h)
enum class Growth : uint8_t { kWorst, kWalk };
class Roundings {
 public:
  explicit Roundings(Arithmetic a, Growth growth = Growth::kWorst) : a_(std::move(a)), growth_(growth) {}
  // One rounding of a number in fp32, or in f64 where the arithmetic is that.
  double unit() const { return a_.accumulator_bits > 32 ? 0x1p-53 : 0x1p-24; }
  // Of an operand brought into `computed`. In a walk: about one standard deviation of an error that is uniform up to
  // the largest.
  double operand() const { return walk() ? 0.6 * a_.operand_error : a_.operand_error; }
  // Of a sum of so many terms: relative to the sum of their magnitudes; in a walk, to the size of partial sums.
  double sum(int64_t terms) const;
  bool walk() const { return growth_ == Growth::kWalk; }
  Element computed() const { return a_.computed; }

 private:
  Arithmetic a_;
  Growth growth_;
};

// An arithmetic by its usual name: "fp32", "fp16", "int8", "e4m3".
std::string arithmetic_name(Element computed);

struct Stream {
  void* handle = nullptr;  // cudaStream_t; null on the host
};

// A variant bound to one problem on this machine: ready to launch, owns its descriptors and algorithms. Launching
// allocates nothing.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // `in` and `out` follow the problem's operands (absent ones have desc == nullptr). Asynchronous on `stream` for CUDA,
  // complete on return on the host.
  virtual Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void* workspace,
                        Stream stream) = 0;
  // Of a variant that can be a phase of a chain (Variant::chains): what its arch's chain needs to know of it.
  virtual Result<Bytes> phase(std::span<const TensorView>, std::span<const TensorView>) const { return Bytes(); }
};

struct ChainForm {
  std::string refusal;             // empty: it can be a phase
  std::vector<std::string> kinds;  // of chains; all phases of one have a kind in common
  std::string config;              // that it has in a chain
  std::vector<int> early;          // operands that it reads before its turn: nothing that the chain itself makes
};

struct Variant {
  const char* name;
  Arch arch;
  Verdict (*accepts)(const Problem&);
  Arithmetic (*arithmetic)(const Problem&);
  // Where it can run a problem but is slow at it: the reason. The planner then prefers a later variant of the
  // list that accepts it. Null: never slow.
  Verdict (*worthwhile)(const Problem&) = nullptr;
  // Names of the few tile shapes (or algorithms of a library) that it may run a problem with, best guess first
  // ("128x192"); null: one, without a name.
  // Which one is in Problem::config when layouts, workspace_bytes and bind are asked; accepts, worthwhile and
  // arithmetic hold for all of them.
  std::vector<std::string> (*configs)(const Problem&) = nullptr;
  // How it runs a problem that it accepts as a phase of a chain, one persistent kernel for neighbouring steps
  // (plan/form_chains.h). Null: never.
  ChainForm (*chain)(const Problem&) = nullptr;
  // No plan has it but as a phase of a chain.
  bool only_in_chains = false;
  // How this variant wants each input stored, codes and block scales; the plan prepacks constants so at build. Null or
  // shorter than the inputs: rows.
  std::vector<OperandLayout> (*layouts)(const Problem&) = nullptr;
  int64_t (*workspace_bytes)(const Problem&) = nullptr;
  // What the kernel makes of these operands, where the order of its sums is known (emulation.h); null: it is not, and
  // results are held against exact ones and the bounds of `arithmetic`. The problem names its config. Host memory; of
  // `out` only scales are read. Returns nothing for types that are not emulated.
  Emulation (*emulate)(const Problem&, std::span<const TensorView> in, std::span<const TensorView> out) = nullptr;
  // Alignment in bytes of every operand and result, where TMA or vector loads ask for more than the element's own.
  int64_t operand_align = 1;
  SassPromise sass = {};  // of a variant with GPU kernels of its own
  // Null where this build holds only the contract (no CUDA toolkit at configure time): plans can be made but not run.
  Result<std::unique_ptr<Kernel>> (*bind)(const Problem&) = nullptr;
};

// The variant's configs for a problem it accepts, at least one: {""} where it names none.
std::vector<std::string> configs_of(const Variant& variant, const Problem& problem);
// The storage order that the variant wants each operand of a problem in, which names its config.
std::vector<OperandLayout> layouts_of(const Variant& variant, const Problem& problem);
// Whether operands lie, and workspace is given, as the variant asks for them in a problem that names its config.
// Kernels look no further; the reference reads any order. Results are rows.
Status check_storage(const Variant& variant, const Problem& problem, int64_t workspace_bytes);
// The problem's own config where the variant knows it, the variant's first where the problem names none, else an error
// that lists what is known.
Result<std::string> checked_config(const Variant& variant, const Problem& problem);

// Steps of kernels whose epilogue can only quantize.
inline constexpr StepSet kCodesOnly = {StepKind::quantize};

}  // namespace tessera

// In accepts(): refuse with a reason unless the condition holds.
#define TS_REQUIRE(condition, ...)                                            \
  do {                                                                        \
    if (!(condition)) return ::tessera::Verdict{::tessera::cat(__VA_ARGS__)}; \
  } while (0)
