/* client.h - what the programs of the tests share. Each part ends the process with an error where something is not as over TCP. */
#ifndef CLIENT_H
#define CLIENT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

struct part {
	const char *name;
	void (*run)(char **);
};

/* They end with a part without a name. */
extern const struct part leaving[], waiting[], sharing[], jumping[], calls[], pairs[];

extern const char *self; /* the program's path */

#define CHECK(x) check((x) != 0, #x, __FILE__, __LINE__)
void check(int ok, const char *what, const char *file, int line);

int dial(char **arg); /* connects to an address and a port */
void nonblocking(int fd);
int descriptors(void); /* that are open */
void on_alarm(int sig);

/* byte_at is the byte of a stream at an offset. make writes n bytes from there on, and verify compares them. */
uint8_t byte_at(uint64_t at);
void make(uint8_t *b, uint64_t at, size_t n);
void verify(const uint8_t *b, uint64_t at, size_t n);

#define BIGGEST 100000

/* put writes the bytes from at on, by another call each time. It returns how many the call has taken. */
ssize_t put(int fd, uint64_t at, size_t n, unsigned *seed);

/* get is put for the other direction. */
ssize_t get(int fd, uint64_t at, size_t n, unsigned *seed);

struct flow {
	int fd;
	uint64_t from, to;
};

void *write_all(void *arg); /* of a struct flow, in a thread */
extern bool signals_come;   /* a write that has taken some bytes may return as many: also of TCP, and with SA_RESTART */
void read_all(int fd, uint64_t from, uint64_t to);

/* transfer sends much to an echo server, and reads it back. */
void transfer(char **arg);

void await_unread(int fd, int n); /* until the socket has n bytes to read */

/* end closes a connection of which all was read. */
void end(int fd);

/* both sends and receives at the same time, and calls between once some bytes are on their way: it returns the socket from then on. */
void both(int fd, uint64_t bytes, int (*between)(int fd));

#endif
