// SPDX-License-Identifier: Apache-2.0
#include "cli/report_file.h"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <set>
#include <type_traits>
#include <variant>

#include "io/atomic_file.h"

namespace tessera {

void name_entries(std::vector<ReportEntry>& entries) {
  const auto all_differ = [&] {
    std::set<std::string> names;
    for (const ReportEntry& e : entries) names.insert(e.name);
    return names.size() == entries.size() && !names.contains("");
  };
  for (ReportEntry& e : entries) {
    if (e.name.empty()) e.name = e.profile.precision;
  }
  if (all_differ()) return;
  for (ReportEntry& e : entries) {
    std::filesystem::path name = std::filesystem::path(e.profile.path).filename();
    while (name.has_extension()) name = name.stem();  // fp16.json.gz
    e.name = name.string();
  }
  if (all_differ()) return;
  for (ReportEntry& e : entries) e.name = e.profile.path;
  if (all_differ()) return;
  for (size_t i = 0; i < entries.size(); ++i) entries[i].name += cat(entries[i].name.empty() ? "" : " ", "#", i + 1);
}

std::vector<Explanation> explain_entries(const std::vector<ReportEntry>& entries, const ExplainOptions& options) {
  std::vector<Explanation> all;
  if (entries.size() == 1) all.push_back(explain(entries[0].profile, options));
  for (size_t i = 1; i < entries.size(); ++i) {
    all.push_back(explain(entries[0].profile, entries[i].profile, options));
    all.back().b.name = entries[i].name;
  }
  for (Explanation& e : all) e.a.name = entries[0].name;
  return all;
}

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[16];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d", &parts)};
}

std::string quoted(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:=+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string given_words(const OptionList& options) {
  std::string line;
  for (const Option& o : options.all()) {
    if (o.is_argument() || o.group == kCommonGroup || !options.given(o.spellings().front())) continue;
    const std::string flag = " " + o.spellings().front();
    const auto say = [&](const auto& value) {
      using T = std::decay_t<decltype(value)>;
      if constexpr (std::is_same_v<T, std::monostate> || std::is_same_v<T, bool*>) {
        line += flag;
      } else if constexpr (std::is_same_v<T, std::vector<std::string>*>) {
        for (const std::string& word : *value) line += flag + " " + tessera::quoted(word);
      } else if constexpr (std::is_same_v<T, std::string*>) {
        line += flag + " " + tessera::quoted(*value);
      } else if constexpr (std::is_same_v<T, std::optional<double>*>) {
        line += cat(flag, " ", value->value_or(0));
      } else {
        line += cat(flag, " ", *value);
      }
    };
    std::visit(say, o.into);
  }
  return line;
}

Status check_report_name(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending != ".html" && ending != ".md")
    return usage_error(cat("-o ", path, ": reports are .html or .md files; name it so"));
  std::error_code none;
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, none))
    return usage_error(cat("-o ", path, ": there is no folder ", folder.string(), "; make it first"));
  return {};
}

Result<int64_t> write_report(const std::string& path, const ReportInput& input) {
  const std::string text = path.ends_with(".md") ? report_markdown(input) : report_html(input);
  TS_TRY(write_file(path, text));
  return static_cast<int64_t>(text.size());
}

}  // namespace tessera
