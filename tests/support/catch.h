// SPDX-License-Identifier: Apache-2.0
// Hides which Catch2 this is (Debian 12: v2).
#pragma once
#include <catch2/catch.hpp>
