// Package gateway is the L4 load balancer: it spreads TCP and UDP connections to service addresses
// over backends and translates addresses on the way there and back.
//
// A stack.Loop hands every batch to the Handler of that loop. A packet to a service address finds
// its connection in the loop's table, or starts one: Maglev names the backend, the port allocator a
// source port. The headers are rewritten in the frame, checksums incrementally (RFC 1624), and the
// packet goes to the link address of the next hop. Replies find the same connection by the key of
// the backend's side and go back to where the client's packets came from.
//
// A Handler shares nothing with other loops but immutable snapshots of the configuration, of the
// backends' health and of the next hops, swapped by an atomic pointer. Connections refer to
// backends by numbers that never change and are never used again, so a reload keeps every flow.
//
// The gateway terminates nothing: it holds no packets, sends none of its own but answers to ARP
// (RFC 826) and neighbour solicitations (RFC 4861), and keeps TCP state only as far as timeouts
// need it (RFC 5382). Packets that it does not serve are dropped by reason.
package gateway
