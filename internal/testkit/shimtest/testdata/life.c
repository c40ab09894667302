/* life.c - a program with one part for each test: life PART [ARGUMENT]... */

#include "life.h"

const char *peer = "198.18.0.2";

struct sockaddr_in address(const char *ip, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	CHECK(inet_pton(AF_INET, ip, &a.sin_addr) == 1);
	return a;
}

int tcp(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	return fd;
}

int udp(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(fd >= 0);
	return fd;
}

int connected(int port)
{
	struct sockaddr_in to = address(peer, port);
	int fd = tcp();
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	return fd;
}

void echo(int fd, const char *text)
{
	char back[4096];
	size_t n = strlen(text), got = 0;
	CHECK(n <= sizeof back && write(fd, text, n) == (ssize_t)n);
	while (got < n) {
		ssize_t k = read(fd, back + got, n - got);
		if (k < 0 && errno == EINTR)
			continue;
		CHECK(k > 0);
		got += (size_t)k;
	}
	CHECK(memcmp(back, text, n) == 0);
}

int so_error(int fd)
{
	int value = -1;
	socklen_t len = sizeof value;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &len) == 0);
	return value;
}

void await(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};
	CHECK(poll(&p, 1, 20000) == 1);
}

void reap(pid_t child)
{
	int status = -1;
	CHECK(child > 0);
	while (waitpid(child, &status, 0) < 0)
		CHECK(errno == EINTR);
	CHECK(status == 0);
}

int main(int n, char **args)
{
	const struct part *all[] = {semantics, lives, closes, boxes, rebinds};
	signal(SIGPIPE, SIG_IGN);
	if (getenv("LIFE_PEER") != NULL)
		peer = getenv("LIFE_PEER");
	for (size_t i = 0; n > 1 && i < sizeof all / sizeof *all; i++)
		for (const struct part *p = all[i]; p->name != NULL; p++)
			if (strcmp(p->name, args[1]) == 0) {
				p->run(args + 2);
				puts("done");
				return 0;
			}
	fprintf(stderr, "no such part\n");
	return 2;
}
