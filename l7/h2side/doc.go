// Package h2side is the sides of an exchange that speak HTTP/2 (RFC 9113): a client's connection, Front, and one to a backend, Back.
// Each drives an http2.Machine over a link. What its windows do not permit waits in the exchange.
package h2side
