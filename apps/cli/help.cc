// SPDX-License-Identifier: Apache-2.0
#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/words/nearest_word.h"
#include "cli/output.h"

namespace tessera {
namespace {

constexpr size_t kOptionColumn = 28;  // where descriptions begin

constexpr const char* kExitCodes =
    "Exit codes:\n"
    "  0  fine\n"
    "  1  an engine's numbers are outside their bound\n"
    "  2  the command line is wrong\n"
    "  3  a file or an array cannot be used\n"
    "  4  a layer cannot run in the precision asked for\n"
    "  5  the machine: no memory, no device, an I/O or CUDA failure\n";

constexpr const char* kEnvironment =
    "Environment:\n"
    "  NO_COLOR              set and not empty: no colours\n"
    "  TERM                  'dumb': no progress bars\n"
    "  TESSERA_LOG           lines on stderr: none, error, warning or note (default); ,json for JSON\n"
    "  TESSERA_RECEIPTS_DIR  folder of receipts, which say what ran on a GPU (default: built in)\n";

// "-o, --output FILE"; an argument's own name in capitals.
std::string spelling(const Option& option) {
  std::string text;
  if (option.is_argument()) {
    for (const char c : option.names) text += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return std::holds_alternative<std::vector<std::string>*>(option.into) ? text + " ..." : text;
  }
  for (const std::string& s : option.spellings()) text += (text.empty() ? "" : ", ") + s;
  return option.value.empty() ? text : text + " " + option.value;
}

std::string option_lines(const Option& option) {
  std::string head = "  " + spelling(option);
  if (head.size() + 2 > kOptionColumn) {
    head += "\n" + std::string(kOptionColumn, ' ');
  } else {
    head.resize(kOptionColumn, ' ');
  }
  return head + wrap(option.help, kOptionColumn, kOptionColumn).substr(kOptionColumn) + "\n";
}

std::vector<std::string> long_names(const OptionList& options) {
  std::vector<std::string> names;
  for (const Option& o : options.all()) {
    for (const std::string& s : o.spellings()) {
      if (s.starts_with("--")) names.push_back(s);
    }
  }
  return names;
}

}  // namespace

std::string main_help(std::span<const Command* const> commands) {
  std::string text =
      "tessera: compile transformers to low-precision engines, and run them\n\n"
      "Usage:\n  tessera COMMAND [options]\n  tessera help COMMAND\n\n" +
      wrap(
          "An ONNX model goes in; an engine file (.tess) with every choice made comes out: precisions, kernels, "
          "memory. Each layer runs in the precision that was "
          "asked for, or the build fails and names it. An engine carries golden values (f64 on the same codes) and is "
          "checked against them wherever it runs.",
          0, 0) +
      "\n\nCommands:\n";
  for (const Command* c : commands) text += fmt::format("  {:<10} {}\n", c->name, c->summary);
  text += fmt::format("  {:<10} {}\n", "help", "show the manual of a command");
  text +=
      "\nOptions:\n"
      "  -h, --help                show this\n"
      "  --version                 show the version\n"
      "Every command has --json (one JSON object on stdout), --quiet (results and errors only) and --help.\n"
      "Results go to stdout, everything else to stderr; progress bars show on a terminal only.\n"
      "\nExamples:\n"
      "  tessera demo\n"
      "  tessera zoo vit-b-16 -o vit.onnx\n"
      "  tessera build vit.onnx -o vit.tess --precision fp8 --calib images.npz\n"
      "  tessera run vit.tess --inputs images.npz --outputs logits.npz\n"
      "  tessera verify vit.tess\n\n";
  return text + kExitCodes + "\n" + kEnvironment + "\nRead on: README.md; docs/design (why it is as it is).\n";
}

std::string command_help(const Command& command, const OptionList& options) {
  std::string usage = std::string("  tessera ") + command.name, arguments;
  std::vector<std::string> groups;
  for (const Option& o : options.all()) {
    if (o.is_argument()) {
      usage += o.required ? " " + spelling(o) : " [" + spelling(o) + "]";
      arguments += option_lines(o);
    } else if (std::find(groups.begin(), groups.end(), o.group) == groups.end()) {
      groups.push_back(o.group);
    }
  }
  // Options of its own come first: those that every command has are added last, but --help is the first of all.
  std::stable_partition(groups.begin(), groups.end(), [](const std::string& g) { return g != kCommonGroup; });
  std::string text = fmt::format("tessera {}: {}\n\nUsage:\n{} [options]\n\n{}\n", command.name, command.summary, usage,
                                 wrap(command.about, 0, 0));
  if (!arguments.empty()) text += "\nArguments:\n" + arguments;
  for (const std::string& group : groups) {
    text += "\n" + group + ":\n";
    for (const Option& o : options.all()) {
      if (!o.is_argument() && o.group == group) text += option_lines(o);
    }
  }
  text += std::string("\nExamples:\n") + command.examples + "\n" + kExitCodes;
  if (*command.more != '\0') text += std::string("\n") + command.more;
  return text + "\nSee also: tessera --help; README.md.\n";
}

std::string unknown_word(std::span<const std::string> words, std::span<const NamedOptions> commands) {
  if (words.empty()) return "";
  std::vector<std::string> names = {"help"};
  for (const NamedOptions& c : commands) names.push_back(c.name);
  if (words[0].starts_with("-")) {
    for (const std::string& w : words) {
      if (std::find(names.begin(), names.end(), w) != names.end())
        return fmt::format("{} comes before the command; write tessera {} {}", words[0], w, words[0]);
    }
    return "";
  }
  const auto command =
      std::find_if(commands.begin(), commands.end(), [&](const NamedOptions& c) { return c.name == words[0]; });
  if (command == commands.end()) {
    const std::string hint = did_you_mean(words[0], names);
    return fmt::format("'{}' is no command{}", words[0], hint.empty() ? "; tessera --help lists them" : hint);
  }
  const std::vector<std::string> options = long_names(*command->options);
  for (const std::string& word : words.subspan(1)) {
    if (word == "--") break;
    const std::string name = word.substr(0, word.find('='));
    if (!word.starts_with("--") || std::find(options.begin(), options.end(), name) != options.end()) continue;
    const std::string hint = did_you_mean(name, options);
    return fmt::format("{} has no option {}{}", words[0], name,
                       hint.empty() ? fmt::format("; tessera {} --help lists them", words[0]) : hint);
  }
  return "";
}

}  // namespace tessera
