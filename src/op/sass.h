// SPDX-License-Identifier: Apache-2.0
// What the machine code of a variant's kernels shows, as data: `tessera kernels --json` prints it, tools/check_sass.py
// holds the compiled kernels against it. A tensor-core instruction that `must` does not name is implicitly
// forbidden: a kernel that must show QGMMA may hold no HGMMA, IGMMA or HMMA.
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct SassRule {
  // A word of the demangled names of the kernels it covers ("__half"); empty: every kernel that no other rule covers.
  std::string kernels;
  std::vector<std::string> must;   // instructions that each of these kernels has
  std::vector<std::string> never;  // and those that none has
  std::string exempt_because;      // why these kernels promise nothing: they do none of the variant's products
};

// Every kernel falls under exactly one rule, and every rule is about some kernel.
struct SassPromise {
  std::vector<SassRule> rules;
  std::string local;  // why kernels may use local memory (a stack frame, spilled registers); empty: they may not
};

// All kernels of the file show these.
inline SassPromise shows(std::vector<std::string> must) { return {.rules = {{.must = std::move(must)}}}; }

}  // namespace tessera
