// SPDX-License-Identifier: Apache-2.0
// Ports as C sees them, and whether a caller's tensor is one.
#pragma once

#include <tessera/tessera.h>

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/engine.h"
#include "runtime/session.h"

namespace tessera {

struct CPort {
  const char* name;
  const Operand* desc;
  int64_t bytes;
  bool state;
  bool any_samples;  // shape[0] counts samples and may be any
};

std::vector<CPort> ports_of(const Plan& plan, bool outputs, bool any_samples);
std::vector<CPort> ports_of(const std::vector<Session::PortOf>& ports, bool outputs);
Status describe_port(std::span<const CPort> ports, bool outputs, size_t port, tess_port_info* out);

// Where tensors have to lie.
struct Place {
  bool device = false;
  int id = 0;
};

// The error of an output that shares memory with another tensor. `ins` and `outs` are what take_tensors gave.
Status check_apart(std::span<const CPort> inputs, std::span<void* const> ins, std::span<const CPort> outputs,
                   std::span<void* const> outs, int64_t samples);

// One side of a call: `data` gets the addresses. `samples`: 0, or what the tensors before had; of ports with any
// number of them. Allocates nothing where all is well.
Status take_tensors(std::span<const CPort> ports, bool outputs, const tess_tensor* const* tensors, size_t count,
                    const Place& place, std::span<void*> data, int64_t& samples);

}  // namespace tessera
