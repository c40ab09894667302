package proxy

import (
	"context"
	ctls "crypto/tls"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/proxyproto"
)

type seenKey struct{}

// headedConn is a connection whose header has been read.
type headedConn struct {
	net.Conn
	seen *seen
}

// contextOfConn gives handlers what the header of their connection said.
func contextOfConn(ctx context.Context, c net.Conn) context.Context {
	for {
		switch x := c.(type) {
		case *headedConn:
			return context.WithValue(ctx, seenKey{}, x.seen)
		case *ctls.Conn:
			c = x.NetConn()
		default:
			return ctx
		}
	}
}

// headedListener reads the header of each connection, and then serves TLS, if it has a config.
type headedListener struct {
	net.Listener
	t    *testing.T
	tls  *ctls.Config
	wrap func(h proxyproto.Header) *seen
}

func (l *headedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		h, ok := readHeader(l.t, c)
		if !ok {
			c.Close()
			continue
		}
		c = &headedConn{c, l.wrap(h)}
		if l.tls != nil {
			c = ctls.Server(c, l.tls)
		}
		return c, nil
	}
}

// readHeader reads a header and nothing behind it.
func readHeader(t *testing.T, c net.Conn) (proxyproto.Header, bool) {
	c.SetReadDeadline(time.Now().Add(time.Minute))
	defer c.SetReadDeadline(time.Time{})
	var all []byte
	for one := make([]byte, 1); ; {
		if _, err := c.Read(one); err != nil {
			t.Errorf("the header ends after %q: %v", all, err)
			return proxyproto.Header{}, false
		}
		all = append(all, one[0])
		h, n, err := proxyproto.Parse(all, 0)
		if err != nil {
			t.Errorf("header %q: %v", all, err)
			return h, false
		}
		if n > 0 {
			return h, true
		}
	}
}

// repoint gives the rig's pool another backend.
func (r *rig) repoint(addr string) {
	r.t.Helper()
	must(r.t, r.pool.Update(0, pool.Options{Name: "p"}, []pool.BackendOptions{{Name: "b", Address: netip.MustParseAddrPort(addr)}}))
}
