/*
 * closes.c - what close(2) frees: on Linux the port of a socket is free when the last close of it returns. A line for each call, with its
 * result and errno. TestCloseFreesPorts runs it on the kernel's stack and by the library, and compares.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>

#include "loopback.h"

#define ROUNDS 40 /* below the burst of ICMP errors that a host may send */

/* again binds a new socket to a port, and returns 0 or the errno. */
static int again(int type, int port)
{
	struct sockaddr_in a = at("127.0.0.1", port);
	int fd = socket(AF_INET, type, 0), cause = 0;
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0)
		cause = errno;
	close(fd);
	return cause;
}

static int port_of(int fd)
{
	return ntohs(name_of(fd).sin_port);
}

/* tally shows how many rounds had a result other than 0, and the last of those. */
static void tally(const char *what, int (*round)(void))
{
	int cause = 0;
	for (int i = 0; i < ROUNDS; i++) {
		int e = round();
		cause = e != 0 ? e : cause;
	}
	errno = cause;
	show(what, cause == 0 ? 0 : -1);
}

static int datagram_again(void)
{
	int fd = bound_at(SOCK_DGRAM, 0), port = port_of(fd);
	close(fd);
	return again(SOCK_DGRAM, port);
}

static int stream_again(void)
{
	int fd = bound_at(SOCK_STREAM, 0), port = port_of(fd);
	close(fd);
	return again(SOCK_STREAM, port);
}

static int listener_again(void)
{
	int fd = bound_at(SOCK_STREAM, 0), port = port_of(fd);
	if (listen(fd, 5) != 0)
		return errno;
	close(fd);
	return again(SOCK_STREAM, port);
}

/* refused is ECONNREFUSED of a datagram to a port that was just closed by end: 0 if it comes. */
static int refused(int (*end)(int fd))
{
	int gone = bound_at(SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in to = name_of(gone);
	struct pollfd p = {.fd = fd};
	if (aim(fd, &to) != 0)
		return errno;
	end(gone);
	if (send(fd, "x", 1, 0) != 1)
		return errno;
	int e = poll(&p, 1, 3000) == 1 ? error_of(fd) : ETIMEDOUT;
	close(fd);
	return e == ECONNREFUSED ? 0 : e != 0 ? e : EPROTO;
}

static int datagram_refused(void)
{
	return refused(close);
}

static int close_by_range(int fd)
{
	return close_range((unsigned)fd, (unsigned)fd, 0);
}

/* dup2(2) closes what had the number. */
static int close_by_dup(int fd)
{
	return dup2(STDERR_FILENO, fd) == fd ? close(fd) : -1;
}

static int close_copy(int fd)
{
	int copy = dup(fd);
	close(fd);
	return close(copy);
}

static int copy_refused(void)
{
	return refused(close_copy);
}

static int replaced_refused(void)
{
	return refused(close_by_dup);
}

static int ranged_refused(void)
{
	return refused(close_by_range);
}

/* datagram_sent: what was sent before the close arrives. */
static int datagram_sent(void)
{
	int from = bound_at(SOCK_DGRAM, 0), to = bound_at(SOCK_DGRAM, 0);
	char b[10];
	put(from, to, "last");
	close(from);
	await(to, POLLIN);
	int e = recv(to, b, sizeof b, MSG_DONTWAIT) == 4 ? 0 : errno;
	close(to);
	return e;
}

/*
 * stream_refused is ECONNREFUSED of a connect to a listener that was just closed. The stack may choose the port for the client, as it is free:
 * that connects to itself (simultaneous open, RFC 9293 3.5), as on Linux.
 */
static int stream_refused(void)
{
	int gone = bound_at(SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in to = name_of(gone);
	if (listen(gone, 5) != 0)
		return errno;
	close(gone);
	int e = aim(fd, &to) == 0 ? EISCONN : errno;
	bool itself = e == EISCONN && port_of(fd) == ntohs(to.sin_port);
	close(fd);
	return e == ECONNREFUSED || itself ? 0 : e;
}

/* kept and then freed by the last of two descriptors. */
static int duplicated(int type)
{
	int fd = bound_at(type, 0), port = port_of(fd), copy = dup(fd);
	close(fd);
	if (again(type, port) != EADDRINUSE)
		return EEXIST;
	close(copy);
	return again(type, port);
}

static int datagram_duplicated(void)
{
	return duplicated(SOCK_DGRAM);
}

static int stream_duplicated(void)
{
	return duplicated(SOCK_STREAM);
}

/* forked: a child has the descriptor, too, and closes it, or ends with it, after the parent. */
static int forked(bool closes)
{
	int fd = bound_at(SOCK_DGRAM, 0), port = port_of(fd), go[2], status;
	char b;
	if (pipe(go) != 0)
		return errno;
	pid_t child = fork();
	if (child == 0) {
		close(go[1]);
		if (read(go[0], &b, 1) == 0 && closes)
			close(fd);
		_exit(0);
	}
	close(go[0]);
	close(fd);
	int kept = again(SOCK_DGRAM, port);
	close(go[1]);
	waitpid(child, &status, 0);
	return kept != EADDRINUSE ? EEXIST : again(SOCK_DGRAM, port);
}

static int forked_closes(void)
{
	return forked(true);
}

static int forked_ends(void)
{
	return forked(false);
}

/* ended: the socket of a process is closed with it. */
static int ended(int type)
{
	int fd[2], status, port = 0;
	if (pipe(fd) != 0)
		return errno;
	pid_t child = fork();
	if (child == 0) {
		port = port_of(bound_at(type, 0));
		_exit(write(fd[1], &port, sizeof port) == sizeof port ? 0 : 1);
	}
	close(fd[1]);
	if (read(fd[0], &port, sizeof port) != sizeof port)
		port = -1;
	close(fd[0]);
	waitpid(child, &status, 0);
	return port < 0 ? EPROTO : again(type, port);
}

static int datagram_ended(void)
{
	return ended(SOCK_DGRAM);
}

static int stream_ended(void)
{
	return ended(SOCK_STREAM);
}

int main(int n, char **args)
{
	const struct {
		const char *name;
		int (*round)(void);
	} parts[] = {
		{"datagram-again", datagram_again},   {"stream-again", stream_again},     {"listener-again", listener_again},
		{"datagram-refused", datagram_refused}, {"datagram-sent", datagram_sent},   {"stream-refused", stream_refused}, {"datagram-duplicated", datagram_duplicated},
		{"stream-duplicated", stream_duplicated}, {"replaced-refused", replaced_refused}, {"ranged-refused", ranged_refused},
		{"copy-refused", copy_refused}, {"forked-closes", forked_closes},
		{"forked-ends", forked_ends}, {"datagram-ended", datagram_ended}, {"stream-ended", stream_ended},
	};
	signal(SIGPIPE, SIG_IGN);
	alarm(60);
	for (size_t i = 0; n == 2 && i < sizeof parts / sizeof *parts; i++)
		if (strcmp(parts[i].name, args[1]) == 0) {
			tally(parts[i].name, parts[i].round);
			return 0;
		}
	return 1;
}
