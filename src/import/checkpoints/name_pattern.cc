// SPDX-License-Identifier: Apache-2.0
#include "import/checkpoints/name_pattern.h"

#include <algorithm>

#include "import/checkpoints/checkpoint_tensors.h"

namespace tessera {
namespace {

constexpr size_t kMostCharacters = 1000, kMostChoices = 256;

bool matches_star(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, taken = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1, t = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// "a(b|c)d" -> "abd", "acd"; false where groups are nested, repeated or not closed.
bool spell_out(const std::string& text, std::vector<std::string>* out) {
  size_t open = std::string::npos, escapes = 0;
  while (escapes < text.size() && text[text.size() - 1 - escapes] == '\\') ++escapes;
  if (escapes % 2 != 0) return false;  // the last one escapes nothing
  for (size_t i = 0; i < text.size() && open == std::string::npos; ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '(')
      open = i;
  }
  if (open == std::string::npos) {
    for (size_t i = 0, begin = 0; i <= text.size(); ++i) {
      if (i < text.size() && text[i] == '\\') {
        if (++i == text.size()) return false;  // nothing follows it
      } else if (i == text.size() || text[i] == '|') {
        out->push_back(text.substr(begin, i - begin)), begin = i + 1;
      }
    }
    return out->size() <= kMostChoices;
  }
  size_t close = open + 1, begin = close;
  if (text.compare(begin, 2, "?:") == 0) begin += 2;
  std::vector<std::string> parts;
  for (close = begin;; ++close) {
    if (close >= text.size() || text[close] == '(') return false;
    if (text[close] == '\\') {
      ++close;
    } else if (text[close] == '|' || text[close] == ')') {
      parts.push_back(text.substr(begin, close - begin)), begin = close + 1;
      if (text[close] == ')') break;
    }
  }
  if (close + 1 < text.size() && std::string_view("*+?{").find(text[close + 1]) != std::string_view::npos) return false;
  for (const std::string& part : parts) {
    if (out->size() > kMostChoices || !spell_out(text.substr(0, open) + part + text.substr(close + 1), out))
      return false;
  }
  return true;
}

void add_range(std::string& set, char from, char to) {
  for (int c = from; c <= to; ++c) set += static_cast<char>(c);
}

}  // namespace

bool names_module(const std::string& pattern, const std::string& module) {
  for (size_t end = module.size(); end != std::string::npos && end > 0; end = module.rfind('.', end - 1)) {
    if (matches_star(pattern, std::string_view(module).substr(0, end))) return true;
  }
  return false;
}

Result<NameExpression> NameExpression::parse(const std::string& text) {
  const Status refused_text = bad_input(
      cat("the pattern 're:", shown_name(text), "' is not understood; letters, . [] \\d \\w * + ? ^ $ (a|b) are"));
  std::vector<std::string> spelt;
  if (text.size() > kMostCharacters || !spell_out(text, &spelt)) return refused_text;
  NameExpression out;
  for (const std::string& choice : spelt) {
    std::vector<Atom> atoms;
    for (size_t i = 0; i < choice.size(); ++i) {
      const char c = choice[i];
      Atom a;
      if (c == '^' && i == 0) continue;
      if (c == '$') {
        a.end = true;
      } else if (c == '.') {
        a.any = true;
      } else if (c == '\\') {
        if (++i == choice.size()) return refused_text;
        if (choice[i] == 'd' || choice[i] == 'w') add_range(a.set, '0', '9');
        if (choice[i] == 'w') add_range(a.set, 'a', 'z'), add_range(a.set, 'A', 'Z'), a.set += '_';
        if (a.set.empty() && std::isalnum(static_cast<unsigned char>(choice[i])) != 0) return refused_text;
        if (a.set.empty()) a.set = choice[i];
      } else if (c == '[') {
        const size_t close = choice.find(']', i + 1);
        if (close == std::string::npos || close == i + 1 || choice[i + 1] == '^') return refused_text;
        for (size_t k = i + 1; k < close; ++k) {
          if (choice[k] == '\\' || choice[k] == '[') return refused_text;
          if (k + 2 < close && choice[k + 1] == '-') {
            add_range(a.set, choice[k], choice[k + 2]), k += 2;
          } else {
            a.set += choice[k];
          }
        }
        i = close;
      } else if (std::string_view("*+?{}()]|^").find(c) != std::string_view::npos) {
        return refused_text;
      } else {
        a.set = c;
      }
      if (i + 1 < choice.size() && !a.end && std::string_view("*+?").find(choice[i + 1]) != std::string_view::npos) {
        const char times = choice[++i];
        a.repeats = times != '?', a.optional = times != '+';
      }
      atoms.push_back(std::move(a));
    }
    out.choices_.push_back(std::move(atoms));
  }
  return out;
}

bool NameExpression::matches(std::string_view name) const {
  for (const std::vector<Atom>& atoms : choices_) {
    // at[i]: the first i atoms can have matched what was read so far.
    std::vector<bool> at(atoms.size() + 1, false);
    at[0] = true;
    for (size_t t = 0;; ++t) {
      for (size_t i = 0; i < atoms.size(); ++i) {
        if (at[i] && (atoms[i].optional || (atoms[i].end && t == name.size()))) at[i + 1] = true;
      }
      if (at[atoms.size()]) return true;
      if (t == name.size()) break;
      std::vector<bool> next(atoms.size() + 1, false);
      for (size_t i = 0; i < atoms.size(); ++i) {
        const Atom& a = atoms[i];
        if (a.end || !(a.any || a.set.find(name[t]) != std::string::npos)) continue;
        if (at[i] || (a.repeats && at[i + 1])) next[i + 1] = true;
      }
      at = std::move(next);
    }
  }
  return false;
}

}  // namespace tessera
