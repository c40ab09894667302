/* The header pass over a batch: headers.cuh, by as many warps as there are. */
#include "headers.cuh"

/* gk_headers_grid gives each warp of the grid its share of the descriptors. */
GK_FN void gk_headers_grid(const struct gk_pass *p, u32 ops)
{
	for (u32 first = gk_global_thread() / GK_WARP * GK_WARP; first < p->n; first += gk_threads())
		gk_headers_run(p, first, ops);
}

/* gk_headers does what p->ops asks for. */
GK_KERNEL(gk_headers, struct gk_pass, GK_HEADERS_THREADS) { gk_headers_grid(p, p->ops); }

/* gk_headers_core does parse, checksum and hash and nothing else, whatever p->ops asks for: it takes fewer
 * registers. */
GK_KERNEL(gk_headers_core, struct gk_pass, GK_HEADERS_THREADS)
{
	gk_headers_grid(p, GK_OP_PARSE | GK_OP_CHECKSUM | GK_OP_HASH);
}
