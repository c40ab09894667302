// Package webpeer has the two ends of suite gateway: a generator of HTTP requests and a backend that answers
// them. Between them is the proxy that is measured.
//
// Both are one thread on epoll, with the machines of packages http1, http2 and tls, so that neither costs more
// than a proxy does and the proxy decides the rate. The generator validates every response: its status, its
// length and its content, which is Content at both ends. It is no judge of protocols: wrk and h2load confirm
// its figures.
//
// Bytes come from kernel sockets and go to kernel sockets. Nothing here is for production: a connection that
// fails counts as an error and is opened again.
package webpeer
