// Package cm is InfiniBand's communication manager: the messages by which two queue pairs exchange their numbers, and the
// state machine of a connection on either side.
//
// The messages are management datagrams (MADs) of 256 bytes, which queue pair 1 of each side carries as UD datagrams with the queue
// key 0x80010000:
//
//	active                    passive
//	  | ---------- REQ ----------> |   service, queue pair, first packet number, private data
//	  | <--------- MRA ----------- |   the program has not decided yet
//	  | <--------- REP ----------- |   queue pair, first packet number, private data
//	  | ---------- RTU ----------> |
//	  |            ...             |
//	  | ---------- DREQ ---------> |   by either side
//	  | <--------- DREP ---------- |
//
// REJ ends the exchange at any point before RTU. Services are found by a number; those of RDMA-CM contain a port, and the private data of
// REQ begins with the IP addresses (annex A11).
//
// The package is pure: time and datagrams come in as arguments, and datagrams and events go out by calls. A Manager belongs to
// one goroutine or loop. Package rdma runs one in each context.
//
// InfiniBand Architecture Specification 1, chapter 12 and 13.4; annex A11 (RDMA IP CM service).
package cm
