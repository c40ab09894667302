// Package ip is the network layer of a host: addresses, routes, neighbours, fragments, ICMP and multicast groups.
//
// A host (stack/host) passes each received packet to FastPath. What that declines goes to Input, which answers ARP,
// neighbour discovery and ICMP itself, reassembles fragments, and returns datagrams for a transport. To send, the host
// calls Route for a path, which a connection then finds again by its Ref, and writes the headers with Path.Put or lets
// Send do so. Poll runs the timers. Frames leave by Config.Output.
//
// Each loop has a Node of its own. Several nodes on the same links are one host: the leader handles ARP, neighbour
// discovery and group membership for all, and Changes keep the followers equal.
//
// The package knows no sockets and no loops. It forwards nothing (RFC 1122 3.3.1: a host, not a router) and makes no
// decision by policy. It is pure: packets and times come in as arguments. What the gateway shares with a host are
// functions of a packet's bytes: ReadQuote, ErrorAllowed, ICMPMessage, RateLimiter.
//
// RFC 791, 792, 826, 1122, 1191, 2131 (in dhcp), 3376, 3810, 4191, 4443, 4861, 4862, 5227, 5722, 5927, 6724, 7217, 7559,
// 7739, 8106, 8200, 8201.
package ip
