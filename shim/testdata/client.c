/*
 * client.c - programs of TestPrograms: each is what its first argument names, and connects to the address and port behind.
 * Exit code 0 is that all was as over the kernel's TCP.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void check(int ok, const char *what, int line)
{
	if (ok)
		return;
	fprintf(stderr, "line %d: %s: %s\n", line, what, strerror(errno));
	exit(1);
}
#define CHECK(x) check((x) != 0, #x, __LINE__)

static int dial(char **arg)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arg[1]))};
	CHECK(inet_pton(AF_INET, arg[0], &to.sin_addr) == 1);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	return fd;
}

/* echo sends messages and reads them again. */
static void echo(char **arg)
{
	char out[64], in[64];
	int fd = dial(arg);
	for (int i = 0; i < 2000; i++) {
		memset(out, i, sizeof out);
		CHECK(write(fd, out, sizeof out) == sizeof out);
		for (size_t n = 0; n < sizeof in;) {
			ssize_t got = read(fd, in + n, sizeof in - n);
			CHECK(got > 0);
			n += (size_t)got;
		}
		CHECK(memcmp(in, out, sizeof in) == 0);
	}
	CHECK(shutdown(fd, SHUT_WR) == 0);
	CHECK(read(fd, in, 1) == 0);
	CHECK(close(fd) == 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(char **);
	} all[] = {{"echo", echo}};
	for (size_t i = 0; i < sizeof all / sizeof *all && argc > 2; i++)
		if (strcmp(argv[1], all[i].name) == 0) {
			all[i].run(argv + 2);
			return 0;
		}
	return 2;
}
