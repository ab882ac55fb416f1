// SPDX-License-Identifier: Apache-2.0
// The structs of all elements in types.inc, for element.cc and for the tests that run over that list. Other code
// includes the one it needs, or asks ElementInfo.
#pragma once

#include "types/bf16.h"
#include "types/e2m1.h"
#include "types/e4m3.h"
#include "types/e5m2.h"
#include "types/e8m0.h"
#include "types/f16.h"
#include "types/plain.h"
#include "types/small_int.h"
