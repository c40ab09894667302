/* A list of texts to search for literals: made by the header pass or by the host, read by gk_literals. */
#ifndef MILLRACE_GK_TEXT_H
#define MILLRACE_GK_TEXT_H

#include "gk.h"

/* A packet's text, or the piece of it that a descriptor has. */
struct gk_text {
	u32 off;  /* of the descriptor's first byte, from the start of the arena */
	u16 from; /* of the text's first byte, from there */
	u16 len;  /* 0 where there is none */
	u32 tail; /* what it goes on from: one more than the index in tails; 0 is nothing */
	u32 mark; /* of the host */
};

/* With its list the header pass leaves of each packet the line that it has read, since that has come over the
 * bus already: the GK_TEXT_LINE bytes from the sixteen on that the packet's first byte lies in. What stands
 * behind the sixteen with the packet's last byte means nothing. */
enum { GK_TEXT_LINE = 128 };

#endif
