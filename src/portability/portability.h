// SPDX-License-Identifier: Apache-2.0
// Design rules that another tool lays on the models it is given, held against one model: which rules it breaks, at
// which layers, what that costs there, and what is done here instead. A rule is a line of portability.inc and a
// function of portability.cc. Costs are in the words of that tool's documentation and of its users' reports, which are
// named.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "portability/portability_written.h"

namespace tessera {

// Layers that break a rule in the same way.
struct Breach {
  std::string what;  // "197 tokens"
  std::vector<std::string> layers;
};
struct RuleFinding {
  int64_t places = 0;  // what the rule speaks of; 0: there is nothing of it in the model
  std::vector<Breach> breaches;
  std::string cost;  // of these very breaches; empty: the rule's
};

struct DesignRule {
  const char* name;
  const char* rule;     // what the model should be like
  const char* cost;     // where it is not
  const char* instead;  // what Tessera does
  RuleFinding (*find)(const WrittenModel&);
};

struct RuleReport {
  const DesignRule* rule = nullptr;
  RuleFinding finding;
  bool broken() const { return !finding.breaches.empty(); }
  bool applies() const { return finding.places > 0; }
  std::string cost() const { return finding.cost.empty() ? rule->cost : finding.cost; }
};

// Tools whose rules are known.
std::vector<std::string> portability_names();
// Every rule of the tool, in the order of its list. Contract: one of portability_names().
std::vector<RuleReport> check_portability(const Graph& written, const std::string& tool);

}  // namespace tessera
