// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <mutex>
#include <new>

#include "base/fork_locks.h"
#include "base/log_sink.h"

namespace tessera {
namespace {

constexpr const char* kLevels[] = {"error", "warning", "note"};

std::atomic<bool> is_quiet{false}, is_library{false};
thread_local std::string interrupted_at;
// Never destroyed: a thread may log while static objects go.
struct Sink {
  ShortLock lock;
  std::shared_ptr<const LogSink> call;
  Turns turns;  // of lines
};
Sink& sink() {
  static Sink& one = *new Sink;
  return one;
}

// https://no-color.org: set and not empty means no colour.
bool in_colour() {
  static const bool colour = [] {
    const char* none = std::getenv("NO_COLOR");
    return on_terminal() && (none == nullptr || *none == '\0');
  }();
  return colour;
}

std::string now() {
  const auto t = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(t);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(t.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40];
  const size_t n = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + n, sizeof(text) - n, ".%03dZ", static_cast<int>(ms));
  return text;
}

void print_line(const char* kind, const std::string& line) {
  // One call, so that lines of several threads do not mix; a bar on this line makes room and is drawn again by its next
  // advance.
  const bool yellow = in_colour() && *kind != '\0';
  std::fprintf(stderr, "%stessera: %s%s%s%s\n", on_terminal() ? kEraseLine : "", yellow ? "\033[33m" : "", kind,
               yellow ? "\033[0m" : "", line.c_str());
}

void print_json_line(LogLevel level, const std::string& text, int code = 0) {
  std::fprintf(stderr, "%s%s\n", on_terminal() ? kEraseLine : "", json_line(now(), level, text, code).c_str());
}

const LogChoice& choice() {
  static const LogChoice read = [] {
    const char* text = std::getenv("TESSERA_LOG");
    LogChoice c = read_log_choice(text == nullptr ? "" : text);
    const std::string wrong =
        cat("TESSERA_LOG: '", c.wrong, "' is none of none, error, warning, note and json (commas between words)");
    if (c.wrong.empty() || is_quiet) return c;
    c.json ? print_json_line(LogLevel::kWarning, wrong) : print_line("warning: ", wrong);
    return c;
  }();
  return read;
}

// The last level that goes to stderr.
int shown(bool has_sink) {
  if (is_quiet) return -1;
  if (choice().given) return choice().most;
  return is_library || has_sink ? -1 : static_cast<int>(LogLevel::kNote);
}

void put(LogLevel level, const char* kind, const std::string& line) {
  std::shared_ptr<const LogSink> call;
  {
    const std::lock_guard lock(sink().lock);
    call = sink().call;
  }
  if (call != nullptr) {
    const Turns::Turn turn = sink().turns.take();
    (*call)(level, line);
  }
  if (static_cast<int>(level) > shown(call != nullptr)) return;
  choice().json ? print_json_line(level, line) : print_line(kind, line);
}

// Bytes of the UTF-8 character that begins at `at`; 0: none does.
size_t character(const std::string& s, size_t at) {
  const auto byte = [&](size_t i) { return i < s.size() ? static_cast<uint8_t>(s[i]) : 0; };
  const int first = byte(at);
  if (first < 0x80) return 1;
  const size_t more = first >= 0xC2 && first < 0xE0   ? 1
                      : first >= 0xE0 && first < 0xF0 ? 2
                      : first >= 0xF0 && first < 0xF5 ? 3
                                                      : 0;
  for (size_t i = 1; i <= more; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  const int second = byte(at + 1);
  const bool wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                     (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return more == 0 || wrong ? 0 : more + 1;
}

}  // namespace

bool on_terminal() {
  static const bool terminal = [] {
    const char* term = std::getenv("TERM");
    return isatty(STDERR_FILENO) == 1 && (term == nullptr || std::string(term) != "dumb");
  }();
  return terminal;
}

void set_quiet(bool quiet) { is_quiet = quiet; }
bool quiet() { return is_quiet || is_library; }
void be_library() { is_library = true; }

Activity::Activity(const char* what, const std::string& name)
    : what_(what), name_(name), exceptions_(std::uncaught_exceptions()) {}
Activity::~Activity() {
  if (std::uncaught_exceptions() == exceptions_) return;
  try {
    interrupted_at += (interrupted_at.empty() ? "" : ", ") + (what_ + (" " + name_));
  } catch (const std::bad_alloc&) {  // there is no memory for a few words either: the message does without
  }
}
std::string interrupted() { return interrupted_at; }

void set_log_sink(LogSink call) {
  auto made = call ? std::make_shared<const LogSink>(std::move(call)) : nullptr;
  {
    const std::lock_guard lock(sink().lock);
    sink().call.swap(made);
  }
  const Turns::Turn turn = sink().turns.take();  // who has set it may end what the old one calls
}

void note(const std::string& line) { put(LogLevel::kNote, "", line); }
void warn(const std::string& line) { put(LogLevel::kWarning, "warning: ", line); }

bool log_error(const Status& status, bool only_json) {
  const int least = static_cast<int>(LogLevel::kError);
  if (!choice().given || choice().most < least || (only_json && !choice().json)) return false;
  const int code = static_cast<int>(status.code());
  choice().json ? print_json_line(LogLevel::kError, status.message(), code) : print_line("", status.message());
  return true;
}

LogChoice read_log_choice(const std::string& text) {
  LogChoice c{.most = static_cast<int>(LogLevel::kNote)};
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    bool known = word == "json" || word == "none";
    c.json = c.json || word == "json";
    if (word == "none") c.most = -1;
    for (int level = 0; level < 3; ++level) {
      if (word != kLevels[level]) continue;
      known = true;
      c.most = level;
    }
    c.given = c.given || known;
    if (!known) c.wrong = word;
  }
  return c;
}

std::string json_line(const std::string& time, LogLevel level, const std::string& text, int code) {
  std::string line = cat(R"({"time":")", time, R"(","level":")", kLevels[static_cast<int>(level)], R"(",)",
                         code != 0 ? cat("\"code\":", code, ",") : "", R"("text":")");
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const size_t bytes = character(text, at);
    if (bytes == 0) {
      line += "\xEF\xBF\xBD";
    } else if (c == '"' || c == '\\') {
      line += {'\\', c};
    } else if (c == '\n') {
      line += "\\n";
    } else if (bytes == 1 && (static_cast<uint8_t>(c) < 0x20 || c == 0x7F)) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned>(c));
      line += escaped;
    } else {
      line.append(text, at, bytes);
    }
    at += std::max<size_t>(bytes, 1);
  }
  return line + "\"}";
}

}  // namespace tessera
