/* What the header pass works on. Go lays these structs out too (layout tests compare them); pointers are
 * addresses as the device sees them. */
#ifndef MILLRACE_GK_PASS_H
#define MILLRACE_GK_PASS_H

#include "../../packet/desc.h"
#include "gk.h"
#include "state.h"
#include "text.h"

/* gpukern.Ops. */
enum {
	GK_OP_PARSE    = 1 << 0,
	GK_OP_CHECKSUM = 1 << 1,
	GK_OP_HASH     = 1 << 2,
	GK_OP_ACL      = 1 << 3,
	GK_OP_LPM      = 1 << 4,
	GK_OP_FLOW     = 1 << 5,
	GK_OP_LITERALS = 1 << 6,
	GK_OP_L2ENCAP  = 1 << 7,
};

/* How much of a tuple a packet has. */
enum { GK_KNOWS_NOTHING, GK_KNOWS_ADDRESSES, GK_KNOWS_PORTS };

/* What a packet is looked up by. An IPv4 address fills the upper half of the first word. */
struct gk_tuple {
	u64 src_hi, src_lo, dst_hi, dst_lo;
	u32 ports; /* source << 16 | destination */
	u32 end;   /* of the IP packet from the packet's first byte, where it lies within the total, else 0 */
	u8 proto, known;
	u8 v4;     /* 1 for IPv4 */
};

/* One batch for the header pass: n descriptors over one arena. The kernel reads off, len and the flags
 * MORE and OFFLOAD of each descriptor and writes the descriptor back in place. Where a descriptor of a packet
 * points outside of the arena, or beyond the end of its frame, the packet is malformed and none of it is
 * read. */
struct gk_pass {
	u8 *mem;  /* the arena */
	u64 size; /* its bytes; nothing at or beyond them is read */
	struct mr_desc *desc;
	const struct gk_tables *tables;
	struct gk_state *state;
	u32 n;
	u32 ops;
	u32 shift; /* a frame has 1 << shift bytes; no read crosses the end of a packet's frame */
	u32 epoch; /* of the flow table */
	u32 generation; /* of the tables, another one after each Load; 0: the flow table remembers no findings */
	u32 spare;
	struct gk_text *texts; /* with GK_OP_LITERALS: room for the texts of the n descriptors */
	u8 *lines;             /* and for GK_TEXT_LINE bytes of each */
	u32 *pieces;           /* set to 1 then where a descriptor has MR_FLAG_MORE */
};

#endif
