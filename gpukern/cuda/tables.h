/* The tables that a pass looks up, put together from the structs of the files that read them (what it
 * changes is in state.h). Tables.Image (image_tables.go) lays struct gk_tables out: what is added here is
 * added there, at the same place. The order is hash, acl4, acl6, lpm4, lpm6, literals. */
#ifndef MILLRACE_GK_TABLES_H
#define MILLRACE_GK_TABLES_H

#include "acl.cuh"
#include "hash.cuh"
#include "literal.cuh"
#include "lpm.cuh"
#include "state.h"

struct gk_tables {
	struct gk_hash hash;
	struct gk_acl acl4, acl6;
	struct gk_lpm lpm4, lpm6;
	struct gk_literals literals;
};

#endif
