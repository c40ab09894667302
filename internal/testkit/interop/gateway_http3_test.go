package interop

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	quicgoh3 "github.com/quic-go/quic-go/http3"

	"github.com/millrace/millrace/l7/proxy"
)

// http3Gateway serves HTTP/3 in front of a backend, which speaks it too if trusts is set.
func http3Gateway(t *testing.T, backend string, trusts *tls.Config) *testGateway {
	return newTestGateway(t, backend, func(g *testGateway) {
		g.secure.HTTP3 = &proxy.HTTP3Options{}
		if trusts != nil {
			g.pool.Protocol, g.pool.TLS = proxy.HTTP3, trusts
		}
	})
}

// http3Backends are addresses of foreign backends by name, with what a client trusts for those of HTTP/3.
func http3Backends(t *testing.T) map[string]struct {
	addr   string
	trusts *tls.Config
} {
	h1 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // net/http drops what it has not read once an answer begins
		r.Body = io.NopCloser(bytes.NewReader(b))
		h3Handler(w, r)
	}))
	t.Cleanup(h1.Close)
	server, client := certificate(t, "h3")
	return map[string]struct {
		addr   string
		trusts *tls.Config
	}{
		"net/http":        {strings.TrimPrefix(h1.URL, "http://"), nil},
		"quic-go":         {quicgoServer(t, server), client},
		"millrace, http3": {millraceServer(t, server), client},
	}
}

// TestQUICGoThroughGateway has quic-go's client of HTTP/3 get what backends of net/http and quic-go answer.
func TestQUICGoThroughGateway(t *testing.T) {
	for name, b := range http3Backends(t) {
		t.Run(name, func(t *testing.T) {
			g := http3Gateway(t, b.addr, b.trusts)
			tr := &quicgoh3.Transport{TLSClientConfig: g.client()}
			defer tr.Close() //nolint:errcheck // it is the end
			c := &http.Client{Transport: tr, Timeout: 60 * time.Second}
			url := "https://" + g.secure.Address.String()
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for j := range 10 {
						sent := bytes.Repeat([]byte{byte(i), byte(j)}, 1<<(i+j))
						resp, err := c.Post(url+"/echo", "text/plain", bytes.NewReader(sent))
						if err != nil {
							t.Error(err)
							return
						}
						got, err := io.ReadAll(resp.Body)
						_ = resp.Body.Close()
						if err != nil || !bytes.Equal(got, sent) || resp.Trailer.Get("X-Trailer") != "end" {
							t.Errorf("%d of %d bytes, trailers %v, %v", len(got), len(sent), resp.Trailer, err)
						}
					}
				})
			}
			all.Wait()
			resp, err := c.Get(url + "/large")
			g.must(err)
			if n, err := io.Copy(io.Discard, resp.Body); n != 1<<20 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
			g.settled()
		})
	}
}

// TestAioquicThroughGateway has aioquic, whose QPACK is ls-qpack with the dynamic table, as client and as backend.
func TestAioquicThroughGateway(t *testing.T) {
	python := aioquicPython(t)
	for name, b := range http3Backends(t) {
		t.Run("client, "+name, func(t *testing.T) {
			g := http3Gateway(t, b.addr, b.trusts)
			out, err := exec.Command(python, "testdata/aioquic_h3.py", "client", fmt.Sprint(g.secure.Address.Port()), "20", g.secure.Address.Addr().String()).CombinedOutput()
			if err != nil || !bytes.HasSuffix(out, []byte("ok\n")) {
				t.Errorf("%v\n%s", err, out)
			}
			g.settled()
		})
	}
	t.Run("backend", func(t *testing.T) {
		server, client := certificate(t, "h3")
		cert, key := writePEM(t, server)
		g := http3Gateway(t, net.JoinHostPort("127.0.0.1", startAioquicScript(t, python, "testdata/aioquic_h3.py", cert, key)), client)
		for i := range 20 {
			sent := strings.Repeat("z", i*3000)
			resp, err := http.Post("http://"+g.plain.Address.String()+"/", "text/plain", strings.NewReader(sent))
			g.must(err)
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || string(got) != sent || resp.Header.Get("X-Method") != "POST" {
				t.Fatalf("%d bytes of %d, %v, %v", len(got), len(sent), err, resp.Header)
			}
		}
		g.settled()
	})
}
