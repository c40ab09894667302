#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "library.h"

/* One context of the device serves all identifiers of a process, and is open until it ends, as it is in rdma-core: programs keep
 * rdma_cm_id.verbs longer than the identifier. */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_context *opened;
static struct ibv_pd *domain;

/* device returns the context, NULL with errno where the node has no device for this program. */
struct ibv_context *device(void)
{
	pthread_mutex_lock(&lock);
	if (!opened) {
		struct ibv_device **list = ibv_get_device_list(NULL);
		if (list && list[0])
			opened = ibv_open_device(list[0]);
		else
			errno = ENODEV;
		if (list)
			ibv_free_device_list(list);
	}
	struct ibv_context *c = opened;
	pthread_mutex_unlock(&lock);
	return c;
}

/* default_pd returns the protection domain of identifiers whose programs name none. */
struct ibv_pd *default_pd(void)
{
	struct ibv_context *c = device();
	if (!c)
		return NULL;
	pthread_mutex_lock(&lock);
	if (!domain)
		domain = ibv_alloc_pd(c);
	struct ibv_pd *pd = domain;
	pthread_mutex_unlock(&lock);
	return pd;
}

/* cm_call does a request, and sets errno where it fails. */
int cm_call(struct cm_request *q, struct cm_reply *r, int *fds, int count)
{
	struct ibv_context *c = device();
	if (!c)
		return -1;
	q->version = CHANNEL_VERSION;
	int e = millrace_exchange(c, q, sizeof *q, r, sizeof *r, fds, count);
	return e ? fail(e) : 0;
}

EXPORT struct ibv_context **rdma_get_devices(int *n)
{
	struct ibv_context **list = calloc(2, sizeof *list);
	if (!list)
		return NULL;
	list[0] = device();
	if (n)
		*n = list[0] != NULL;
	return list;
}

EXPORT void rdma_free_devices(struct ibv_context **list) { free(list); }
