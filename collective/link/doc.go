// Package link carries messages between two ranks over connections. A message has a header and bytes, which go from the memory of
// the sender to that of the receiver without a buffer in between where that is possible.
//
// Single is a link over one connection, and Striped over several rails, of which all but one may fail.
//
// # Header
//
// Integers are little endian, because the payload is in the order of the machine, which is that on all machines served:
//
//	 0  kind          u8    data, acknowledgement, resend
//	 1  version       u8
//	 2  zero          u16
//	 4  context       u32   the communicator
//	 8  sequence      u32   of the operation in it
//	12  step          u32   of the message among those of the operation from this rank, or the tag of a single message
//	16  fingerprint   u32   of the operation's parameters
//	20  serial        u32   of the fragment on its rail
//	24  offset        u64   of the fragment in the message
//	32  length        u64   of the fragment, which follows
//	40  total         u64   of the message
package link
