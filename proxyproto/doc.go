// Package proxyproto reads and writes the PROXY protocol, versions 1 and 2: the header by which a proxy tells a server
// whose connection it relays. The specification is HAProxy's proxy-protocol.txt, and sections named here are its.
//
// Parse takes what has come of a connection so far, Append makes what a proxy sends first. Neither does I/O, keeps
// state or allocates.
//
// A server must know by its configuration that a header comes, and from whom: whoever may send one chooses the address
// that the server believes (section 5). Which peers may do that is no matter of this package.
package proxyproto
