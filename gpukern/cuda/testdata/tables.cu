/* Kernels for tests of the tables alone: a look-up a thread. `make kernels` builds no PTX of them. */
#include "../acl.cuh"
#include "../lpm.cuh"

struct gk_test_lpm {
	struct gk_lpm table;
	const u64 *addresses; /* two words each */
	u32 *found;
	u64 n;
};

GK_KERNEL(gk_test_lpm_kernel, struct gk_test_lpm, 256)
{
	for (u32 i = gk_global_thread(); i < p->n; i += gk_threads())
		p->found[i] = gk_lpm(&p->table, p->addresses[2 * i], p->addresses[2 * i + 1]);
}

struct gk_test_acl {
	struct gk_acl table;
	const struct gk_tuple *tuples;
	u32 *found;
	u64 n;
};

GK_KERNEL(gk_test_acl_kernel, struct gk_test_acl, 256)
{
	for (u32 i = gk_global_thread(); i < p->n; i += gk_threads())
		p->found[i] = gk_acl(&p->table, &p->tuples[i]);
}
