// Package resolve finds the addresses of backends that a configuration names, by DNS, and follows their changes.
//
// A Client asks name servers for addresses (A, AAAA) and services (SRV) with their time to live, which the resolver of the
// standard library does not return. A Watcher asks again when that time is over, and keeps the last good answer where an answer
// fails. It does not cache for others, validate DNSSEC, or search domains: names are complete.
//
// RFC 1034, RFC 1035 (messages), RFC 2308 (negative answers), RFC 2782 (SRV), RFC 6761 (localhost), RFC 6891 (EDNS), RFC 7766 (TCP).
package resolve
