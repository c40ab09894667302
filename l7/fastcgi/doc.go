// Package fastcgi speaks FastCGI 1.0 as a web server does, in the role of a responder: it encodes requests as records, decodes the
// records of responses, reads the CGI header at the begin of a response (RFC 3875 6), makes the variables of a request (RFC 3875 4.1),
// and finds the script that a path names.
//
// A connection carries one request at a time, whose id is ID. Servers such as php-fpm do not multiplex.
//
// The package is pure: no connection, file or clock. What a Machine returns lies in the caller's buffer.
package fastcgi
