/* echo.cc - a kernel, in the form for the CPU, between two queues in a file: it adds 1 to each byte of an entry and returns it.
 * usage: echo FILE BYTES COUNT, where the queues are the halves of the file */
#include "sharedqueue.cuh"
#include "host_run.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

struct echo_params {
	struct gk_share_queue *in, *out;
	u64 count;
};

GK_KERNEL(echo, struct echo_params, 1)
{
	u32 shift = gk_ctz(p->in->slots);
	u64 taken = 0, put = 0, consumed = 0;
	struct gk_share_item e;
	while (taken < p->count) {
		if (!gk_share_take(p->in, &taken, shift, &e)) {
			gk_pause(100);
			continue;
		}
		for (u32 i = 0; i < gk_share_length(&e); i++)
			((u8 *)e.data)[i]++;
		while (!gk_share_put(p->out, &put, &consumed, shift, &e))
			gk_pause(100);
	}
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	size_t bytes = strtoul(argv[2], NULL, 10);
	u8 *m = (u8 *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, open(argv[1], O_RDWR), 0);
	if (m == (u8 *)MAP_FAILED)
		return 1;
	struct echo_params params = {(struct gk_share_queue *)m, (struct gk_share_queue *)(m + bytes / 2), strtoul(argv[3], NULL, 10)};
	gk_run_at_once(echo, &params, 1, 1, 0);
	return 0;
}
