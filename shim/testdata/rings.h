/* rings.h - the memory of this process's sockets with rings, for tests that bring it into states that seldom come by themselves. */
#ifndef MILLRACE_TEST_RINGS_H
#define MILLRACE_TEST_RINGS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../preload/ring.h"

/* each_ring calls f with the page of each socket, and returns how many there are. */
static inline int each_ring(void f(struct ring_page *))
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[500];
	int n = 0;
	while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
		if (strstr(line, "memfd:millrace-ring") != NULL) {
			f((struct ring_page *)strtoul(line, NULL, 16));
			n++;
		}
	if (maps != NULL)
		fclose(maps);
	return n;
}

#endif
