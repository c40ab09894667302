// Package link carries messages between two ranks over connections. A message has a header and bytes, which go from the memory of
// the sender to that of the receiver without a buffer in between where that is possible.
//
// Single is a link over one connection, and Striped over several rails, of which all but one may fail.
//
// # Header
//
// Integers are little endian, because the payload is in the order of the machine, which is that on all machines served:
//
//	 0  kind          u8    data, acknowledgement
//	 1  version       u8
//	 2  zero          u16
//	 4  fingerprint   u32   of the operation's parameters
//	 8  context       u64   the communicator; bit 63 is that of single messages
//	16  sequence      u32   of the operation in it
//	20  step          u32   of the message among those of the operation from this rank, or the tag of a single message
//	24  serial        u64   of the fragment on its rail
//	32  offset        u64   of the fragment in the message
//	40  length        u64   of the fragment, which follows
//	48  total         u64   of the message
package link
