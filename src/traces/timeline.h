// SPDX-License-Identifier: Apache-2.0
// Timeline: what ran on a GPU, launch by launch, as tracers record it, made into the kernels of a Profile: launches of
// one name and layer become one entry, their times and calls those of one run. Launches may be added in any order.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "traces/classify.h"
#include "traces/profile.h"

namespace tessera {

class Timeline {
 public:
  using Text = uint32_t;  // of a name that was kept once

  // Kept once; very long ones are cut. Fails where a file holds more different names than any program has kernels.
  Result<Text> keep(std::string_view name);

  struct Launch {
    double begin_us = 0, us = 0;
    Text name = 0, layer = 0;
    Text op = 0;  // of the framework, that launched it: asked where no rule knows the name
    int64_t device = 0;
  };
  // `what` names the launch in an error: its times are no numbers that a GPU could have measured, or there are too
  // many.
  Status add(const Launch& launch, std::string_view what);

  enum class Direction : uint8_t { kHostToDevice, kDeviceToHost };
  Status add_copy(Direction direction, double us, std::string_view what);

  size_t size() const { return launches_.size(); }
  std::vector<Launch>& launches() { return launches_; }  // to give them layers
  int64_t first_device() const { return launches_.empty() ? 0 : launches_.front().device; }

  // Fills kernels, runs, gaps, overlap and copies, with notes. runs > 0.
  void put_into(Profile& profile, int64_t runs, const Rules& rules);

 private:
  bool layers_repeat(int64_t runs) const;
  void put_kernels(Profile& profile, bool placed, const Rules& rules) const;
  void put_gaps(Profile& profile) const;
  bool runs_alike(int64_t runs) const;

  std::deque<std::string> texts_ = {""};  // 0 is the empty text; a deque leaves its strings where they are
  std::unordered_map<std::string_view, Text> ids_ = {};
  std::vector<Launch> launches_ = {};
  double host_to_device_us_ = 0, device_to_host_us_ = 0;
  bool copied_in_ = false, copied_out_ = false;
};

// Runs in the file: as the user says, else as the file says, else 1 with a note.
int64_t settle_runs(int64_t asked, int64_t told, Profile& profile);

}  // namespace tessera
