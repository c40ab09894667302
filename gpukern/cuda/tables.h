/* The tables that a pass looks up and the state that it changes, put together from the structs of the
 * files that read them. Tables.Image (image_tables.go) lays struct gk_tables out: what is added here is
 * added there, at the same place. The order is hash, acl4, acl6, lpm4, lpm6, literals. */
#ifndef MILLRACE_GK_TABLES_H
#define MILLRACE_GK_TABLES_H

#include "hash.cuh"

struct gk_tables {
	struct gk_hash hash;
};

/* What a pass changes: it outlives tables. */
struct gk_state {
	u64 reserved; /* C++ and Go disagree about the size of nothing */
};

#endif
