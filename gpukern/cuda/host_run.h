/* How a program runs kernels on the CPU: see host.cc. */
#ifndef MILLRACE_GK_HOST_RUN_H
#define MILLRACE_GK_HOST_RUN_H

#include <stddef.h>
#include <stdint.h>

extern "C" {
typedef void (*gk_kernel)(const void *params);
void gk_run_block(gk_kernel kernel, const void *params, uint32_t block, uint32_t grid, uint32_t block_size,
		  size_t dynamic_shared);
/* gk_run runs the blocks of a grid one after the other; gk_run_at_once runs each on a thread of its own,
 * for kernels whose blocks wait for each other or for the host. */
void gk_run_at_once(gk_kernel kernel, const void *params, uint32_t grid, uint32_t block_size, size_t dynamic_shared);
void gk_run(gk_kernel kernel, const void *params, uint32_t grid, uint32_t block_size, size_t dynamic_shared);
}

#endif
