package role

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench/netpeer"
	"github.com/millrace/millrace/quic"
)

const (
	h3Parallel = 16 // requests at a time
	h3Batch    = 16 // requests of each goroutine in a step
	h3Small    = 100
	h3Large    = 1 << 20
	h3Port     = 443
)

// h3Sizes are the contents by -op.
var h3Sizes = map[string]int{"request": h3Small, "download": h3Large}

// h3Bench is a server and a client of one kind in this process, joined by loopback.
type h3Bench struct {
	size  int
	do    func(buf []byte) (int64, error) // one request; what came back
	close func()
}

// openHTTP3 plays the contestants of http3-request and http3-download: -as is who, or who over what, such as
// "millrace over millrace".
func openHTTP3(o roleOptions) (roleWork, error) {
	b := &h3Bench{size: h3Sizes[o.op]}
	runtime.GOMAXPROCS(1) // of the core that it has, as Go itself does
	who, over, _ := strings.Cut(o.as, " over ")
	p, err := netpeer.OpenPackets(cmp.Or(over, "kernel"))
	if err != nil {
		return roleWork{}, err
	}
	if who == "streams" {
		err = b.streams(p)
	} else {
		err = b.http(who, p)
	}
	if err != nil {
		return roleWork{}, err
	}
	return profiled(o.profile, b.work(), nil)
}

// work makes requests until the end.
func (b *h3Bench) work() roleWork {
	var requests, received atomic.Uint64
	return roleWork{
		version: buildVersions(),
		step:    func() error { return b.step(&requests, &received) },
		counts: func() (map[string]uint64, error) {
			return map[string]uint64{"requests": requests.Load(), "bytes": received.Load()}, nil
		},
		stop:  func() error { return nil },
		close: func() error { b.close(); return nil },
	}
}

// step makes requests side by side.
func (b *h3Bench) step(requests, received *atomic.Uint64) error {
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	batch := h3Batch
	if b.size == h3Large {
		batch = 1
	}
	for range h3Parallel {
		all.Go(func() {
			buf := make([]byte, 32<<10)
			for range batch {
				n, err := b.do(buf)
				if err == nil && n != int64(b.size) {
					err = fmt.Errorf("%d bytes, want %d", n, b.size)
				}
				if err != nil {
					failed.Store(&err)
					return
				}
				requests.Add(1)
				received.Add(uint64(n))
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// handler answers with the bytes of the measure.
func (b *h3Bench) handler() http.Handler {
	content := bytes.Repeat([]byte("x"), b.size)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(content)
	})
}

// roundTrips has requests made by a client of net/http.
func (b *h3Bench) roundTrips(rt http.RoundTripper, addr string) error {
	proto, err := http.NewRequest(http.MethodGet, "https://"+addr+"/", nil)
	if err != nil {
		return err
	}
	for _, f := range browserFields[4:] {
		proto.Header.Set(f.Name, f.Value)
	}
	b.do = func(buf []byte) (int64, error) {
		resp, err := rt.RoundTrip(proto)
		if err != nil {
			return 0, err
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, buf)
		return n, errors.Join(err, resp.Body.Close())
	}
	return nil
}

// h3TLS returns configurations of a server and a client that trusts it.
func h3TLS() (server, client *tls.Config, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(198, 18, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"h3"}},
		&tls.Config{RootCAs: roots, NextProtos: []string{"h3"}}, nil
}

// http opens a server and a client of -as who over the two conns.
func (b *h3Bench) http(who string, p *netpeer.PacketPair) error {
	server, client, err := h3TLS()
	if err != nil {
		return err
	}
	ends, found := h3Kinds[who]
	if !found {
		return fmt.Errorf("no HTTP/3 of %q", who)
	}
	stop, err := ends.serve(p.Server, b.handler(), server)
	if err != nil {
		return err
	}
	rt, hangUp, err := ends.dial(p.Client, client)
	if err != nil {
		return err
	}
	b.close = func() { hangUp(); stop(); _ = p.Close() }
	return b.roundTrips(rt, p.Server.LocalAddr().String())
}

// openHTTP3Serve serves downloads and small requests, as -op says, by -as over device -dev with address -to.
func openHTTP3Serve(o roleOptions) (roleWork, error) {
	n, kind, err := h3Host(&o)
	if err != nil {
		return roleWork{}, err
	}
	pc, err := netpeer.ListenPacket(n, h3Port)
	if err != nil {
		return roleWork{}, err
	}
	server, _, err := h3TLS()
	if err != nil {
		return roleWork{}, err
	}
	b := h3Bench{size: h3Sizes[o.op]}
	stop, err := kind.serve(pc, b.handler(), server)
	return profiled(o.profile, roleWork{
		version: buildVersions(),
		counts:  func() (map[string]uint64, error) { return withRuntime(map[string]uint64{}), nil },
		stop:    func() error { return nil },
		close:   func() error { stop(); return n.Close() },
	}, err)
}

// openHTTP3Load makes requests of the server at -to by -as.
func openHTTP3Load(o roleOptions) (roleWork, error) {
	to := net.JoinHostPort(o.stream.To, strconv.Itoa(h3Port))
	o.stream.To = "198.18.0.2/24"
	n, kind, err := h3Host(&o)
	if err != nil {
		return roleWork{}, err
	}
	pc, err := netpeer.ListenPacket(n, 0)
	if err != nil {
		return roleWork{}, err
	}
	rt, hangUp, err := kind.dial(pc, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h3"}})
	if err != nil {
		return roleWork{}, err
	}
	b := &h3Bench{size: h3Sizes[o.op], close: func() { hangUp(); _ = n.Close() }}
	return profiled(o.profile, b.work(), b.roundTrips(rt, to))
}

// h3Host opens the stack of -as, "who over stack".
func h3Host(o *roleOptions) (netpeer.Net, h3Kind, error) {
	runtime.GOMAXPROCS(1)
	who, over, _ := strings.Cut(o.as, " over ")
	kind, found := h3Kinds[who]
	if !found {
		return nil, kind, fmt.Errorf("no HTTP/3 of %q", who)
	}
	stack := *o
	stack.as = over
	n, err := openStack(stack)
	return n, kind, err
}

// streams has no HTTP: a request of 40 bytes on a stream of package quic, and the answer.
func (b *h3Bench) streams(p *netpeer.PacketPair) error {
	server, client, err := h3TLS()
	if err != nil {
		return err
	}
	var ends [2]*quic.Transport
	for i, pc := range []net.PacketConn{p.Server, p.Client} {
		if ends[i], err = netpeer.QUICTransport(pc, true); err != nil {
			return err
		}
	}
	l, err := ends[0].Listen(server, nil)
	if err != nil {
		return err
	}
	content := bytes.Repeat([]byte("x"), b.size)
	go serveStreams(l, content)
	ctx := context.Background()
	conn, err := ends[1].Dial(ctx, ends[0].LocalAddr(), client, nil)
	if err != nil {
		return err
	}
	b.close = func() { _ = ends[1].Close(); _ = ends[0].Close(); _ = p.Close() }
	b.do = func(buf []byte) (int64, error) {
		s, err := conn.OpenStream(ctx)
		if err != nil {
			return 0, err
		}
		if _, err := s.Write(content[:40]); err != nil {
			return 0, err
		}
		_ = s.Close()
		return io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{s}, buf)
	}
	return nil
}

func serveStreams(l *quic.Listener, content []byte) {
	ctx := context.Background()
	conn, err := l.Accept(ctx)
	for err == nil {
		var s *quic.Stream
		if s, err = conn.AcceptStream(ctx); err == nil {
			go func() {
				b := make([]byte, 100)
				for {
					if _, err := s.Read(b); err != nil {
						break
					}
				}
				_, _ = s.Write(content)
				_ = s.Close()
			}()
		}
	}
}
