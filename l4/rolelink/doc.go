// Package rolelink runs the role of a gateway (package role): it exchanges its messages with the peer by UDP, over one or several
// networks, and asks the hosts of links whether one answers for an address, by ARP probes and neighbour solicitations
// without a sender's address (RFC 5227 2.1, RFC 4862 5.4.2). See docs/design/068-two-gateways.md.
package rolelink
