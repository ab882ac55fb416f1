// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>
#include <string_view>

#include "base/log.h"
#include "base/parallel.h"
#include "cli/build_flags.h"
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

int report(const Status& status, bool json) {
  if (status.ok()) return 0;
  const int code = static_cast<int>(status.code());
  if (status.message().empty()) return code;  // the command has said it
  if (json) {
    print_json({{"error", status.message()}, {"code", code}});
  } else {
    std::fflush(stdout);
    fmt::print(stderr, "{}\n", wrap("tessera: " + printable(status.message()), 0, 2));
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

int run(int argc, char** argv) {
  CLI::App app("", "tessera");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", std::string("tessera ") + TS_VERSION);
  Common common;
  struct Entry {
    const Command* command;
    CLI::App* app;
    Runner run;
  };
  std::vector<Entry> entries;
  for (const Command* c : kCommands) {
    CLI::App* sub = app.add_subcommand(c->name, c->summary);
    sub->get_help_ptr()->group(kCommonGroup)->description("show this");
    Runner runner = c->add(*sub, common);
    if (c->computes) {
      sub->add_option("--threads", common.threads, "threads to use, up to 4096 (default: 0, every core)")
          ->check(within(0, 4096))
          ->type_name("N")
          ->group(kCommonGroup);
    }
    sub->add_flag("--json", common.json, "print one JSON object instead of text, errors included")->group(kCommonGroup);
    sub->add_flag("--quiet", common.quiet, "results and errors only: no progress, no notes, no warnings")
        ->group(kCommonGroup);
    for (CLI::Option* option : sub->get_options()) {
      if (option->get_expected_min() > 0) option->check(not_empty());
    }
    entries.push_back({c, sub, std::move(runner)});
  }
  std::vector<std::string> words = spell_out_help({argv + std::min(1, argc), argv + argc});
  const bool wants_json = std::find(words.begin(), words.end(), "--json") != words.end();
  if (const std::string unknown = unknown_word(words, kCommands, app); !unknown.empty())
    return report(usage_error(unknown), wants_json);
  const auto chosen = [&]() -> const Entry* {
    const auto it = std::find_if(entries.begin(), entries.end(), [](const Entry& e) { return e.app->parsed(); });
    return it == entries.end() ? nullptr : &*it;
  };
  try {
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    const Entry* e = chosen();
    fmt::print("{}", e == nullptr ? main_help(kCommands) : command_help(*e->command, *e->app));
    return 0;
  } catch (const CLI::Success& e) {  // version
    fmt::print("{}\n", e.what());
    return 0;
  } catch (const CLI::ParseError& e) {
    const Entry* c = chosen();
    return report(usage_error(fmt::format("{} (see tessera {}--help)", one_line(e.what()),
                                          c != nullptr ? c->app->get_name() + " " : "")),
                  wants_json);
  }
  const Entry* e = chosen();
  if (e == nullptr) return report(usage_error("no command: tessera --help lists them"), wants_json);
  set_quiet(common.quiet || common.json);
  if (common.threads > 0) set_threads(common.threads);
  try {
    return report(e->run(), common.json);
  } catch (const std::bad_alloc&) {
    return report(machine_error(no_memory()), common.json);
  }
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  // A file that grows beyond a limit is an error of that write, which cleans up behind it, and no reason to die there.
  std::signal(SIGXFSZ, SIG_IGN);
  int code = 0;
  try {
    code = tessera::run(argc, argv);
  } catch (const CLI::Error& e) {  // a parser that is asked for what it does not have
    code = tessera::report(tessera::usage_error(tessera::one_line(e.what())), false);
  } catch (const std::exception& e) {  // fmt throws where a write to stdout fails, which is said below
    if (std::ferror(stdout) == 0) code = tessera::report(tessera::machine_error(tessera::one_line(e.what())), false);
  }
  // Results that nobody can read are no success: a full disk shows here at the latest.
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const int lost = tessera::report(tessera::machine_error("the results could not be written to stdout"), false);
  return code != 0 ? code : lost;
}
