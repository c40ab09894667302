/* calls.h - prints the results of calls, for the programs that run on the kernel's stack and by the library. */
#ifndef MILLRACE_TEST_CALLS_H
#define MILLRACE_TEST_CALLS_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* show prints a line: the result of a call, and errno where it failed. Other negative results are -1, as libc has them. */
static inline long show(const char *what, long result)
{
	printf("%s: %ld%s%s\n", what, result < 0 ? -1 : result, result < 0 ? " " : "", result < 0 ? strerrorname_np(errno) : "");
	return result;
}

/* error_of takes the pending error of a socket, or returns -1 where there is no such option. */
static inline int error_of(int fd)
{
	int e = -1;
	socklen_t len = sizeof e;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) == 0 ? e : -1;
}

#endif
