// Package h3side is the sides of an exchange that speak HTTP/3 (RFC 9114): a client's connection, Front, and one to a
// backend, Back. Each drives an http3.Machine over the streams of package quicconn. Responses are sent by their
// priorities (RFC 9218).
package h3side
