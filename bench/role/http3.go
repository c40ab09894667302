package role

import (
	"bytes"
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
	"sync"
	"sync/atomic"
	"time"

	quicgo "github.com/quic-go/quic-go"
	quicgoh3 "github.com/quic-go/quic-go/http3"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/quic"
)

const (
	h3Parallel = 16 // requests at a time
	h3Batch    = 16 // requests of each goroutine in a step
	h3Small    = 100
	h3Large    = 1 << 20
)

// h3Bench is a server and a client of one kind in this process, joined by loopback.
type h3Bench struct {
	size  int
	do    func(buf []byte) (int64, error) // one request; what came back
	close func()
}

// openHTTP3 plays the contestants of http3-request and http3-download.
func openHTTP3(o roleOptions) (roleWork, error) {
	b := &h3Bench{size: h3Small}
	if o.op == "download" {
		b.size = h3Large
	}
	open := map[string]func() error{"millrace": b.millrace, "quic-go": b.quicGo, "streams": b.streams}[o.as]
	if open == nil {
		return roleWork{}, fmt.Errorf("no contestant %q", o.as)
	}
	if err := open(); err != nil {
		return roleWork{}, err
	}
	var requests, received atomic.Uint64
	w := roleWork{
		version: harness.ModuleVersion("github.com/quic-go/quic-go"),
		step:    func() error { return b.step(&requests, &received) },
		counts: func() (map[string]uint64, error) {
			return map[string]uint64{"requests": requests.Load(), "bytes": received.Load()}, nil
		},
		stop:  func() error { return nil },
		close: func() error { b.close(); return nil },
	}
	if o.as == "millrace" {
		w.version = runtime.Version()
	}
	return profiled(o.profile, w, nil)
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

func h3Socket() (*net.UDPConn, error) {
	return net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
}

// h3TLS returns configurations of a server and a client that trusts it.
func h3TLS() (server, client *tls.Config, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
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

func (b *h3Bench) millrace() error {
	server, client, err := h3TLS()
	if err != nil {
		return err
	}
	pc, err := h3Socket()
	if err != nil {
		return err
	}
	s := &http3.Server{Handler: b.handler(), TLS: server}
	go func() { _ = s.Serve(pc) }()
	rt := &http3.Transport{TLS: client, DisableCompression: true}
	b.close = func() { _ = rt.Close(); _ = s.Close() }
	return b.roundTrips(rt, pc.LocalAddr().String())
}

func (b *h3Bench) quicGo() error {
	server, client, err := h3TLS()
	if err != nil {
		return err
	}
	pc, err := h3Socket()
	if err != nil {
		return err
	}
	s := &quicgoh3.Server{Handler: b.handler(), TLSConfig: server}
	go func() { _ = s.Serve(pc) }()
	rt := &quicgoh3.Transport{TLSClientConfig: client, DisableCompression: true, QUICConfig: &quicgo.Config{}}
	b.close = func() { _ = rt.Close(); _ = s.Close(); _ = pc.Close() }
	return b.roundTrips(rt, pc.LocalAddr().String())
}

// streams has no HTTP: a request of 40 bytes on a stream of package quic, and the answer.
func (b *h3Bench) streams() error {
	server, client, err := h3TLS()
	if err != nil {
		return err
	}
	var ends [2]*quic.Transport
	for i := range ends {
		pc, err := h3Socket()
		if err != nil {
			return err
		}
		if ends[i], err = quic.NewTransport(pc, quic.TransportConfig{}); err != nil {
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
	b.close = func() { _ = ends[1].Close(); _ = ends[0].Close() }
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
