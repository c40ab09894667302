package role

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync"

	quicgoh3 "github.com/quic-go/quic-go/http3"
)

// openWebProxy plays the proxies of suite gateway that are libraries: httputil.ReverseProxy between -to and -backend, behind
// net/http, or with -as quic-go behind quic-go's HTTP/3.
func openWebProxy(o roleOptions) (roleWork, error) {
	runtime.GOMAXPROCS(1)
	var config *tls.Config
	if o.web.Cert != "" {
		pair, err := tls.LoadX509KeyPair(o.web.Cert, o.web.Key)
		if err != nil {
			return roleWork{}, err
		}
		config = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	}
	h := reverseProxies(o.web.Backend)
	var stop func() error
	var err error
	switch o.as {
	case "net/http":
		stop, err = serveNetHTTP(o.stream.To, h, config)
	case "millrace":
		runtime.GOMAXPROCS(o.loops + 1) // one beside those of the loops
		stop, err = serveMillrace(o, config)
	case "quic-go":
		stop, err = serveQUICGo(o.stream.To, h, config)
	default:
		err = fmt.Errorf("no proxy %q", o.as)
	}
	small := residentBytes("self")
	return profiled(o.profile, roleWork{
		version: buildVersions(),
		counts: func() (map[string]uint64, error) {
			return map[string]uint64{"rss": residentBytes("self"), RSSAtStart: small}, nil
		},
		stop: stop,
	}, err)
}

// reverseProxies forwards gRPC by HTTP/2 without TLS and all else by HTTP/1.1.
func reverseProxies(backend string) http.Handler {
	to := &url.URL{Scheme: "http", Host: backend}
	proxy := func(h2 bool) *httputil.ReverseProxy {
		t := &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true, Protocols: new(http.Protocols)}
		t.Protocols.SetHTTP1(!h2)
		t.Protocols.SetUnencryptedHTTP2(h2)
		return &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(to)
				r.Out.Host = r.In.Host
				r.SetXForwarded()
			},
			Transport: t, BufferPool: new(bufferPool), ErrorLog: log.New(io.Discard, "", 0),
		}
	}
	one, two := proxy(false), proxy(true)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			two.ServeHTTP(w, r)
			return
		}
		one.ServeHTTP(w, r)
	})
}

// bufferPool keeps the buffers of copies.
type bufferPool struct{ p sync.Pool }

func (b *bufferPool) Get() []byte {
	if v, ok := b.p.Get().(*[]byte); ok {
		return *v
	}
	return make([]byte, 32<<10)
}

func (b *bufferPool) Put(p []byte) { b.p.Put(&p) }

// serveNetHTTP serves HTTP/1.1 and HTTP/2, by ALPN or by prior knowledge.
func serveNetHTTP(at string, h http.Handler, config *tls.Config) (func() error, error) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, err
	}
	s := &http.Server{Handler: h, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() {
		if config != nil {
			_ = s.ServeTLS(l, "", "")
			return
		}
		_ = s.Serve(l)
	}()
	return s.Close, nil
}

// serveQUICGo serves HTTP/3.
func serveQUICGo(at string, h http.Handler, config *tls.Config) (func() error, error) {
	if config == nil {
		return nil, errors.New("HTTP/3 needs a certificate")
	}
	pc, err := net.ListenPacket("udp", at)
	if err != nil {
		return nil, err
	}
	s := &quicgoh3.Server{Handler: h, TLSConfig: quicgoh3.ConfigureTLSConfig(config)}
	go func() { _ = s.Serve(pc) }()
	return func() error { return errors.Join(s.Close(), pc.Close()) }, nil
}
