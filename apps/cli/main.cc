// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <new>
#include <string_view>

#include "base/log.h"
#include "base/parallel.h"
#include "base/refused_layers.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/output.h"

namespace tessera {
namespace {

constexpr const Command* kCommands[] = {
#define TS_COMMAND(name) &name##_command,
#include "cli/commands.inc"
#undef TS_COMMAND
};

// Layers of a refusal are data here, too.
Json error_json(const Status& status) {
  Json error = {{"error", status.message()}, {"code", static_cast<int>(status.code())}};
  if (status.layers() == nullptr) return error;
  Json& layers = error["layers"] = Json::array();
  for (const RefusedLayer& l : *status.layers()) {
    Json refusals = Json::array();
    for (const Refusal& r : l.refusals) refusals.push_back({{"kernel", r.variant}, {"reason", r.reason}});
    layers.push_back({{"layer", l.layer}, {"op", l.op}, {"asked", l.asked}, {"refusals", std::move(refusals)}});
  }
  return error;
}

int report(const Status& status, bool json) {
  if (status.ok()) return 0;
  const int code = static_cast<int>(status.code());
  if (status.message().empty()) return code;  // the command has said it
  if (json) {
    print_json(error_json(status));
  } else if (!log_error(status, true)) {
    std::fflush(stdout);
    fmt::print(stderr, "{}\n", wrap("tessera: " + printable(status.message()), 0, 2));
  }
  return code;
}

std::string no_memory() {
  const std::string where = interrupted();
  return cat("no memory left", where.empty() ? "" : " at " + where,
             "; a smaller --batch, or fewer samples at once, need less");
}

// `tessera help COMMAND` is `tessera COMMAND --help`; `tessera help` and `tessera help help` are `tessera --help`.
std::vector<std::string> spell_out_help(std::vector<std::string> words) {
  if (words.empty() || words[0] != "help") return words;
  if (words.size() > 1 && !words[1].starts_with("-") && words[1] != "help") return {words[1], "--help"};
  return {"--help"};
}

// A command, its options and what it runs.
struct Entry {
  const Command* command;
  std::unique_ptr<OptionList> options = std::make_unique<OptionList>();
  Runner run;
};

std::vector<Entry> add_commands(Common& common) {
  std::vector<Entry> entries;
  for (const Command* c : kCommands) {
    Entry& e = entries.emplace_back(Entry{.command = c});
    e.run = c->add(*e.options, common);
    e.options->group(kCommonGroup);
    if (c->computes) {
      e.options->add("--threads", common.threads, "N", "threads to use, up to 4096 (default: 0, every core)").check =
          within(0, 4096);
    }
    e.options->add("--json", common.json, "print one JSON object instead of text, errors included");
    e.options->add("--quiet", common.quiet, "results and errors only: no progress, no notes, no warnings");
  }
  return entries;
}

int run_command(const Entry& entry, const Common& common) {
  set_quiet(common.quiet || common.json);
  if (common.threads > 0) set_threads(common.threads);
  try {
    return report(entry.run(), common.json);
  } catch (const std::bad_alloc&) {
    return report(machine_error(no_memory()), common.json);
  }
}

int run(int argc, char** argv) {
  Common common;
  const std::vector<Entry> entries = add_commands(common);
  std::vector<NamedOptions> commands;
  for (const Entry& e : entries) commands.push_back({e.command->name, e.options.get()});
  const std::vector<std::string> words = spell_out_help({argv + std::min(1, argc), argv + argc});
  const bool wants_json = std::find(words.begin(), words.end(), "--json") != words.end();
  if (const std::string unknown = unknown_word(words, commands); !unknown.empty())
    return report(usage_error(unknown), wants_json);
  const Line line = read_line(words, commands);
  const Entry* e = line.command < 0 ? nullptr : &entries[static_cast<size_t>(line.command)];
  switch (line.asks) {
    case Line::Asks::kHelp:
      fmt::print("{}", e == nullptr ? main_help(kCommands) : command_help(*e->command, *e->options));
      return 0;
    case Line::Asks::kVersion:
      fmt::print("tessera {}\n", TS_VERSION);
      return 0;
    case Line::Asks::kNothing:
      return report(usage_error("no command: tessera --help lists them"), wants_json);
    case Line::Asks::kWrong:
      return report(usage_error(fmt::format("{} (see tessera {}--help)", line.wrong,
                                            e != nullptr ? std::string(e->command->name) + " " : "")),
                    wants_json);
    case Line::Asks::kRun:
      break;
  }
  return run_command(*e, common);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  // A file that grows beyond a limit is an error of that write, which cleans up behind it, and no reason to die there.
  std::signal(SIGXFSZ, SIG_IGN);
  int code = 0;
  try {
    code = tessera::run(argc, argv);
  } catch (const std::exception& e) {  // fmt throws where a write to stdout fails, which is said below
    if (std::ferror(stdout) == 0) code = tessera::report(tessera::machine_error(e.what()), false);
  }
  // Results that nobody can read are no success: a full disk shows here at the latest.
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const int lost = tessera::report(tessera::machine_error("the results could not be written to stdout"), false);
  return code != 0 ? code : lost;
}
