// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "base/words/nearest_word.h"
#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/open_engine.h"
#include "cli/output.h"
#include "cli/plan_summary.h"
#include "cli/receipts.h"
#include "cli/tuning.h"
#include "ops/ops.h"
#include "plan/choose.h"
#include "plan/count_copies.h"
#include "plan/engine_file.h"
#include "plan/golden_plans.h"
#include "plan/promise.h"
#include "runtime/executor.h"

namespace tessera {
namespace {

struct Options {
  std::string engine, plan, table;
  bool verbose = false, tuning = false, scales = false;
};

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

void print_ports(const Plan& plan, bool input, const std::vector<Port>& ports) {
  const char* const what = input ? "input" : "output";
  for (const Port& port : ports) {
    const Operand& d = plan.tensors[static_cast<size_t>(port.tensor)].desc;
    std::string shape = "[batch";
    for (size_t i = 1; i < d.shape.size(); ++i) shape += "," + std::to_string(d.shape[i]);
    print_record(what, cat(port.name, " ", shape, "] ", to_string(d.type), is_state(plan, port) ? ", a state" : ""));
    const std::string pixels = input ? say_pixels(plan, port) : "";
    if (!pixels.empty()) print_record("", pixels);
  }
}

void print_joined(const Plan& p) {
  int64_t gated = 0, beside = 0, linear = 0;
  for (const PlanStep& s : p.steps) {
    if (s.op != "matmul" || s.asked.empty()) continue;
    const auto layers = static_cast<int64_t>(layers_of(s).size());
    (s.then.gated() ? gated : beside) += layers > 1;
    linear += layers;
  }
  std::vector<std::string> words;
  for (const auto& [count, what] :
       {std::pair{gated, "the two layers of a gated MLP"}, {beside, "layers of one input"}}) {
    if (count > 0) words.push_back(cat(plural(count, "matmul"), count == 1 ? " joins " : " join ", what));
  }
  if (words.empty()) return;
  print_record("",
               cat(words[0], words.size() > 1 ? cat(", ", words[1]) : "", ": ", linear, " linear layers of the model"));
}

void print_plan(const Plan& p) {
  const CopyCount left = count_copies(p);
  print_record("plan", cat(p.name, ": ", p.graph == Plan().graph ? "" : cat("graph ", p.graph, ", "), info(p.arch).name,
                           ", batch ", p.batch, ", ", plural(static_cast<int64_t>(p.steps.size()), "step"), ", ",
                           megabytes(p.arena_bytes), " of memory, ", plural(left.copies, "copy", "copies"), " and ",
                           plural(left.casts, "cast"), " left"));
  std::string counts;
  for (const OpCount& c : count_ops(p)) counts += cat(counts.empty() ? "" : ", ", c.op, " ", c.count);
  print_record("", counts);
  print_joined(p);
  if (const std::string folded = say_folded_norms(p); !folded.empty()) print_record("", folded);
  if (!p.tuning.empty()) print_record("", cat("tuned by table ", shorten(printable(p.tuning), 40)));
  if (p.arch == Arch::cpu) print_record("", cat("on this machine: ", cpu_instruction_sets(p)));
}

void print_golden(const Engine& e, const GoldenForm& form) {
  const std::string which = e.golden.forms.size() > 1 ? cat("plan ", shorten(printable(form.plan), 40), ", ") : "";
  if (!form.values.empty()) {
    double widest = 0;
    for (const GoldenValue& v : form.values) widest = std::max(widest, v.bound);
    print_record("golden", fmt::format("{}{} values inside the model: relative L2 error of at most {:.2e}, each in a "
                                       "run that starts from the value before it",
                                       which, form.values.size(), widest));
  }
  for (size_t i = 0; i < form.outputs.size(); ++i) {
    print_record("golden", fmt::format("{}{} {}: relative L2 error of at most {:.2e}", which, form.outputs[i].name,
                                       to_string(form.outputs[i].shape), form.bounds[i]));
  }
}

void print_summary(const Options& o, const Engine& e) {
  int64_t constants = 0;
  for (const EngineConstant& c : e.constants) constants += static_cast<int64_t>(c.data.size());
  std::error_code error;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(o.engine, error));
  fmt::print("{}\n", wrap(cat(o.engine, ": ", shorten(printable(or_dash(e.model)), 300), ", made by ",
                              shorten(printable(e.producer), 30)),
                          0, 2));
  print_record("precision", e.recipe.empty() ? cat(e.precision, " (asked)") : cat("by recipe ", e.recipe));
  print_record("target", cat(info(e.target).name, ": ", info(e.target).what));
  if (const std::string why = why_not_here(e.target); !why.empty())
    print_record("", "not run on its target here: " + why);
  print_record("size", cat(megabytes(bytes), ", of which ", megabytes(constants), " in ",
                           plural(static_cast<int64_t>(e.constants.size()), "constant")));
  for (const EngineState& s : e.states) print_record("state", cat(s.name, ": ", megabytes(s.bytes)));
  std::string schedule;
  for (const ScheduleItem& i : e.schedule)
    schedule += cat(schedule.empty() ? "" : ", then ", i.graph, i.times == 1 ? "" : cat(" ", i.times, " times"));
  if (!schedule.empty()) print_record("schedule", schedule);
  for (const std::string& l : say_lengths(e)) print_record("lengths", shorten(printable(l), 600));
  if (!e.calibration.empty()) print_record("scales", e.calibration);
  if (!e.preprocess.empty()) {
    std::string words = e.preprocess;  // records wrap at spaces
    for (size_t at = words.find(','); at != std::string::npos; at = words.find(',', at + 2)) words.insert(at + 1, " ");
    print_record("images", words);
  }
  for (const std::string& r : e.refinements) print_record("weights", r);
  for (const std::string& a : e.allowed) print_record("allowed", a);
  if (e.golden.forms.empty()) print_record("golden", "none (built with --no-verify)");
  for (const GoldenForm& form : e.golden.forms) print_golden(e, form);
  std::string without;
  for (const Plan& p : e.plans) {
    if (!e.golden.forms.empty() && !is_golden(p) && !has_golden_values(e, p))
      without += (without.empty() ? "" : ", ") + shorten(printable(p.name), 40);
  }
  if (!without.empty()) print_record("golden", cat("none of plan ", without, ": ", kGoldenOfSmallest));
  std::set<std::string> shown;  // plans of one graph have the same ports
  for (const Plan& p : e.plans) {
    if (!shown.insert(p.graph).second) continue;
    if (p.graph != Plan().graph) print_record("graph", p.graph);
    print_ports(p, true, p.inputs);
    print_ports(p, false, p.outputs);
  }
  for (const Plan& p : e.plans) print_plan(p);
}

void print_layers(const Engine& engine, const Plan& plan, const Receipts& receipts, bool verbose,
                  const TuningTable* times) {
  bool unproven = false, unknown = false;
  Table table({"layer", "op", "asked", "stored", "computed", "variant"});
  for (const PlanStep& s : plan.steps) {
    const bool proven = receipts.state_of(s.variant).proven;
    unproven = unproven || !proven;
    // What the file says of a variant that is not here is nobody's word.
    const bool known = find_variant(s.variant) != nullptr;
    unknown = unknown || !known;
    table.add({s.layer, s.op, known ? or_dash(s.asked) : "?", known ? or_dash(s.stored) : "?",
               known ? or_dash(s.computed) : "?", kernel_name(s.variant, s.config) + (proven ? "" : " !")});
  }
  fmt::print("\nplan {}, batch {}\n{}", shorten(printable(plan.name), 60), plan.batch, table.text());
  if (unproven) fmt::print("! compiled, not run: no receipt of a GPU for the variant as it is compiled here\n");
  if (unknown)
    fmt::print(
        "? this program has no such variant: it runs no such engine, and does not believe what the file says of it\n");
  if (!verbose) return;
  fmt::print("\narithmetic and refusals\n");
  for (const PlanStep& s : plan.steps) {
    const std::string arithmetic = find_variant(s.variant) != nullptr ? s.arithmetic : "?";
    fmt::print(
        "{}\n",
        wrap(printable(cat(shorten(s.layer, 60), ": ", kernel_name(s.variant, s.config), ": ", arithmetic)), 0, 4));
    if (!s.slow.empty())
      fmt::print("{}\n", wrap(printable(cat("chosen although ", s.slow, ": no other kernel takes it")), 2, 4));
    for (const Refusal& r : s.refusals) {
      const std::string slower = words_of_slower(plan, s, r, times);
      fmt::print("{}\n", wrap(printable(slower.empty() ? cat(r.variant, " refused: ", refusal_words(engine, plan, s, r))
                                                       : cat(r.variant, " ", slower)),
                              2, 4));
    }
  }
}

Status inspect(const Options& o, const Common& common) {
  if (o.scales && (!common.json || o.tuning)) return usage_error("--scales adds numbers to --json: give both");
  if (o.tuning && o.verbose) return usage_error("--tuning shows times and nothing else: leave --verbose out");
  if (common.json && !o.tuning && (!o.plan.empty() || o.verbose)) {
    return usage_error(cat("--json holds every plan with all that is known of it: leave ",
                           o.verbose ? "--verbose" : "--plan", " out"));
  }
  TS_ASSIGN(const Engine engine, open_engine(o.engine));
  const Plan* plan = nullptr;
  std::string names;
  std::vector<std::string> known;
  for (const Plan& p : engine.plans) {
    if (plan == nullptr && (o.plan.empty() || p.name == o.plan)) plan = &p;
    names += (names.empty() ? "" : ", ") + p.name;
    known.push_back(p.name);
  }
  if (plan == nullptr)
    return usage_error(
        cat(o.engine, ": no plan is called '", o.plan, "'; there are ", names, did_you_mean(o.plan, known)));
  if (!o.table.empty() && !o.tuning && !o.verbose)
    return usage_error("--table says where the times of --tuning are: give both");
  TuningTable read;
  const TuningTable* table = default_tuning(plan->arch);
  if (!o.table.empty()) {
    TS_ASSIGN(read, read_tuning(o.table));
    if (read.arch != engine.target)
      return bad_input(
          cat(o.table, ": holds times of ", info(read.arch).name, ", the engine is for ", info(engine.target).name));
    table = &read;
  }
  if (o.tuning) return show_tuning(*plan, table, common.json);
  if (common.json) {
    fmt::print("{}\n", manifest_json(engine, o.scales));
    return {};
  }
  print_summary(o, engine);
  print_layers(engine, *plan, Receipts::load(), o.verbose, table);
  if (!o.table.empty()) fmt::print("\n{}\n", wrap(table_sentence(*plan, table), 0, 2));
  return {};
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options.add("engine", o->engine, "FILE", "an engine file").required = true;
  options.add("--plan", o->plan, "NAME", "whose layers to list (default: the first plan's)");
  options.add("-v,--verbose", o->verbose, "also each layer's arithmetic and every refusal with its reason");
  options.add("--tuning", o->tuning,
              "instead: who may run each distinct problem of the plan, and the times of a tuning table");
  options.add("--scales", o->scales, "with --json: constants that are scales have their numbers");
  options.add("--table", o->table, "FILE",
              "the tuning table to take times from (default: the one that comes with the program)");
  return [o, &common] { return inspect(*o, common); };
}

}  // namespace

const Command inspect_command{
    "inspect",
    "show what an engine stores and computes, layer by layer",
    "The record of every choice. Asked: the precision that was asked for; -: none was, as for a norm, or an attention "
    "without --attention. "
    "Stored: the type of a linear layer's weight, of an attention's q, k and v, and of every other layer's result. "
    "Computed: the arithmetic. Variant: the kernel. Above it, per plan: its memory, how "
    "often each op occurs (attention and norm count what was "
    "recognised in the model, folded norms in a line of their own; softmax what "
    "was not), the copies and casts that are left, and the instruction set that "
    "this machine's CPU kernels would use. A kernel marked "
    "with ! was compiled but has no receipt of a GPU that ran it. Nothing is run.",
    "  tessera inspect vit.tess\n"
    "  tessera inspect vit.tess --verbose --plan golden\n"
    "  tessera inspect vit.tess --tuning --table tuning.json\n"
    "  tessera inspect vit.tess --json | jq '.plans[0].steps[].variant'\n"
    "  tessera inspect vit.tess --json --scales | jq '.constants[] | select(.numbers)'\n",
    "Environment:\n"
    "  TESSERA_RECEIPTS_DIR  folder of receipts, JSON files by GPU (default: those built in)\n",
    false,
    add};

}  // namespace tessera
