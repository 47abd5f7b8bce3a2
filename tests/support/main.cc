// SPDX-License-Identifier: Apache-2.0
// The one main of all Catch2 tests: compiling it is dear, so it happens once.
#define CATCH_CONFIG_MAIN
#include "support/catch.h"
