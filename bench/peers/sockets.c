// sockets: a program with the sockets of libc, as suite shim runs it over the kernel's stack and over Millrace's. It
// knows of neither.
//
//	sockets echo ADDRESS PORT        send back what comes, on each connection by a thread
//	sockets hangup ADDRESS PORT      accept and close
//	sockets rtt ADDRESS PORT BYTES   send and wait for as many bytes, again and again
//	sockets options ADDRESS PORT     connect, and set and read TCP_NODELAY again and again
//	sockets sink ADDRESS PORT        read 64 KiB at a time, and count bytes
//	sockets bulk ADDRESS PORT BYTES  write so many at a time, again and again
//	sockets connect ADDRESS PORT     connect, wait until the server closes, and close
//
// Addresses are IPv4. The clients count requests, and the quantiles of their durations since the last mark.
#include "peer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

enum {
	SUB = 5,                  // 32 buckets for each power of two: 3 % of a value
	BUCKETS = 64 << SUB,
	LARGEST = 65536,          // of a message, bytes
	PATIENCE_MS = 8000,       // for a server that comes up
};

static volatile u64 requests, bytes;
static volatile u64 buckets[BUCKETS];

static void count_duration(u64 ns) {
	int shift = ns < (2u << SUB) ? 0 : 63 - __builtin_clzll(ns) - SUB;
	buckets[(shift << SUB) + (ns >> shift)]++;
	requests++;
}

// quantile returns the upper end of the bucket that holds the quantile of what was added since before.
static u64 quantile(const u64 *before, const u64 *after, double q) {
	u64 all = 0, sum = 0;
	for (int i = 0; i < BUCKETS; i++)
		all += after[i] - before[i];
	for (int i = 0; all > 0 && i < BUCKETS; i++) {
		sum += after[i] - before[i];
		if (sum <= (u64)(q * (all - 1)))
			continue;
		int shift = i < (2 << SUB) ? 0 : (i >> SUB) - 1;
		return ((u64)(i - (shift << SUB)) + 1) << shift;
	}
	return 0;
}

static void mark(int final) {
	static u64 before[BUCKETS], after[BUCKETS];
	for (int i = 0; i < BUCKETS; i++)
		after[i] = buckets[i];
	printf("{\"ns\":%lu,\"cpu_ns\":%lu,\"final\":%s,\"counts\":{\"requests\":%lu,\"bytes\":%lu,\"p50 ns\":%lu,\"p99 ns\":%lu}}\n",
	       clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_PROCESS_CPUTIME_ID), final ? "true" : "false", requests, bytes,
	       quantile(before, after, 0.5), quantile(before, after, 0.99));
	fflush(stdout);
	memcpy(before, after, sizeof before);
}

// answer is the harness's side. The work may wait for ever in a system call, so the end of stdin ends the program.
static void *answer(void *unused) {
	char line[64];
	while (fgets(line, sizeof line, stdin))
		mark(0);
	mark(1);
	_exit(0);
	return unused;
}

static void begin(void) {
	pthread_t t;
	printf("{\"ready\":true,\"version\":\"sockets, gcc " __VERSION__ "\"}\n");
	fflush(stdout);
	if (pthread_create(&t, NULL, answer, NULL))
		die("pthread_create");
}

static int stream(void) {
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	if (fd < 0)
		die("socket");
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on))
		die("TCP_NODELAY");
	return fd;
}

static int listen_at(const struct sockaddr_in *at) {
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) || bind(fd, (const void *)at, sizeof *at) ||
	    listen(fd, 1024))
		die("listen");
	return fd;
}

static void send_all(int fd, const char *b, size_t n) {
	while (n > 0) {
		ssize_t got = send(fd, b, n, MSG_NOSIGNAL);
		if (got < 0)
			die("send");
		b += got, n -= got;
	}
}

static void receive_all(int fd, char *b, size_t n) {
	while (n > 0) {
		ssize_t got = recv(fd, b, n, 0);
		if (got < 0)
			die("recv");
		if (got == 0) {
			fprintf(stderr, "the server has closed the connection\n");
			exit(1);
		}
		b += got, n -= got;
	}
}

static void *echo(void *arg) {
	int fd = (int)(intptr_t)arg, on = 1;
	char *b = malloc(LARGEST);
	ssize_t n;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	while ((n = recv(fd, b, LARGEST, 0)) > 0)
		if (send(fd, b, n, MSG_NOSIGNAL) != n)
			break;
	free(b);
	close(fd);
	return NULL;
}

static void serve_echo(int l) {
	for (;;) {
		pthread_t t;
		int fd = accept(l, NULL, NULL);
		if (fd < 0)
			die("accept");
		if (pthread_create(&t, NULL, echo, (void *)(intptr_t)fd))
			die("pthread_create");
		pthread_detach(t);
	}
}

static void serve_hangup(int l) {
	for (;;) {
		int fd = accept(l, NULL, NULL);
		if (fd < 0)
			die("accept");
		close(fd);
		requests++;
	}
}

static void serve_sink(int l) {
	static char b[LARGEST];
	for (;;) {
		ssize_t n;
		int fd = accept(l, NULL, NULL);
		if (fd < 0)
			die("accept");
		while ((n = recv(fd, b, sizeof b, 0)) > 0)
			bytes += n;
		close(fd);
	}
}

// dial waits for a server that comes up.
static int dial(const struct sockaddr_in *to) {
	for (int waited = 0;; waited++) {
		int fd = stream();
		if (connect(fd, (const void *)to, sizeof *to) == 0)
			return fd;
		if (errno != ECONNREFUSED || waited == PATIENCE_MS)
			die("connect");
		close(fd);
		usleep(1000);
	}
}

static void round_trips(const struct sockaddr_in *to, size_t size) {
	static char out[LARGEST], in[LARGEST];
	int fd = dial(to);
	begin();
	for (u64 n = 0;; n++) {
		u64 start = clock_ns(CLOCK_MONOTONIC);
		memcpy(out, &n, size < sizeof n ? size : sizeof n);
		send_all(fd, out, size);
		receive_all(fd, in, size);
		count_duration(clock_ns(CLOCK_MONOTONIC) - start);
		if (memcmp(in, out, size)) {
			fprintf(stderr, "other bytes came back\n");
			exit(1);
		}
	}
}

static void writes(const struct sockaddr_in *to, size_t size) {
	static char out[LARGEST];
	int fd = dial(to);
	begin();
	for (;;) {
		send_all(fd, out, size);
		requests++;
	}
}

static void connects(const struct sockaddr_in *to) {
	char b;
	close(dial(to));
	begin();
	for (;;) {
		u64 start = clock_ns(CLOCK_MONOTONIC);
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		if (fd < 0 || connect(fd, (const void *)to, sizeof *to))
			die("connect");
		if (recv(fd, &b, 1, 0) != 0)
			die("the end of the connection");
		close(fd);
		count_duration(clock_ns(CLOCK_MONOTONIC) - start);
	}
}

static void options_of(const struct sockaddr_in *to) {
	int fd = dial(to);
	begin();
	for (int on = 0;; on = !on) {
		u64 start = clock_ns(CLOCK_MONOTONIC);
		int got = -1;
		socklen_t len = sizeof got;
		if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on))
			die("setsockopt");
		count_duration(clock_ns(CLOCK_MONOTONIC) - start);
		start = clock_ns(CLOCK_MONOTONIC);
		if (getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &got, &len) || !got != !on)
			die("getsockopt");
		count_duration(clock_ns(CLOCK_MONOTONIC) - start);
	}
}

int main(int argc, char **argv) {
	struct sockaddr_in at = {.sin_family = AF_INET};
	const char *role = argc > 3 ? argv[1] : "";
	size_t size = argc > 4 ? (size_t)atoi(argv[4]) : 1;
	if (argc < 4 || inet_pton(AF_INET, argv[2], &at.sin_addr) != 1 || size < 1 || size > LARGEST) {
		fprintf(stderr, "usage: %s echo|hangup|sink|rtt|bulk|connect|options ADDRESS PORT [BYTES]\n", argv[0]);
		return 2;
	}
	at.sin_port = htons(atoi(argv[3]));
	if (!strcmp(role, "rtt"))
		round_trips(&at, size);
	if (!strcmp(role, "bulk"))
		writes(&at, size);
	if (!strcmp(role, "connect"))
		connects(&at);
	if (!strcmp(role, "options"))
		options_of(&at);
	if (!strcmp(role, "echo") || !strcmp(role, "hangup") || !strcmp(role, "sink")) {
		int l = listen_at(&at);
		begin();
		strcmp(role, "echo") ? strcmp(role, "sink") ? serve_hangup(l) : serve_sink(l) : serve_echo(l);
	}
	fprintf(stderr, "no role %s\n", role);
	return 2;
}
