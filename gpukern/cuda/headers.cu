/* The header pass over a batch: headers.cuh, one warp for each 32 descriptors. */
#include "headers.cuh"

/* gk_headers does what p->ops asks for. */
GK_KERNEL_BLOCKS(gk_headers, struct gk_pass, GK_HEADERS_THREADS, 3)
{
	u32 first = gk_global_thread() / GK_WARP * GK_WARP;

	if (first < p->n)
		gk_headers_run(p, first, p->ops);
}

/* gk_headers_core does parse, checksum and hash and nothing else, whatever p->ops asks for: it takes fewer
 * registers, so that more packets are under way. */
GK_KERNEL_BLOCKS(gk_headers_core, struct gk_pass, GK_HEADERS_THREADS, 4)
{
	u32 first = gk_global_thread() / GK_WARP * GK_WARP;

	if (first < p->n)
		gk_headers_run(p, first, GK_OP_PARSE | GK_OP_CHECKSUM | GK_OP_HASH);
}
