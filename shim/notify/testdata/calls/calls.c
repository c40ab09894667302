/*
 * calls.c - a static program that makes system calls on sockets, well and badly, and prints what each returns. The
 * tests run it on the kernel's stack and under a supervisor, and compare.
 */
#include "calls.h"

#ifndef __GLIBC__
#define strerrorname_np strerror
#endif

long said(const char *what, long result)
{
	printf("%s: %s\n", what, result >= 0 ? "ok" : strerrorname_np(errno));
	fflush(stdout);
	return result;
}

struct sockaddr_in at(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

int port_of(int fd)
{
	struct sockaddr_in a = {0};
	socklen_t len = sizeof a;
	return getsockname(fd, (struct sockaddr *)&a, &len) == 0 ? ntohs(a.sin_port) : -1;
}

int listener(void)
{
	struct sockaddr_in a = at(0);
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 8) != 0) {
		perror("listener");
		exit(1);
	}
	return fd;
}

int client(int port)
{
	struct sockaddr_in a = at(port);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
		perror("client");
		exit(1);
	}
	return fd;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int n = argc > 2 ? atoi(argv[2]) : 1;
	alarm(60);
	if (strcmp(what, "forks") == 0) {
		fork_server(n);
	} else if (strcmp(what, "hostile") == 0) {
		hostile(n);
	} else if (strcmp(what, "network") == 0 && argc == 5) {
		network(argv[2], atoi(argv[3]), argv[4]);
	} else if (strcmp(what, "sockets") == 0) {
		sockets(n);
	} else if (strcmp(what, "cost") == 0) {
		cost(n);
	} else if (strcmp(what, "undirected") == 0) {
		undirected();
	} else {
		descriptors();
		wrong_memory();
		streams();
		families();
		datagrams();
		unconnected();
		plain();
		wakes();
		waiting();
		killed();
	}
	return 0;
}
