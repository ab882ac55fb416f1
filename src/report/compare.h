// SPDX-License-Identifier: Apache-2.0
// Engines side by side: which of them no other beats, and what one version changed against another, step by step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/report.h"

namespace tessera {

// Sets on_front of those engines that no other of the same batch beats: at least as good in cosine, latency and bytes,
// and better in one. An engine of which one of the three is not known is not on the front and beats none.
void mark_front(std::vector<ComparedEngine>& engines);

// Steps of two profiles of one engine: the same layer and the same turn in it. What changed most comes first.
std::vector<StepChange> changed_steps(const Profile& before, const Profile& after);

// "3 of 64 steps have another kernel"; where none has, and one program ran both, times differ by noise alone.
std::string kernel_words(const VersionPair& versions);
// "latency", "kernel time": what the two times are.
std::string time_kind(const VersionPair& versions);
// "front", "refused" (not built), "not run" (its target is not here), or nothing.
std::string verdict_words(const ComparedEngine& engine);

}  // namespace tessera
