// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <memory>
#include <optional>

#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/receipts.h"
#include "op/op.h"
#include "ops/ops.h"
#include "ops/receipts.h"

namespace tessera {
namespace {

// What tools/check_sass.py holds the compiled kernels against.
Json sass_json(const SassPromise& promise) {
  Json rules = Json::array();
  for (const SassRule& r : promise.rules)
    rules.push_back(
        {{"kernels", r.kernels}, {"must", r.must}, {"never", r.never}, {"exempt_because", r.exempt_because}});
  return {{"rules", rules}, {"local", promise.local}};
}

Runner add(OptionList& options, const Common& common) {
  auto arch = std::make_shared<std::string>();
  options.add("--arch", *arch, "ARCH", "only those that run on this arch: ref, cpu, or a GPU (default: all)");
  return [arch, &common]() -> Status {
    std::optional<Arch> only;
    if (!arch->empty()) {
      TS_ASSIGN(only, parse_arch(*arch));
    }
    const Receipts receipts = Receipts::load();
    Json all = Json::array();
    std::map<std::string, int64_t> reasons;  // one for many variants: said once, below the table
    Table table({"variant", "arch", "state"});
    const auto show = [&](const Variant& v) {
      if (only && !runs(*only, v.arch)) return;
      const Receipts::State state = receipts.state_of(v);
      all.push_back(
          {{"variant", v.name}, {"arch", info(v.arch).name}, {"state", state.words}, {"hash", source_hash(v.name)}});
      if (!state.because.empty()) all.back()["because"] = state.because, ++reasons[state.because];
      if (!v.sass.rules.empty()) all.back()["sass"] = sass_json(v.sass);
      table.add({v.name, info(v.arch).name, state.words});
    };
    for (const OpInfo* op : all_ops()) {
      for (const Variant* v : op->variants) show(*v);
      show(*reference_variant(*op));
    }
    if (common.json) {
      print_json({{"variants", all}, {"compiler", device_compiler()}, {"receipts", receipts.count()}});
    } else {
      fmt::print("{}", table.text());
      for (const auto& [reason, count] : reasons)
        fmt::print("{}\n", wrap(cat(plural(count, "variant"), " compiled, not run: ", reason), 0, 4));
    }
    return {};
  };
}

}  // namespace

const Command kernels_command{
    "kernels",
    "list every variant of every op, and which ran on a GPU",
    "A variant is one way to run one op on one arch; its name is the path of its source file and the same everywhere "
    "(inspect, bench, verify). State: 'host' runs on "
    "this processor; 'ran on h200, 42 tests' has a receipt for its present sources, tests and compiler; 'compiled, not "
    "run' has none.",
    "  tessera kernels\n"
    "  tessera kernels --arch sm90 --json\n",
    "Environment:\n"
    "  TESSERA_RECEIPTS_DIR  folder of receipts, JSON files by GPU (default: those built in)\n",
    false,
    add};

}  // namespace tessera
