// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <string_view>

#include "base/log.h"
#include "base/parallel.h"
#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/output.h"

namespace tessera {
namespace {

constexpr const Command* kCommands[] = {
#define TS_COMMAND(name) &name##_command,
#include "cli/commands.inc"
#undef TS_COMMAND
};

constexpr const char* kFooter =
    "Exit codes:\n"
    "  0 fine   1 an engine's numbers are outside their bound   2 the command line is wrong\n"
    "  3 a file or array cannot be used   4 a layer cannot run in the precision asked for\n"
    "  5 the machine: no memory, no device, an I/O or CUDA failure\n\n"
    "`tessera COMMAND --help` has options and examples.";

int report(const Status& status, bool json) {
  if (status.ok()) return 0;
  const int code = static_cast<int>(status.code());
  if (status.message().empty()) return code;  // the command has said it
  if (json) {
    print_json({{"error", status.message()}, {"code", code}});
  } else {
    std::fflush(stdout);
    fmt::print(stderr, "tessera: {}\n", printable(status.message()));
  }
  return code;
}

// Words of a parser's error as one sentence.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

int run(int argc, char** argv) {
  CLI::App app("Tessera compiles transformers to low-precision engines and runs them.", "tessera");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", std::string("tessera ") + TS_VERSION);
  app.footer(kFooter);
  app.get_formatter()->column_width(30);
  Common common;
  std::vector<std::pair<CLI::App*, Runner>> commands;
  for (const Command* c : kCommands) {
    CLI::App* sub = app.add_subcommand(c->name, c->summary);
    sub->footer(std::string("Examples:\n") + c->examples);
    Runner runner = c->add(*sub, common);
    sub->add_flag("--json", common.json, "print one JSON object instead of text");
    if (c->computes) {
      sub->add_option("--threads", common.threads, "threads to use (default: every core)")
          ->check(within(0, 4096))
          ->type_name("N");
      sub->add_flag("--quiet", common.quiet, "no progress and no notes");
    }
    commands.emplace_back(sub, std::move(runner));
  }
  const bool wants_json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // help, version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    const CLI::App* named = nullptr;
    for (const auto& [sub, runner] : commands) {
      if (sub->parsed()) named = sub;
    }
    return report(
        usage_error(fmt::format("{} (see tessera {}--help)", one_line(e.what()), named ? named->get_name() + " " : "")),
        wants_json);
  }
  if (app.get_subcommands().empty()) {
    return report(usage_error("no command: tessera --help lists them"), wants_json);
  }
  set_quiet(common.quiet || common.json);
  if (common.threads > 0) set_threads(common.threads);
  try {
    for (const auto& [sub, runner] : commands) {
      if (sub->parsed()) return report(runner(), common.json);
    }
  } catch (const std::bad_alloc&) {
    return report(machine_error("no memory left"), common.json);
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::run(argc, argv); }
