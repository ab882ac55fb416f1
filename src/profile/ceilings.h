// SPDX-License-Identifier: Apache-2.0
// What this machine can do, measured: memory bandwidth over arrays larger than its caches, and products by precision
// with our own best kernels at a large shape. It takes seconds, so the result is kept in the user's cache folder
// ($XDG_CACHE_HOME/tessera, else ~/.cache/tessera), for one machine, number of threads and version of the program.
// Other programs make them too low: each is measured until two measurements agree, and Ceilings::doubt says where they
// do not, or where the cores were shared. Such ones are measured again when the cores are free.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "archs/arch.h"
#include "base/status.h"
#include "traces/profile.h"

namespace tessera {

// `machine` as Executor::machine() says it. On a GPU: the calling thread's. Host: threads() of the calling thread.
Result<Ceilings> measure_ceilings(Arch arch, const std::string& machine);

// The kept ones where they are readable and of this machine and program, unless `again`; else measured and kept. A file
// that is damaged or cannot be written is a sentence in `notes` and no error, and so is a doubt.
Result<Ceilings> machine_ceilings(Arch arch, const std::string& machine, bool again, std::vector<std::string>& notes);

// Where one of the kernels is faster than the ceiling of its precision: measured again if the cores are free, the
// higher of both; where that is not enough, what the kernel reached, since the machine has done it. Kept, with a
// sentence in `notes`.
Result<Ceilings> correct_ceilings(Arch arch, Ceilings known, const std::vector<KernelTime>& kernels,
                                  std::vector<std::string>& notes);

// The share of its cores that this process gets while every thread computes; less than 1 where others compute too.
double share_of_cores();

// Each rate of two measurements of one machine; the doubt of the first.
Ceilings higher_of(Ceilings a, const Ceilings& b);

inline constexpr double kAlone = 0.9;  // share of the cores from which on nobody else used them

// The highest of a few measurements, made until the two highest agree, `most` times at most.
struct Repeated {
  double best = 0, second = 0;
  bool agree() const;
};
Repeated repeat_until_agreed(const std::function<double()>& measure, int most = 4);

// The file that they are kept in; empty: there is no cache folder (neither XDG_CACHE_HOME nor HOME is set).
std::string ceilings_file(const std::string& machine);
std::string ceilings_text(const Ceilings& ceilings);
// Nothing: another program's, another machine's, or no such text. `damaged`: no program wrote this text.
std::optional<Ceilings> read_ceilings_text(std::string_view text, const std::string& machine, bool* damaged = nullptr);

}  // namespace tessera
