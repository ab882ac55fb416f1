// SPDX-License-Identifier: Apache-2.0
// Options of a command as plain data, and the line that is read into them. Only options.cc knows the parser: its header
// costs seconds in every file that includes it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera {

// Says what is wrong with a word; empty: nothing.
using WordCheck = std::function<std::string(const std::string& word)>;

WordCheck within(int64_t low, int64_t high);  // whole numbers
WordCheck not_negative();                     // for unsigned numbers: the parser would wrap "-1" around
WordCheck is_cosine();                        // -1 to 1; what is no number, "nan" among them, is none

inline constexpr const char* kPlainGroup = "Options";
// The group of options that every command has.
inline constexpr const char* kCommonGroup = "Common options";

struct Option {
  std::string names;  // "-o,--output"; without a dash: an argument, by its place
  // Where its words go. bool: a flag, which has none; a vector: may be given again, one word each time, or is an
  // argument of several words.
  using Variable = std::variant<std::monostate, bool*, int*, int64_t*, uint64_t*, std::optional<double>*, std::string*,
                                std::vector<std::string>*>;
  Variable into;
  std::string value;  // what the help calls its word: "FILE"
  std::string help;
  std::string group;
  bool required = false;
  WordCheck check = {};

  bool is_argument() const { return !names.starts_with('-'); }
  std::vector<std::string> spellings() const;  // "-o", "--output"
};

// Options of one command, in the order of its help; --help is the first. Contract: variables outlive the list.
class OptionList {
 public:
  OptionList();
  // What is added from here on stands there in the help.
  void group(std::string name) { group_ = std::move(name); }
  // More is said of an option in the same statement: add(...).required = true.
  template <class T>
  Option& add(std::string names, T& into, std::string value, std::string help) {
    return append(std::move(names), &into, std::move(value), std::move(help));
  }
  Option& add(std::string names, bool& flag, std::string help) {
    return append(std::move(names), &flag, "", std::move(help));
  }
  std::span<const Option> all() const { return all_; }
  // Whether it stood on the line. Contract: `spelling` is one of an option here.
  bool given(std::string_view spelling) const;

 private:
  friend class LineReader;
  Option& append(std::string names, Option::Variable into, std::string value, std::string help);
  std::string group_ = kCommonGroup;
  std::vector<Option> all_;
  std::vector<bool> given_;
};

struct NamedOptions {
  std::string name;  // of the command
  OptionList* options;
};

struct Line {
  enum class Asks { kNothing, kRun, kHelp, kVersion, kWrong } asks = Asks::kNothing;
  int command = -1;   // -1: none
  std::string wrong;  // a sentence
};
// Reads the line (without the program's name) into the variables of the command that it names.
Line read_line(std::vector<std::string> words, std::span<const NamedOptions> commands);

}  // namespace tessera
