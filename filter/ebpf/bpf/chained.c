// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// chained is the program of defence.c in front of another one, upon the same maps.

#define CHAINED
#include "defence.c"
