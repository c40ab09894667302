// Package acme obtains and renews the certificates of a tls.Store by ACME (RFC 8555).
//
// A Manager keeps one account, and one certificate for each set of names that it manages. It proves
// control of the names over HTTP (http-01, by HTTPHandler, on port 80) and over TLS (tls-alpn-01, by
// Attach, on port 443); wildcards would need DNS and are refused. It renews when the authority says
// so (ARI), otherwise after two thirds of a certificate's life, and waits longer after each failure.
// Keys, certificates and what failed are files in a folder, so that a restart orders nothing anew.
//
// The Manager has no goroutine until Run. Nothing is sent but to the authority.
//
// RFCs: 8555 (ACME), 8737 (tls-alpn-01), 8738 (IP addresses), 9773 (renewal information).
package acme
