// SPDX-License-Identifier: Apache-2.0
// Precisions as arithmetic, and how fast a chip multiplies in one against another: from measured ceilings, else from
// the chip's data (archs/chip.h), else as data sheets have it: fp16, bf16 1, fp8, int8 2, fp4 4. The last is nominal
// and printed so; precisions that a GPU of its compute capability does not multiply (capabilities.inc) have none.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "traces/profile.h"

namespace tessera {

// What products of this precision multiply: "nvfp4" -> "fp4", "mxfp8" -> "fp8", "w4a16" -> "fp16"; empty: not known.
std::string multiplied_in(std::string_view precision);
// Of one number; 0: not known.
int bits_of(std::string_view precision);
// Whether the first is a lower precision; false where one is not known.
bool is_lower(std::string_view precision, std::string_view than);
// As `tessera build --precision` calls it: "fp4" -> "nvfp4".
std::string precision_flag(std::string_view precision);

struct Ratio {
  double value = 1;
  bool nominal = true;
};

class Rates {
 public:
  // Of the machine of `b`; what `b` does not tell, of `a`, where that is no other machine.
  Rates(const Profile& a, const Profile& b);
  // How many times faster `to` is multiplied than `from`; none: not known, or no such arithmetic on this chip.
  std::optional<Ratio> ratio(std::string_view from, std::string_view to) const;
  // Precisions that this chip is known to multiply; empty where no chip is known.
  std::vector<std::string> known() const;
  std::optional<double> flops_per_s(std::string_view precision) const;
  std::optional<double> bytes_per_s() const { return bytes_per_s_; }
  // Of 2:4 sparse products against dense ones: where the ceilings have both ("fp8 2:4"), else by the data of a known
  // chip.
  std::optional<Ratio> sparse_ratio(std::string_view precision) const;
  // "measured on NVIDIA H200", "data of NVIDIA H200", "nominal"
  const std::string& source() const { return source_; }

 private:
  void take(const Ceilings& ceilings);
  void take_chip(const std::string& machine);
  std::vector<std::pair<std::string, double>> rates_;
  std::optional<double> bytes_per_s_;
  std::set<std::string> seen_;  // that products of the profiles run in
  int64_t capability_ = 0;      // of the GPU, for CUDA; 0: not told
  bool on_cpu_ = false;
  bool chip_ = false;  // there is data of it
  std::string source_ = "nominal";
};

// An engine of Tessera for a CPU: it decodes codes and multiplies in another type, by design.
bool runs_on_cpu(const Profile& profile);

}  // namespace tessera
