// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "base/status.h"

namespace tessera {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

// An empty word is a variable that a script forgot to set, and no way to leave an option out.
std::string not_empty(const std::string& word) { return word.empty() ? "Value is empty" : ""; }

// Words of the parser's error as one sentence.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

WordCheck within(int64_t low, int64_t high) {
  return [range = CLI::Range(low, high)](std::string word) { return range(word); };
}

WordCheck not_negative() {
  return
      [](const std::string& word) { return word.starts_with('-') ? "Value " + word + " is negative" : std::string(); };
}

WordCheck is_cosine() {
  return [](const std::string& word) {
    double x = 0;
    const char* end = word.data() + word.size();
    const auto [rest, error] = std::from_chars(word.data(), end, x);
    const bool fits = error == std::errc() && rest == end && x >= -1 && x <= 1;
    return fits ? std::string() : "Value " + word + " is no number from -1 to 1";
  };
}

std::vector<std::string> Option::spellings() const {
  std::vector<std::string> all;
  for (size_t at = 0; at <= names.size();) {
    const size_t end = std::min(names.find(',', at), names.size());
    all.push_back(names.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

OptionList::OptionList() {
  append("-h,--help", {}, "", "show this");
  group(kPlainGroup);
}

Option& OptionList::append(std::string names, Option::Variable into, std::string value, std::string help) {
  given_.push_back(false);
  return all_.emplace_back(Option{std::move(names), into, std::move(value), std::move(help), group_});
}

bool OptionList::given(std::string_view spelling) const {
  for (size_t i = 0; i < all_.size(); ++i) {
    const std::vector<std::string> names = all_[i].spellings();
    if (std::find(names.begin(), names.end(), spelling) != names.end()) return given_[i];
  }
  TS_CHECK(false, "no option is called ", spelling);
  return false;
}

// The parser's form of each command, for one line.
class LineReader {
 public:
  explicit LineReader(std::span<const NamedOptions> commands) : commands_(commands) {
    app_.require_subcommand(0, 1);
    app_.set_version_flag("--version", "");
    for (const NamedOptions& c : commands_) add(c);
  }

  Line read(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    try {
      app_.parse(words);
    } catch (const CLI::CallForHelp&) {
      return {Line::Asks::kHelp, chosen(), ""};
    } catch (const CLI::CallForVersion&) {
      return {Line::Asks::kVersion, chosen(), ""};
    } catch (const CLI::ParseError& e) {
      return {Line::Asks::kWrong, chosen(), one_line(e.what())};
    }
    const int command = chosen();
    if (command < 0) return {};
    OptionList& list = *commands_[static_cast<size_t>(command)].options;
    for (size_t i = 0; i < list.all_.size(); ++i)
      list.given_[i] = apps_[static_cast<size_t>(command)]->count(list.all_[i].spellings().back()) > 0;
    return {Line::Asks::kRun, command, ""};
  }

 private:
  void add(const NamedOptions& command) {
    CLI::App* sub = apps_.emplace_back(app_.add_subcommand(command.name));
    for (const Option& o : command.options->all()) {
      CLI::Option* made = std::visit(
          Overloaded{[](std::monostate) -> CLI::Option* { return nullptr; },  // --help, which the parser has by itself
                     [&](bool* flag) { return sub->add_flag(o.names, *flag); },
                     [&](std::vector<std::string>* words) {
                       return sub->add_option(o.names, *words)->allow_extra_args(o.is_argument());
                     },
                     [&](auto* variable) { return sub->add_option(o.names, *variable); }},
          o.into);
      if (made == nullptr || std::holds_alternative<bool*>(o.into)) continue;
      made->type_name(o.value)->required(o.required);  // errors name the word that is missing
      if (o.check) made->check(CLI::Validator(o.check, ""));
      made->check(CLI::Validator(not_empty, ""));
    }
  }

  int chosen() const {
    const auto it = std::find_if(apps_.begin(), apps_.end(), [](const CLI::App* a) { return a->parsed(); });
    return it == apps_.end() ? -1 : static_cast<int>(it - apps_.begin());
  }

  CLI::App app_{"", "tessera"};
  std::span<const NamedOptions> commands_;
  std::vector<CLI::App*> apps_;
};

Line read_line(std::vector<std::string> words, std::span<const NamedOptions> commands) {
  return LineReader(commands).read(std::move(words));
}

}  // namespace tessera
