/*
 * plain.c - datagrams that a program receives by read(2), which a supervisor does not see, and by calls that it does; and the queue of
 * errors.
 */
#include "calls.h"

#include <linux/errqueue.h>
#include <sys/uio.h>

static int bound(struct sockaddr_in *name)
{
	struct sockaddr_in a = at(0);
	socklen_t len = sizeof *name;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || getsockname(fd, (struct sockaddr *)name, &len) != 0)
		exit(1);
	return fd;
}

static void send_to(int fd, const struct sockaddr_in *to, const char *text)
{
	if (sendto(fd, text, strlen(text), 0, (const struct sockaddr *)to, sizeof *to) != (long)strlen(text))
		printf("%s is not sent\n", text);
}

/* ready waits for something to receive: datagrams of another socket come later on the stack. */
static void ready(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	poll(&p, 1, 20000);
}

/* read_plain receives without an address. */
static void read_plain(int fd, const char *by)
{
	char b[100] = "";
	struct iovec parts[2] = {{b, 2}, {b + 2, 90}};
	ready(fd);
	long n = strcmp(by, "read") == 0 ? read(fd, b, 90) : strcmp(by, "recv") == 0 ? recv(fd, b, 90, 0) : readv(fd, parts, 2);
	printf("%s: %ld, %.10s\n", by, n, b);
}

/* receive has the address of the sender, and control messages. */
static void receive(int fd, int flags, const struct sockaddr_in *sender)
{
	char b[100] = "";
	_Alignas(struct cmsghdr) char control[512];
	struct sockaddr_in from = {0};
	struct iovec part = {b, 90};
	struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	if ((flags & MSG_ERRQUEUE) == 0)
		ready(fd);
	long n = recvmsg(fd, &m, flags);
	for (int i = 0; n < 0 && (flags & MSG_ERRQUEUE) != 0 && i < 20000; i++) { /* ICMP takes its time */
		usleep(1000);
		n = recvmsg(fd, &m, flags);
	}
	printf("recvmsg: %ld, %.10s, from the sender %d, flags %#x\n", n, b, from.sin_port == sender->sin_port && from.sin_addr.s_addr == sender->sin_addr.s_addr, (unsigned)m.msg_flags);
	for (struct cmsghdr *c = n >= 0 ? CMSG_FIRSTHDR(&m) : NULL; c != NULL; c = CMSG_NXTHDR(&m, c)) {
		struct sock_extended_err e;
		printf("  level %d, type %d, %zu bytes\n", c->cmsg_level, c->cmsg_type, (size_t)c->cmsg_len);
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) {
			memcpy(&e, CMSG_DATA(c), sizeof e);
			const struct sockaddr_in *by = (struct sockaddr_in *)(CMSG_DATA(c) + sizeof e);
			printf("  error %u, origin %d, type %d, code %d, info %u, by %#x\n", e.ee_errno, e.ee_origin, e.ee_type, e.ee_code, e.ee_info, ntohl(by->sin_addr.s_addr));
		}
	}
}

static void ask_for_all(int fd)
{
	int on = 1;
	SAY(setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on));
	SAY(setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof on));
	SAY(setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof on));
	SAY(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on));
}

void plain(void)
{
	struct sockaddr_in to, from;
	socklen_t len = sizeof from;
	char b[8];
	int u = bound(&to), v = bound(&from);
	send_to(v, &to, "one");
	read_plain(u, "read");
	send_to(v, &to, "two");
	read_plain(u, "recv");
	send_to(v, &to, "three");
	read_plain(u, "readv");
	for (int i = 0; i < 3; i++) /* what waits unread keeps its sender */
		send_to(v, &to, (char *[]){"four", "five", "six"}[i]);
	read_plain(u, "read");
	receive(u, 0, &from);
	receive(u, 0, &from);
	ask_for_all(u);
	send_to(v, &to, "seven");
	receive(u, 0, &from);
	send_to(u, &from, "back"); /* its sender only reads */
	read_plain(v, "read");

	/* Connected. */
	SAY(connect(v, (struct sockaddr *)&to, sizeof to));
	SAY(connect(u, (struct sockaddr *)&from, sizeof from));
	SAY(send(v, "eight", 5, 0));
	read_plain(u, "read");
	SAY(write(v, "nine", 4));
	receive(u, 0, &from);
	SAY(write(u, "ten", 3));
	read_plain(v, "recv");
	SAY(getpeername(v, (struct sockaddr *)&from, &len));
	close(u);
	close(v);

	/* Errors: of a closed port, by a socket that is connected to it and by one that is not. */
	for (int i = 0; i < 2; i++) {
		int on = 1;
		to = at(1); /* no socket has it: the stack closes one some time after close(2) */
		u = bound(&from);
		SAY(setsockopt(u, IPPROTO_IP, IP_RECVERR, &on, sizeof on));
		SAY(recv(u, b, sizeof b, MSG_ERRQUEUE));
		if (i == 1)
			SAY(connect(u, (struct sockaddr *)&to, sizeof to));
		send_to(u, i == 1 ? NULL : &to, "lost");
		receive(u, MSG_ERRQUEUE, &to);
		SAY(recv(u, b, sizeof b, MSG_ERRQUEUE));
		SAY(recvfrom(u, b, sizeof b, MSG_DONTWAIT, (struct sockaddr *)&from, &len));
		close(u);
	}

	/* A stream has no such queue, and its bytes stay. */
	int l = listener(), c = client(port_of(l)), a = accept(l, NULL, NULL);
	SAY(write(c, "x", 1));
	ready(a);
	SAY(recv(a, b, sizeof b, MSG_ERRQUEUE | MSG_DONTWAIT));
	struct iovec part = {b, sizeof b};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
	SAY(recvmsg(a, &m, MSG_ERRQUEUE | MSG_DONTWAIT));
	SAY(read(a, b, 1));
	close(l);
	close(c);
	close(a);
}

/* An unconnected socket whose program gets errors of datagrams by the calls that receive. */
void wakes(void)
{
	struct sockaddr_in to, from;
	socklen_t len = sizeof from;
	char b[8];
	int on = 1, u = bound(&from);
	to = at(1);
	SAY(setsockopt(u, IPPROTO_IP, IP_RECVERR, &on, sizeof on));
	SAY(recvfrom(u, b, sizeof b, MSG_DONTWAIT, (struct sockaddr *)&from, &len));
	send_to(u, &to, "lost");
	SAY(recvfrom(u, b, sizeof b, 0, (struct sockaddr *)&from, &len)); /* it waits for that */
	SAY(recvfrom(u, b, sizeof b, MSG_DONTWAIT, (struct sockaddr *)&from, &len));
	receive(u, MSG_ERRQUEUE, &to);
	SAY(recvfrom(u, b, sizeof b, MSG_DONTWAIT, (struct sockaddr *)&from, &len));
	close(u);
}

/* write(2) to nobody, which the kernel refuses: the supervisor cannot, and SO_ERROR has it. */
void undirected(void)
{
	struct sockaddr_in to;
	int u = bound(&to), error = 0;
	socklen_t len = sizeof error;
	char text[200] = "POST / HTTP/1.1";
	SAY(write(u, text, sizeof text));
	for (int i = 0; i < 20000 && error == 0; i++) {
		getsockopt(u, SOL_SOCKET, SO_ERROR, &error, &len);
		usleep(1000);
	}
	printf("SO_ERROR %d\n", error == EDESTADDRREQ);
	send_to(u, &to, "one");
	read_plain(u, "read");
}
