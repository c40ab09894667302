/* remember.h - what is remembered of a socket. */
#ifndef MILLRACE_SHIM_REMEMBER_H
#define MILLRACE_SHIM_REMEMBER_H

#include "rebind.h"

#define MOST_OPTIONS 24
#define LONGEST_OPTION 136 /* struct group_req */

struct remembered {
	uint64_t cookie, age;
	struct shim_addr addr; /* family 0: none */
	uint32_t instance;     /* of the node; 0: the name of the socket has it */
	int backlog;           /* 0: it does not listen */
	bool permitted;
	uint8_t permit[SHIM_PERMIT];
	unsigned options;
	struct {
		int32_t level, name;
		uint32_t len;
		uint8_t value[LONGEST_OPTION];
	} option[MOST_OPTIONS];
};

/* recall copies what is known of a socket; false is nothing. replaced passes it on to the one that has taken the place. */
bool recall(uint64_t cookie, struct remembered *to);
void replaced(const struct remembered *r, int fd, uint32_t instance);

/* A lock of the process that is free again in a child of fork, and when the thread that has it has ended or jumped out of the call. */
bool hold(_Atomic uint64_t *lock);
void let_go(_Atomic uint64_t *lock);

#endif
