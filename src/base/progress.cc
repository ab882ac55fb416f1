// SPDX-License-Identifier: Apache-2.0
#include "base/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "base/log.h"
#include "base/log_sink.h"
#include "base/progress_sink.h"

namespace tessera {
namespace {

constexpr int64_t kRedrawMs = 80;  // faster than the eye needs, slower than costs anything
constexpr int kBarWidth = 24;
constexpr const char* kErase = "\r\033[K";

std::atomic<bool> is_quiet{false};
thread_local std::string interrupted_at;
std::mutex sink_mutex;
LogSink log_sink;
ProgressSink progress_sink;
std::atomic<bool> is_watched{false}, shall_stop{false};

// False where there is none.
bool to_sink(LogLevel level, const std::string& line) {
  const std::lock_guard lock(sink_mutex);
  if (log_sink) log_sink(level, line);
  return log_sink != nullptr;
}

// A terminal that understands the control characters: TERM=dumb (an editor's shell) does not.
bool on_terminal() {
  static const bool terminal = [] {
    const char* term = std::getenv("TERM");
    return isatty(STDERR_FILENO) == 1 && (term == nullptr || std::string(term) != "dumb");
  }();
  return terminal;
}

// https://no-color.org: set and not empty means no colour.
bool in_colour() {
  static const bool colour = [] {
    const char* none = std::getenv("NO_COLOR");
    return on_terminal() && (none == nullptr || *none == '\0');
  }();
  return colour;
}

void print_line(const char* kind, const std::string& line) {
  // One call, so that lines of several threads do not mix; a bar on this line makes room and is drawn again by its next
  // advance.
  const bool yellow = in_colour() && *kind != '\0';
  std::fprintf(stderr, "%stessera: %s%s%s%s\n", on_terminal() ? kErase : "", yellow ? "\033[33m" : "", kind,
               yellow ? "\033[0m" : "", line.c_str());
}

void tell_progress(const std::string& what, int64_t done, int64_t total) {
  if (!is_watched) return;
  const std::lock_guard lock(sink_mutex);
  if (progress_sink && !progress_sink(what, done, total)) shall_stop = true;
}

}  // namespace

void set_quiet(bool quiet) { is_quiet = quiet; }
bool quiet() { return is_quiet; }

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

void set_progress_sink(ProgressSink sink) {
  const std::lock_guard lock(sink_mutex);
  progress_sink = std::move(sink);
  is_watched = progress_sink != nullptr;
  shall_stop = false;
}

Status check_cancelled() { return shall_stop ? Status(kCancelled, "the work was cancelled") : Status(); }

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(sink_mutex);
  log_sink = std::move(sink);
}

void note(const std::string& line) {
  if (!to_sink(LogLevel::kNote, line) && !quiet()) print_line("", line);
}
void warn(const std::string& line) {
  if (!to_sink(LogLevel::kWarning, line) && !quiet()) print_line("warning: ", line);
}

std::string progress_line(const std::string& name, int64_t count, int64_t total, double seconds) {
  const double share = total > 0 ? std::clamp(static_cast<double>(count) / static_cast<double>(total), 0.0, 1.0) : 1.0;
  const int filled = static_cast<int>(share * kBarWidth);
  char tail[96];
  std::snprintf(tail, sizeof(tail), "] %3d %%  %lld of %lld, %.0f s", static_cast<int>(share * 100),
                static_cast<long long>(count), static_cast<long long>(total), seconds);
  return name + " [" + std::string(static_cast<size_t>(filled), '#') +
         std::string(static_cast<size_t>(kBarWidth - filled), '.') + tail;
}

Progress::Progress(std::string name, int64_t total)
    : name_(std::move(name)), total_(total), shown_(!quiet() && on_terminal()) {
  if (shown_) draw();
  tell_progress(name_, 0, total_);
}

void Progress::advance(int64_t items) {
  count_ += items;
  tell_progress(name_, count_, total_);
  if (!shown_) return;
  const int64_t now =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start_).count();
  int64_t due = next_draw_ms_;
  if (now < due || !next_draw_ms_.compare_exchange_strong(due, now + kRedrawMs)) return;
  draw();
}

void Progress::draw() {
  std::lock_guard lock(mutex_);
  if (done_) return;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  std::fprintf(stderr, "%s%s", kErase, progress_line(name_, count_, total_, seconds).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::done() {
  std::lock_guard lock(mutex_);
  if (done_) return;
  done_ = true;
  if (drawn_) {
    std::fputs(kErase, stderr);
    std::fflush(stderr);
  }
}

}  // namespace tessera
