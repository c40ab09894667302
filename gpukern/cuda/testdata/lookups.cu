/* Kernels for tests of the flow table alone: what many threads do at once to tuples that
 * lie in memory. What the tables would say of a packet is its tuple's end. `make kernels` builds no PTX. */
#include "../flow.cuh"

struct gk_lookups {
	struct gk_pass pass;
	const struct gk_tuple *tuples; /* one for each descriptor */
};

GK_FN void gk_lookup(const struct gk_pass *p, const struct gk_tuple *t, struct mr_desc *d)
{
	if (!(p->ops & GK_OP_FLOW) || gk_flow(p, t, d))
		return;
	d->rule = (u16)t->end;
	d->next_hop = (u16)(t->end >> 16);
	gk_flow_keep(p, d);
}

GK_KERNEL(gk_lookups, struct gk_lookups, 256)
{
	for (u32 i = gk_global_thread(); i < p->pass.n; i += gk_threads()) {
		struct gk_tuple t = p->tuples[i];
		struct mr_desc d = p->pass.desc[i];
		gk_lookup(&p->pass, &t, &d);
		p->pass.desc[i] = d;
	}
}
