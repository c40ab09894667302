// Package ip is the network layer of a host: addresses, routes, neighbours, fragments, ICMP, groups.
//
// A host (stack/host) passes it each received packet that is not for TCP or UDP straight away, asks it
// for the way to a destination, and polls it for its timers. It knows nothing of sockets, and nothing
// of loops: each loop has a Node of its own.
//
// The package is pure: packets and times come in as arguments.
package ip
