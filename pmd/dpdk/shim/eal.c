/* eal.c - DPDK's environment: started once in a process, on a thread of its own. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <rte_version.h>

uint32_t mrd_interface(void)
{
	return MRD_INTERFACE;
}

/* mrd_sizes writes the sizes of the structures that Go has too. */
void mrd_sizes(uint32_t *to)
{
	const uint32_t sizes[] = {sizeof(struct mrd_counts), sizeof(struct mrd_port), sizeof(struct mrd_setup), sizeof(struct mrd_losses),
		sizeof(struct mrd_flow), sizeof(struct mrd_burst)};
	memcpy(to, sizes, sizeof(sizes));
}

/* put_text copies text with its end, cut to size, and returns its length. */
static uint32_t put_text(char *to, uint32_t size, const char *text, uint32_t n)
{
	if (size == 0)
		return 0;
	n = n < size ? n : size - 1;
	memcpy(to, text, n);
	to[n] = 0;
	return n;
}

uint32_t mrd_version(char *to, uint32_t size)
{
	const char *v = rte_version();
	return put_text(to, size, v, (uint32_t)strlen(v));
}

/* DPDK explains its errors only in its log. The last lines wait here until mrd_log takes them. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[4096];
static uint32_t log_n;

static ssize_t log_write(void *cookie, const char *text, size_t n)
{
	(void)cookie;
	if (rte_log_cur_msg_loglevel() <= (int)RTE_LOG_CRIT) /* DPDK ends the process after these */
		fwrite(text, 1, n, stderr);
	pthread_mutex_lock(&log_lock);
	size_t keep = n < sizeof(log_text) ? n : sizeof(log_text);
	if (log_n + keep > sizeof(log_text)) {
		uint32_t drop = (uint32_t)(log_n + keep - sizeof(log_text));
		memmove(log_text, log_text + drop, log_n - drop);
		log_n -= drop;
	}
	memcpy(log_text + log_n, text + n - keep, keep);
	log_n += (uint32_t)keep;
	pthread_mutex_unlock(&log_lock);
	return (ssize_t)n;
}

uint32_t mrd_log(char *to, uint32_t size)
{
	pthread_mutex_lock(&log_lock);
	uint32_t n = put_text(to, size, log_text, log_n);
	log_n = 0;
	pthread_mutex_unlock(&log_lock);
	return n;
}

#define MOST_ARGS 64

/* start runs rte_eal_init, which binds its thread to a CPU and makes it an lcore: neither may happen to a thread of Go. */
static void *start(void *text)
{
	char *argv[MOST_ARGS + 1], *rest = text;
	int argc = 0;
	for (char *a; argc < MOST_ARGS && (a = strsep(&rest, "\n"));)
		argv[argc++] = a;
	argv[argc] = NULL;
	if (rest)
		return (void *)(intptr_t)-E2BIG;
	if (rte_eal_init(argc, argv) < 0)
		return (void *)(intptr_t)(rte_errno ? -rte_errno : -EINVAL);
	return NULL;
}

int64_t mrd_eal(char *args)
{
	static FILE *log;
	if (!log) {
		log = fopencookie(NULL, "w", (cookie_io_functions_t){.write = log_write});
		if (!log)
			return -ENOMEM;
		setvbuf(log, NULL, _IONBF, 0);
		rte_openlog_stream(log);
	}
	pthread_t t;
	int err = pthread_create(&t, NULL, start, args);
	if (err)
		return -err;
	void *result;
	pthread_join(t, &result);
	return (intptr_t)result;
}
