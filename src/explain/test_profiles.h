// SPDX-License-Identifier: Apache-2.0
// What tests of this room share: the published ViT-B case (FP16 against NVFP4, docs/explain.md) as profiles, ways to
// look into an explanation, and what holds for every one.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "explain/explain.h"
#include "explain/numbers.h"
#include "io/json.h"

namespace tessera {

inline KernelTime kernel(const char* name, KernelClass kind, const char* precision, int64_t calls, double each_us) {
  KernelTime k;
  k.name = name;
  k.kernel_class = kind;
  k.precision = precision;
  k.calls = calls;
  k.us = static_cast<double>(calls) * each_us;
  return k;
}

inline Profile profile(std::vector<KernelTime> kernels, double total_us = 0) {
  Profile p;
  p.source = "trtexec";
  p.kernels = std::move(kernels);
  if (total_us > 0) p.kernels.push_back(kernel("other", KernelClass::kOther, "", 1, total_us - p.kernel_us()));
  return p;
}

inline Profile fp16() {
  return profile({kernel("sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_a", KernelClass::kGemm, "fp16", 12, 188.3),
                  kernel("sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_b", KernelClass::kGemm, "fp16", 12, 168.4),
                  kernel("sm80_xmma_gemm_f16f16_f16f16_f16_tn_n", KernelClass::kGemm, "fp16", 12, 126.0),
                  kernel("sm80_xmma_gemm_f16f16_f16f32_f32_nn_n", KernelClass::kGemm, "fp16", 12, 47.5),
                  kernel("_gemm_mha_v2", KernelClass::kAttention, "", 12, 44.5),
                  kernel("__myl_AddCastMeanSubMul", KernelClass::kNorm, "", 22, 16.8)},
                 7600);
}

inline Profile nvfp4() {
  return profile({kernel("sm80_xmma_gemm_f16f16_f16f16_f16_nn_n", KernelClass::kGemm, "fp16", 12, 120.8),
                  kernel("cutlass3x_sm120_bstensorop_ue4m3xe2m1", KernelClass::kGemm, "fp4", 36, 38.1),
                  kernel("__myl_DivCastErfCastAddMulMulResh", KernelClass::kElementwise, "", 12, 44.4),
                  kernel("_gemm_mha_v2", KernelClass::kAttention, "", 12, 44.0),
                  kernel("__myl_AddCastMeanSubMul", KernelClass::kNorm, "", 22, 17.2),
                  kernel("__myl_ReshReshCastMulReplCast", KernelClass::kConversion, "", 12, 13.4)},
                 5500);
}

inline const ClassTime& class_named(const Explanation& e, const std::string& name) {
  for (const ClassTime& t : e.classes) {
    if (t.name == name) return t;
  }
  static const ClassTime none;
  ADD_FAILURE() << "no class " << name;
  return none;
}

inline const Rung* rung_with(const Explanation& e, const std::string& words, char base) {
  for (const Rung& r : e.ladder) {
    if (r.base == base && r.name.find(words) != r.name.npos) return &r;
  }
  return nullptr;
}
inline double speedup_of(const Explanation& e, const std::string& words, char base = 'B') {
  const Rung* r = rung_with(e, words, base);
  EXPECT_NE(r, nullptr) << words;
  return r == nullptr ? 0 : r->speedup;
}

inline const Recommendation* recommended(const Explanation& e, const std::string& id) {
  for (const Recommendation& r : e.recommendations) {
    if (r.id == id) return &r;
  }
  return nullptr;
}

inline bool noted(const Explanation& e, const std::string& words) {
  for (const std::string& n : e.notes) {
    if (n.find(words) != n.npos) return true;
  }
  return false;
}

// Every number that an explanation holds is finite, and its JSON reads back.
inline void expect_sound(const Explanation& e) {
  const auto finite = [](double x, const char* what) { EXPECT_TRUE(std::isfinite(x)) << what; };
  for (const ClassTime& t : e.classes) finite(t.a_share, "share"), finite(t.b_share, "share");
  double before = 0;
  for (const Rung& r : e.ladder) {
    finite(r.speedup, r.name.c_str());
    EXPECT_GT(r.ms, 0) << r.name;
    if (r.base == e.ladder.back().base) {
      EXPECT_GE(r.speedup, before) << "a rung below the one before: " << r.name;
      before = r.speedup;
    }
  }
  for (const Recommendation& r : e.recommendations) {
    finite(r.predicted, r.id.c_str());
    EXPECT_GT(r.predicted, 0) << r.id;
    EXPECT_GT(r.gain_ms, 0) << r.id;
    EXPECT_FALSE(r.flag.empty()) << r.id;
    EXPECT_FALSE(r.because.empty()) << r.id;
    EXPECT_NE(r.arithmetic.find(" = " + times(r.predicted)), std::string::npos) << r.arithmetic;
  }
  for (const Combination& c : e.combinations) {
    finite(c.predicted, "together");
    EXPECT_GT(c.predicted, e.recommendations[c.of[0]].predicted) << c.arithmetic;
  }
  for (const Coverage* c : {&e.a_coverage, &e.b_coverage}) {
    for (const ShareTable* t : {&c->time, &c->flops, &c->bytes}) {
      double sum = 0;
      for (const PrecisionShare& s : t->shares) sum += s.share;
      EXPECT_EQ(t->shares.empty(), t->origin == Origin::kNotKnown);
      EXPECT_NEAR(sum, t->shares.empty() ? 0 : 1, 1e-9);
    }
  }
  for (const std::optional<double>& x : {e.speedup, e.latency_speedup}) finite(x.value_or(0), "speedup");
  EXPECT_FALSE(e.answer.empty());
  const std::string text = explanation_json(e);
  EXPECT_TRUE(parse_json(text).ok());
}

}  // namespace tessera
