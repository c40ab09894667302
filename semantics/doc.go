// Package semantics is what all versions of HTTP share: the control data and fields of a message, and the
// rules for their characters.
//
// Packages http1, http2 and http3 turn bytes into Messages and Messages into bytes, each in the syntax of its
// version. A gateway can so route and forward a request without knowing how it arrived: names are in lower
// case, there is one authority, and nothing of a connection is left among the fields.
//
// The package does not parse: it validates what a parser found. It has no goroutine, no lock and no clock, and
// allocates nothing.
//
// RFCs: 9110 (semantics), 9113 8 and 9114 4 (control data as pseudo-headers), 3986 (schemes).
package semantics
