// Package transport is the stream connections of a proxy, driven by one event loop.
//
// A Loop has two implementations: EpollLoop over the kernel's sockets, and StackLoop over the userspace stack. The
// proxy does not know which one it has. Connections never block: a call that cannot go on returns ErrAgain, and the
// handler of the connection is called once it can.
//
// The package moves bytes. TLS, buffers and timers of connections are the proxy's.
//
// Nothing here is safe for concurrent use but Loop.Do. All calls of handlers come from the loop, and all calls of methods
// belong into handlers and functions for Do; the loop calls one of these at a time.
package transport

import (
	"errors"
	"net/netip"

	"github.com/millrace/millrace/clock"
)

// Errors of connections. The others are errno values: unix.ECONNREFUSED, ECONNRESET, ETIMEDOUT, EHOSTUNREACH ...
var (
	ErrAgain  = errors.New("transport: not ready")
	ErrClosed = errors.New("transport: closed")
)

// Events defines what a connection is ready for. They are edges: a handler that does not read until ErrAgain, or less than
// its buffer holds, must remember that there may be more. They may come without cause: Readable while nothing new has
// arrived, for example.
type Events uint8

// Values of Events.
const (
	Readable Events = 1 << iota // there is input, or its end
	Writable                    // the connection takes more, or it has been established
	Failed                      // the connection has ended by an error, see Conn.Err; Read returns what arrived before
)

// Handler receives the events of a connection.
type Handler interface {
	// Ready reports that the connection c has become ready. It may close c.
	Ready(c Conn, ev Events)
}

// Conn is a stream connection of one loop.
type Conn interface {
	// Read copies what has arrived to p. The error is ErrAgain where there is nothing, io.EOF at the end of the input.
	// After less than len(p) bytes there is no more until Ready(Readable).
	Read(p []byte) (int, error)
	// Write sends a part of p: all of it, or what the send buffer takes. With less than len(p) the error is nil or, for
	// nothing, ErrAgain; Ready(Writable) follows.
	Write(p []byte) (int, error)
	// Relay moves what has arrived to the output of dst, another connection of the loop, at most n bytes, without passing
	// it to the caller. in is as of Read, and nil if all n bytes were taken: there may be more. It may be ErrAgain with
	// the last bytes. out is ErrAgain while dst does not take all that was read: Ready(Writable) of dst follows, and
	// before anything else Relay is called again, with any n. Otherwise it is why dst has failed; then what was taken is
	// lost. The loop holds at most 48 KiB for a pair of connections.
	//
	// out is errors.ErrUnsupported, and nothing was taken, if dst is a connection of another kind.
	Relay(dst Conn, n int) (taken int, in, out error)
	// CloseWrite ends the output after what was written: the peer sees the end of the stream.
	CloseWrite() error
	// Close ends the connection after what was written is sent. The handler is not called again. Input that was not read,
	// or arrives later, makes it a reset, by which the peer may lose what it has not read yet: see Linger.
	Close()
	// Linger is Close for a connection whose peer may still be sending, as after the response to a request that was not
	// read to its end (RFC 9112 9.6). It ends the output, reads and discards the input until its end, for 5 seconds and
	// 16 MiB at most, and then closes. The handler is not called again, and the connection must not be used.
	Linger()
	// Abort ends the connection with a reset. The handler is not called again.
	Abort()
	// Err returns the error of a failed connection, and nil otherwise. It holds after Close, too.
	Err() error
	// SetHandler changes the handler. What was reported to the old one is not repeated.
	SetHandler(h Handler)
	// Local and Remote are the addresses of both ends. A Local that was not called before Close may be invalid.
	Local() netip.AddrPort
	Remote() netip.AddrPort
}

// LastWriter is a Conn whose last bytes can wait for the end of the output: both leave in one segment then, where they would in two.
// Package tcp does so by itself, since it sends after the batch.
type LastWriter interface {
	// WriteLast is Write of bytes behind which the caller ends the output, by CloseWrite, Close or Linger, before anything else. A
	// part that the send buffer does not take is written as by Write.
	WriteLast(p []byte) (int, error)
}

// FileSender is a Conn whose transport reads files itself.
type FileSender interface {
	// SendFile sends head and n bytes of a file from an offset, as one Write would do: all, or what the send buffer takes, which it
	// returns for each. The file has ended where head was sent, and nothing of the file without an error. It holds up the loop while
	// bytes that are not in the page cache come from the disk.
	SendFile(head []byte, file int, offset int64, n int) (ofHead, ofFile int, err error)
}

// Listener accepts connections on one address.
type Listener interface {
	// Addr is the address with the port, where Listen was given 0.
	Addr() netip.AddrPort
	// Close stops accepting. Connections that were accepted go on, and those that are complete are accepted first.
	// Handshakes under way are refused, unless the kernel moves them to the listeners of other loops
	// (net.ipv4.tcp_migrate_req).
	Close()
}

// Loop runs the connections of one thread.
type Loop interface {
	// Listen calls accept for each connection that comes in on a. Loops of one process share an address. accept may
	// close the connection, and returns its handler.
	Listen(a netip.AddrPort, accept func(c Conn) Handler) (Listener, error)
	// Dial opens a connection to remote. Ready(Writable) says that it is established, Ready(Failed) that it is not.
	Dial(remote netip.AddrPort, h Handler) (Conn, error)
	// DialUnix is Dial of a socket of this machine, by its path. Its ends have no addresses. errors.ErrUnsupported is of loops that
	// have none.
	DialUnix(path string, h Handler) (Conn, error)
	// Now is the time of the current events.
	Now() clock.Time
	// SetTick has f called after each batch of events, and at the time that it returned last. There the proxy runs its
	// timers and sends what the batch has produced.
	SetTick(f func(now clock.Time) (next clock.Time))
	// Do runs f on the loop soon. Any goroutine may call it. It reports false once the loop has ended; f does not run then.
	// What it has accepted runs, at the latest when the loop ends.
	Do(f func()) bool
}
