// SPDX-License-Identifier: Apache-2.0
// What `tessera policy ACTION` does, one function per action.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/build_flags.h"
#include "cli/command.h"

namespace tessera {

inline constexpr const char* kPolicyFamily = "pi05";
inline constexpr const char* kPolicyPrecision = "bf16";  // where nothing else is said

struct PolicyOptions {
  std::string action, engine, model, config, inputs, outputs, output, images, rope, type = "bf16";
  std::string views, prompt;       // numbers with commas between them
  int64_t horizon = 0, steps = 0;  // 0: not given
  int repeats = 20, warmup = -1;
  bool stages = false, all = false, rtc = false;
  BuildFlags flags;
  size_t first_of_build = 0, end_of_build = 0;  // which options are those of a build
};

// The flags of a build of this policy: its family, and its sizes among the others.
BuildFlags policy_flags(const PolicyOptions& options);

// "plans vision.views1.batch1, ...": which ones an observation ran through.
std::string plans_in_words(const std::vector<std::string>& plans);

Status policy_build(const PolicyOptions& options, const Common& common);
Status policy_weights(const PolicyOptions& options, const Common& common);
Status policy_run(const PolicyOptions& options, const Common& common);
Status policy_bench(const PolicyOptions& options, const Common& common);
Status policy_verify(const PolicyOptions& options, const Common& common);

}  // namespace tessera
