/* life.h - what the parts of the test's program share. Each part ends the process with an error where something is not as
 * it should be. */
#ifndef LIFE_H
#define LIFE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                                \
	do {                                                                                                            \
		if (!(condition)) {                                                                                     \
			fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #condition, errno, strerror(errno)); \
			_exit(1);                                                                                       \
		}                                                                                                       \
	} while (0)

/* FAILS checks that a call fails with an errno. */
#define FAILS(call, want)                        \
	do {                                     \
		errno = 0;                       \
		CHECK((call) == -1 && errno == (want)); \
	} while (0)

struct part {
	const char *name;
	void (*run)(char **args);
};

extern const struct part semantics[], lives[], closes[], boxes[], rebinds[];

/* The peer's address; the kernel's stack has its own. */
extern const char *peer;

struct sockaddr_in address(const char *ip, int port);
int tcp(void);
int udp(void);
int connected(int port); /* a new connection to the peer */
void echo(int fd, const char *text); /* sends text to a service that sends it back */
int so_error(int fd);
void await(int fd, short events);
void reap(pid_t child);

#endif
