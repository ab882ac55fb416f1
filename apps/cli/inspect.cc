// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/command.h"
#include "cli/layers.h"
#include "cli/output.h"
#include "cli/places.h"
#include "plan/engine_file.h"
#include "plan/moves.h"
#include "runtime/executor.h"

namespace tessera {
namespace {

struct Options {
  std::string engine, plan;
  bool verbose = false;
};

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

void print_summary(const Options& o, const Engine& e) {
  int64_t constants = 0;
  for (const EngineConstant& c : e.constants) constants += static_cast<int64_t>(c.data.size());
  std::error_code error;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(o.engine, error));
  fmt::print("{}: {}, made by {}\n", o.engine, printable(or_dash(e.model)), printable(e.producer));
  fmt::print("  precision    {} (asked)\n", printable(e.precision));
  const std::string why_not = why_not_here(e.target);
  fmt::print("  target       {}: {}{}\n", info(e.target).name, info(e.target).what,
             why_not.empty() ? "" : "\n               not run on its target here: " + why_not);
  fmt::print("  size         {}, of which {} in {}\n", megabytes(bytes), megabytes(constants),
             plural(static_cast<int64_t>(e.constants.size()), "constant"));
  for (const EngineState& s : e.states) fmt::print("  state        {}: {}\n", printable(s.name), megabytes(s.bytes));
  if (!e.calibration.empty()) fmt::print("  scales       {}\n", printable(e.calibration));
  for (const std::string& a : e.allowed) fmt::print("  allowed      {}\n", printable(a));
  if (e.golden.outputs.empty()) fmt::print("  golden       none (built with --no-verify)\n");
  for (size_t i = 0; i < e.golden.outputs.size(); ++i) {
    fmt::print("  golden       {} {}: relative L2 error of at most {:.2e}\n", printable(e.golden.outputs[i].name),
               to_string(e.golden.outputs[i].shape), e.golden.bounds[i]);
  }
  if (!e.plans.empty()) {
    const auto print_ports = [&](const char* what, const std::vector<Port>& ports) {
      for (const Port& port : ports) {
        const Operand& d = e.plans[0].tensors[static_cast<size_t>(port.tensor)].desc;
        std::string shape = "[batch";
        for (size_t i = 1; i < d.shape.size(); ++i) shape += "," + std::to_string(d.shape[i]);
        fmt::print("  {:<12} {} {}] {}\n", what, printable(port.name), shape, to_string(d.type));
      }
    };
    print_ports("input", e.plans[0].inputs);
    print_ports("output", e.plans[0].outputs);
  }
  for (const Plan& p : e.plans) {
    const Moves moves = count_moves(p);
    fmt::print("  plan         {}: {}, batch {}, {}, {} of memory, {} and {} left\n", printable(p.name),
               info(p.arch).name, p.batch, plural(static_cast<int64_t>(p.steps.size()), "step"),
               megabytes(p.arena_bytes), plural(moves.copies, "copy", "copies"), plural(moves.casts, "cast"));
  }
}

void print_layers(const Plan& plan, const Receipts& receipts, bool verbose) {
  bool unproven = false;
  Table table({"layer", "op", "asked", "stored", "computed", "variant"});
  for (const PlanStep& s : plan.steps) {
    const bool proven = receipts.state_of(s.variant).proven;
    unproven = unproven || !proven;
    table.add(
        {s.layer, s.op, or_dash(s.asked), or_dash(s.stored), or_dash(s.computed), s.variant + (proven ? "" : " !")});
  }
  fmt::print("\nplan {}, batch {}\n{}", printable(plan.name), plan.batch, table.text());
  if (unproven) fmt::print("! compiled, not run: no receipt of a GPU for the variant's present sources\n");
  if (!verbose) return;
  fmt::print("\narithmetic and refusals\n");
  for (const PlanStep& s : plan.steps) {
    fmt::print("{}: {}: {}\n", printable(s.layer), s.variant, printable(s.arithmetic));
    for (const Refusal& r : s.refusals) fmt::print("  {} refused: {}\n", printable(r.variant), printable(r.reason));
  }
}

Status inspect(const Options& o, const Common& common) {
  TS_ASSIGN(const Engine engine, read_engine(o.engine));
  const Plan* plan = nullptr;
  std::string names;
  for (const Plan& p : engine.plans) {
    if (plan == nullptr && (o.plan.empty() || p.name == o.plan)) plan = &p;
    names += (names.empty() ? "" : ", ") + p.name;
  }
  if (plan == nullptr) return usage_error(cat(o.engine, ": no plan is called '", o.plan, "'; there are ", names));
  if (common.json) {
    fmt::print("{}\n", manifest_json(engine));
    return {};
  }
  print_summary(o, engine);
  print_layers(*plan, Receipts::load(), o.verbose);
  return {};
}

Runner add(CLI::App& app, const Common& common) {
  auto o = std::make_shared<Options>();
  app.add_option("engine", o->engine, "an engine file")->type_name("FILE")->required();
  app.add_option("--plan", o->plan, "which plan to list (default: the first)")->type_name("NAME");
  app.add_flag("-v,--verbose", o->verbose, "also each layer's arithmetic and every refusal with its reason");
  return [o, &common] { return inspect(*o, common); };
}

}  // namespace

const Command inspect_command{"inspect", "show what an engine stores and computes, layer by layer",
                              "  tessera inspect vit.tess\n"
                              "  tessera inspect vit.tess --verbose --plan golden\n"
                              "  tessera inspect vit.tess --json | jq '.plans[0].steps[].variant'\n",
                              false, add};

}  // namespace tessera
