// Package accesslog writes a line for each request that has ended: which fields, in which format, which
// of them where they are sampled, and to a file or to a syslog server (RFC 5424).
//
// Loops never wait for it. A Lines of each loop makes the text, a queue gathers lines and writes them
// from a goroutine of its own, and what does not fit the queue is dropped and counted.
package accesslog
