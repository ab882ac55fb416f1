// SPDX-License-Identifier: Apache-2.0
// Tuning table: how long each variant and config took on one GPU, per distinct problem. Data with its own file; an
// engine keeps the choice and the table's hash, never a time.
//   {"tessera": "tuning 1", "gpu": "NVIDIA H200", "arch": "sm90",
//    "entries": {"sm90 matmul f16[197,768] ... -> f16[197,768]": [{"variant": "matmul/sm90_f16", "config": "128x192",
//    "us": 12.34, "in_plan_us": 11.9}, ...], ...}}
// Keys are sorted, times are rounded to 0.01 us: the same table is the same text. Each entry is fastest first: those
// that were also timed in a plan, between the kernels before and behind them (tune/tune_in_plan.h), by that time; then
// the others.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "archs/arch.h"
#include "base/status.h"
#include "op/problem.h"

namespace tessera {

struct TunedTime {
  std::string variant, config;  // config: empty where the variant has only one
  double us = 0;                // one call after the other, alone
  double in_plan_us = 0;  // of the one that is best in a plan: us; of the others: that, and a call's share of what the
                          // plan loses by them; 0: was not measured
};

struct TuningTable {
  std::string gpu;  // as the driver names it
  Arch arch = Arch::sm90;
  std::map<std::string, std::vector<TunedTime>> entries;

  const std::vector<TunedTime>* find(const std::string& key) const;
  // The time of one candidate; null where it was not measured.
  const TunedTime* find(const std::string& key, std::string_view variant, std::string_view config) const;
  // Adds a time or replaces it, keeping the order. Contract: us > 0 and finite.
  void record(const std::string& key, TunedTime time);
};

// Everything that decides how long a problem takes, as text: arch, op, each operand's type, shape, strides (where not
// dense) and whether it is constant, attributes, program. Storage orders are left out: they are the candidate's own
// choice, and the key is the same before and after it is made.
std::string problem_key(const Problem& problem, Arch target);

std::string print_tuning(const TuningTable& table);
// The error says what is wrong in the text; the caller says in which file.
Result<TuningTable> parse_tuning(std::string_view text);
Result<TuningTable> read_tuning(const std::string& path);
Status write_tuning(const TuningTable& table, const std::string& path);
// 16 hex digits over the table's text.
std::string tuning_hash(const TuningTable& table);

// The committed table of this arch (assets/tuning, compiled in); null where there is none.
const TuningTable* default_tuning(Arch target);

}  // namespace tessera
