// Package fcgiside is the side of an exchange that speaks FastCGI to a backend: Back. It drives a fastcgi.Machine over a link, and is one
// stream after the other, as h1side is.
package fcgiside
