// SPDX-License-Identifier: Apache-2.0
// Every step that works on numbers one by one: an include for each.
#pragma once

#include "steps/act.h"
#include "steps/bias.h"
#include "steps/residual.h"
#include "steps/scale.h"
