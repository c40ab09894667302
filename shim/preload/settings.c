/*
 * settings.c - what millrace exec has put in the environment. Servers clear or overwrite it (nginx in its workers, and
 * whatever changes its title), so it is copied when the library is loaded, or by a call before that.
 */

#include "library.h"

#include <stdlib.h>

static struct settings copied;
static bool loaded;

static void copy(char *to, size_t size, const char *name)
{
	const char *from = getenv(name);
	if (from != NULL && strlen(from) < size)
		memcpy(to, from, strlen(from) + 1);
}

/* The loader calls it while the process has one thread. */
__attribute__((constructor)) static void load(void)
{
	const char *uid = getenv("MILLRACE_SHIM_UID");
	if (loaded)
		return;
	loaded = true;
	copy(copied.path, sizeof copied.path, "MILLRACE_SHIM");
	copy(copied.token, sizeof copied.token, "MILLRACE_SHIM_TOKEN");
	copied.has_uid = uid != NULL;
	copied.uid = uid != NULL ? (uid_t)strtoul(uid, NULL, 10) : 0;
}

const struct settings *settings(void)
{
	load();
	return &copied;
}

bool active(void)
{
	return settings()->path[0] != 0;
}
