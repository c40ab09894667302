/*
 * standing.c - errors of datagrams, which poll(2), epoll(7) and select(2) show until they are taken. TestErrorsStand runs it on the kernel's
 * stack and by the library, and compares.
 */
#include "datagrams.h"

#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>

/* Instances of epoll that ask for what can be read, for what can be written, and for nothing; and one that the library does not see. */
static int instances[3], unseen;

static void enter_all(int fd)
{
	const uint32_t asked[3] = {EPOLLIN, EPOLLOUT, 0};
	for (int i = 0; i < 3; i++) {
		struct epoll_event e = {.events = asked[i], .data.u64 = 77};
		instances[i] = epoll_create1(0);
		if (instances[i] < 0 || epoll_ctl(instances[i], EPOLL_CTL_ADD, fd, &e) != 0)
			exit(5);
	}
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
	unseen = epoll_create1(0);
	if (unseen < 0 || syscall(SYS_epoll_ctl, unseen, EPOLL_CTL_ADD, fd, &e) != 0)
		exit(5);
}

/* show_events shows what each way to wait has. */
static void show_events(const char *when, int fd)
{
	const short asked[3] = {POLLIN, POLLIN | POLLOUT, 0};
	printf("%s: poll", when);
	for (int i = 0; i < 3; i++) {
		struct pollfd p = {.fd = fd, .events = asked[i]};
		int n = poll(&p, 1, 0);
		printf(" %d/%#x", n, (unsigned)p.revents);
	}
	printf(", epoll");
	for (int i = 0; i < 3; i++) {
		struct epoll_event e = {0};
		int n = epoll_wait(instances[i], &e, 1, 0);
		printf(" %d/%#x", n, n == 1 && e.data.u64 == 77 ? e.events : 0);
	}
	struct epoll_event e = {0};
	int n = epoll_wait(unseen, &e, 1, 0);
	printf(" %d/%#x", n, n == 1 && e.data.fd == fd ? e.events : 0);
	fd_set read;
	FD_ZERO(&read);
	FD_SET(fd, &read);
	struct timeval now = {0};
	printf(", select %d\n", select(fd + 1, &read, NULL, NULL, &now));
}

/* await_bit waits until poll(2) shows something, which comes beside other things. */
static void await_bit(int fd, short bit)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	for (int i = 0; i < SOON; i++) {
		if (poll(&p, 1, 0) == 1 && (p.revents & bit) != 0)
			return;
		usleep(1000);
	}
	puts("it does not come");
}

/* An error is shown until it is taken. */
static void standing(bool queue, bool to_peer)
{
	int fd = udp(), other = udp(), port = CLOSED, one = 1;
	char b[8];
	struct pollfd none = {.fd = fd};
	struct epoll_event e = {0};
	if (queue)
		show("IP_RECVERR", v6 ? setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &one, sizeof one) : setsockopt(fd, IPPROTO_IP, IP_RECVERR, &one, sizeof one));
	if (to_peer)
		show("connect", aim(fd, port));
	enter_all(fd);
	show_events("nothing", fd);
	send_with(fd, to_peer ? 0 : port, 0, 0, NULL, 0, 5);
	show("poll for nothing", poll(&none, 1, SOON));
	show("epoll for nothing", epoll_wait(instances[2], &e, 1, SOON));
	printf("  %#x %#x\n", (unsigned)none.revents, e.events);
	show_events("an error", fd);
	show_events("still", fd);
	show("peek", recv(fd, b, sizeof b, MSG_DONTWAIT | MSG_PEEK));
	show_events("after it", fd);
	printf("SO_ERROR %d\n", error_of(fd));
	send_with(fd, to_peer ? 0 : port, 0, 0, NULL, 0, 5);
	await_bit(fd, POLLERR);
	int taken = 0;
	for (int i = 0; i < SOON && (taken = error_of(fd)) == 0; i++)
		usleep(1000);
	printf("SO_ERROR %s\n", strerrorname_np(taken));
	show_events("after SO_ERROR", fd);
	if (!to_peer) {
		send_with(other, port_of(fd), 0, 0, NULL, 0, 3);
		await_bit(fd, POLLIN);
		show_events("a datagram, too", fd);
		show("recv", recv(fd, b, sizeof b, 0));
	}
	show_events("before the queue", fd);
	show("recv", recv(fd, b, sizeof b, MSG_DONTWAIT));
	show_events("still", fd);
	for (int i = 0; queue && i < 3; i++) {
		receive(fd, MSG_ERRQUEUE, port);
		show_events("the queue", fd);
		if (i == 1)
			printf("SO_ERROR %d\n", error_of(fd));
	}
	if (to_peer)
		return;
	send_with(other, port_of(fd), 0, 0, NULL, 0, 3); /* before the error, and not read */
	await_bit(fd, POLLIN);
	show("poll for nothing", poll(&none, 1, 20));
	show("epoll for nothing", epoll_wait(instances[2], &e, 1, 20));
	send_with(fd, port, 0, 0, NULL, 0, 5);
	show("poll for nothing", poll(&none, 1, SOON));
	show("epoll for nothing", epoll_wait(instances[2], &e, 1, SOON));
	show_events("behind a datagram", fd);
	receive(fd, MSG_ERRQUEUE, port);
	show_events("taken", fd);
	show("recv", recv(fd, b, sizeof b, 0));
	show_events("all", fd);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(60);
	const char *part = argc == 2 ? argv[1] : "";
	v6 = strstr(part, "-6") != NULL;
	standing(strstr(part, "queue") != NULL, strstr(part, "connected") != NULL);
	return 0;
}
