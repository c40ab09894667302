/* calls.h - what the parts of the program share. */
#ifndef CALLS_H
#define CALLS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <time.h>
#include <unistd.h>

/* SAY makes a call, and prints what it returns. */
#define SAY(call) said(#call, call)
long said(const char *what, long result);

/* Sockets of 127.0.0.1. */
struct sockaddr_in at(int port);
int port_of(int fd);
int listener(void);
int client(int port);

/* after runs f in a child, some time later. */
pid_t after(int milliseconds, void (*f)(int), int argument);
void alarm_parent(int unused);
void handle(int number, int flags); /* a signal, by a function that counts */

/* results.c */
void descriptors(void);
void wrong_memory(void);
void streams(void);
void families(void);
void unconnected(void);
void datagrams(void);
void network(const char *address, int port, const char *silent);

/* plain.c */
void plain(void);
void wakes(void);
void undirected(void);

/* processes.c */
void waiting(void);
void killed(void);
void fork_server(int n);

/* load.c */
void hostile(long seconds);
void sockets(int n);
void cost(int n);

#endif
