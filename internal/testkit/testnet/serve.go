package testnet

import (
	"errors"
	"io"
	"net"
	"testing"
)

// ServeTCP listens on an address of the namespace that it is called in, and has serve called with each connection on a
// goroutine of its own. It closes the connection then, and the listener when the test ends.
func ServeTCP(t testing.TB, addr string, serve func(net.Conn)) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				t.Errorf("%s accepts no more connections: %v", addr, err)
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return nil
}

// Echo sends back what a connection receives until it ends. It copies itself: [io.Copy] between sockets of the kernel
// holds a pipe, two open files more, for as long as a connection is quiet.
func Echo(c net.Conn) {
	type (
		onlyReader struct{ io.Reader }
		onlyWriter struct{ io.Writer }
	)
	io.CopyBuffer(onlyWriter{c}, onlyReader{c}, make([]byte, 4096))
}
