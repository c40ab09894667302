// Package rewrite is what a gateway changes in the messages that it passes on, and what it reads in them to choose a backend.
//
//	Headers        fields that a rule sets, adds and removes
//	PathModifier   paths that a rule replaces, Rewrite, and Redirect, which answers with another URL
//	Forwarding     Forwarded, X-Forwarded-For, -Proto and -Host, and Via; the address of a client behind other proxies
//	Key            what consistent hashing keeps together
//	Sticky         the cookie of a session
//	Attempt        which requests may be sent again
//
// Filters are those of Gateway API's HTTPRoute, with its names. The package is logic alone: it reads and changes lists of
// fields and appends texts to buffers of the caller, so that nothing is allocated for a request. Strings that it returns may be
// views of these buffers: they are valid until the caller writes to the buffer again. Names of fields are in lower case, paths
// are normalised (semantics.NormalizePath), and values of the configuration have been checked: the package does not
// validate.
//
// RFCs: 9110 (7.6.3 Via, 9.2.2 idempotent methods, 10.2.2 Location), 7239 (Forwarded), 6265 (cookies).
package rewrite
