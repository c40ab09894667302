// Package h1side is the sides of an exchange that speak HTTP/1.1 (RFC 9112): a client's connection, Front, and one to a backend,
// Back. Each drives an http1.Machine over a link, and is one stream after the other.
package h1side
