// SPDX-License-Identifier: Apache-2.0
// A profile as text: what a run takes, then where it goes, by kernel and by layer.
#pragma once

#include <string>
#include <vector>

#include "traces/profile.h"

namespace tessera {

// Lines of one profile that have the same kernel, or the same layer and kernel, with their times, flops and bytes
// summed; slowest first.
std::vector<KernelTime> by_kernel(const Profile& profile);
std::vector<KernelTime> by_layer(const Profile& profile);

// "1.23 GB/s", "456 GFLOP/s": a rate in the unit that leaves three digits.
std::string say_rate(double per_second, const char* unit);

void print_profile_summary(const Profile& profile);
// `all`: every layer, else the ten slowest.
void print_profile_tables(const Profile& profile, bool all);
// Flops, bytes and flop/byte of every layer beside the ridge of the machine, and the least time that the ceilings
// allow.
void print_intensity(const Profile& profile, bool all);

}  // namespace tessera
