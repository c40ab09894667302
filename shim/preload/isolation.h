/* isolation.h - whether a program may be started that would leave the stack. */
#ifndef MILLRACE_SHIM_ISOLATION_H
#define MILLRACE_SHIM_ISOLATION_H

#include "library.h"

/*
 * may_start reports whether a program is to be started. One that leaves the stack is reported; with --strict the result is
 * false, with errno. may_start_found looks for it as execvp(3) does, may_start_open has it as a
 * descriptor, and may_start_in in the folder of one.
 */
bool may_start(const char *path, char *const argv[], char *const env[]);
bool may_start_found(const char *file, char *const argv[], char *const env[]);
bool may_start_in(int folder, const char *path, char *const argv[], char *const env[]);
bool may_start_open(int fd, char *const argv[], char *const env[]);

#endif
