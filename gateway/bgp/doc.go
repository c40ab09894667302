// Package bgp announces addresses to routers by BGP-4 (RFC 4271). It originates routes and uses none: what a router announces is
// parsed, counted and forgotten.
//
//	s := bgp.New(bgp.Config{AS: 64512, RouterID: id, Peers: peers}, bgp.Options{Log: log})
//	go s.Run(ctx)
//	s.Announce([]bgp.Route{{Prefix: vip}}) // replaces what was announced before
//
// The speaker dials each router from an address of the kernel, and listens nowhere: so there is no collision of connections to resolve
// (RFC 4271 6.8), and a routing daemon beside it may have port 179. A peer has one goroutine with its state machine, and one that
// reads. Memory for a peer does not depend on what the peer sends.
//
// Standards: RFC 4271; 4760 (IPv4 and IPv6), 6793 (AS numbers of four octets), 5492 (capabilities), 9072 (long optional parameters),
// 2918 (route refresh), 4724 (graceful restart), 8326 (graceful shutdown), 1997 and 8092 (communities), 4486, 8203 and 9003
// (why a session ends), 7606 (errors of attributes), 2385 (MD5), 5082 (TTL security), 6608 (errors of the state machine).
package bgp
