// SPDX-License-Identifier: Apache-2.0
#include "base/progress.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>

#include "base/fork_locks.h"
#include "base/log.h"
#include "base/progress_sink.h"

namespace tessera {
namespace {

constexpr int64_t kRedrawMs = 80;  // faster than the eye needs, slower than costs anything
constexpr int kBarWidth = 24;

// Never destroyed: a thread may be at work while static objects go.
struct Watcher {
  ShortLock lock;
  std::shared_ptr<const ProgressSink> call;
  Turns turns;
};
Watcher& watcher() {
  static Watcher& one = *new Watcher;
  return one;
}
std::atomic<bool> is_watched{false}, shall_stop{false};

void tell_progress(const std::string& what, int64_t done, int64_t total) {
  if (!is_watched) return;
  const Turns::Turn turn = watcher().turns.take();
  std::shared_ptr<const ProgressSink> call;
  {
    const std::lock_guard lock(watcher().lock);
    call = watcher().call;
  }
  if (call != nullptr && !(*call)(what, done, total)) shall_stop = true;
}

}  // namespace

void set_progress_sink(ProgressSink sink) {
  auto made = sink ? std::make_shared<const ProgressSink>(std::move(sink)) : nullptr;
  const Turns::Turn turn = watcher().turns.take();  // who has set it may end what the old one calls
  const std::lock_guard lock(watcher().lock);
  is_watched = made != nullptr;
  watcher().call = std::move(made);
  shall_stop = false;
}

Status check_cancelled() { return shall_stop ? Status(kCancelled, "the work was cancelled") : Status(); }

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
  std::fprintf(stderr, "%s%s", kEraseLine, progress_line(name_, count_, total_, seconds).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::done() {
  std::lock_guard lock(mutex_);
  if (done_) return;
  done_ = true;
  if (drawn_) {
    std::fputs(kEraseLine, stderr);
    std::fflush(stderr);
  }
}

}  // namespace tessera
