package shimtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/millrace/millrace/internal/testkit/stackpair"
	"github.com/millrace/millrace/shim"
	"github.com/millrace/millrace/socket"
)

// Ports of the peer's services (RFC 862, 863 and 864). Nothing listens at 1.
const (
	echoPort    = "7"
	discardPort = "9"
	sourcePort  = "19"
)

// serve starts the services of the peer.
func serve(s *socket.Stack) error {
	return errors.Join(
		serveTCP(s, echoPort, func(c net.Conn) { _, _ = io.Copy(c, struct{ io.Reader }{c}) }),
		serveTCP(s, discardPort, func(c net.Conn) { _, _ = io.Copy(io.Discard, struct{ io.Reader }{c}) }),
		serveTCP(s, sourcePort, func(c net.Conn) {
			for b := make([]byte, 16<<10); ; {
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}),
		serveUDP(s, echoPort))
}

func serveTCP(s *socket.Stack, port string, f func(net.Conn)) error {
	l, err := s.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				f(c)
				c.Close()
			}()
		}
	}()
	return nil
}

func serveUDP(s *socket.Stack, port string) error {
	c, err := s.ListenPacket("udp", ":"+port)
	if err != nil {
		return err
	}
	go func() {
		for b := make([]byte, 64<<10); ; {
			n, from, err := c.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = c.WriteTo(b[:n], from)
			}
		}
	}()
	return nil
}

// services is serve for a test.
func (b *bed) services() {
	b.t.Helper()
	if err := serve(b.B); err != nil {
		b.t.Fatal(err)
	}
}

// serveAsProcess is a node and its peer, until the standard input ends.
func serveAsProcess(path string) int {
	p, err := stackpair.New(1)
	if err == nil {
		err = serve(p.B)
	}
	if err == nil {
		_, err = shim.New(shim.Config{Stack: p.A, Path: path, Name: "stack"})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}
