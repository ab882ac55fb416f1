// SPDX-License-Identifier: Apache-2.0
// A progress bar on a terminal (stderr; not where TERM=dumb), nothing in a pipe or when quiet. Any thread may advance
// it.
//   calibrating [##########..............]  42 %  54 of 128, 3 s
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace tessera {

class Progress {
 public:
  Progress(std::string name, int64_t total);
  ~Progress() { done(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void advance(int64_t items = 1);
  void done();  // erases the bar; what was done is said by the results

 private:
  void draw();

  const std::string name_;
  const int64_t total_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const bool shown_;
  std::atomic<int64_t> count_{0}, next_draw_ms_{0};
  std::mutex mutex_;
  bool drawn_ = false, done_ = false;
};

// The bar's text for a state, without the terminal's control characters.
std::string progress_line(const std::string& name, int64_t count, int64_t total, double seconds);

}  // namespace tessera
