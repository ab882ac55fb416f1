// SPDX-License-Identifier: Apache-2.0
// Recommendations, a function each: nothing where the profiles have not the numbers for it, or it gains too little.
// `flag` stays empty: flags.cc fills it.
#pragma once

#include "explain/parts.h"

namespace tessera {

using Recommender = std::optional<Recommendation> (*)(const Case&);

std::optional<Recommendation> recommend_fusing(const Case& c);
std::optional<Recommendation> recommend_quantizing(const Case& c);
std::optional<Recommendation> recommend_convolutions(const Case& c);
std::optional<Recommendation> recommend_attention(const Case& c);
std::optional<Recommendation> recommend_precision(const Case& c);
std::optional<Recommendation> recommend_sparsity(const Case& c);
std::optional<Recommendation> recommend_tuning(const Case& c);
std::optional<Recommendation> recommend_batch(const Case& c);
std::optional<Recommendation> recommend_graph(const Case& c);

// Fills what a change of kernel time from `part_us` to `after_us` predicts.
void predict_kernel_time(const Case& c, Recommendation& r, double part_us, double after_us);

// Products of B in a higher precision than its lowest: by layer ("blocks.*.attn.qkv"), else by kernel; at most three.
std::string names_of_higher_products(const Case& c, KernelClass kind);
// What does it: the tool's own step for users of another tool, and the line of tessera build.
std::string flag_of(const Case& c, const Recommendation& r);

}  // namespace tessera
