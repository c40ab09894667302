package control

import (
	"context"
	ctls "crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/quic"
)

const sessionFile = `
listeners:
  - {name: secure, address: "SECURE", protocol: HTTPS, versions: ["3"], tls: {certificates: [{cert: "CERT"}]}}
routes:
  - name: r
    rules:
      - {name: wt, matches: [{path: {value: /wt}}], webtransport: {OPTIONS}, backend_refs: [{name: p}]}
      - {name: rest, backend_refs: [{name: p}]}
pools:
  - {name: p, protocol: H3, tls: {insecure: true}, backends: [{name: b, address: "BACKEND"}]}
`

// sessionGateway is a gateway with a rule for sessions, and a backend of package http3.
func sessionGateway(t *testing.T, options string, o http3.MachineOptions, each func(s *http3.Session, r *http.Request)) (r *running, dial func(path string, o http3.MachineOptions) (*http3.Session, *http.Response, error)) {
	t.Helper()
	secure, file, roots := secureFile(t)
	cert, err := ctls.LoadX509KeyPair(file, file)
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http3.Server{TLS: &ctls.Config{Certificates: []ctls.Certificate{cert}}, Machine: o, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != "CONNECT" {
			_, _ = io.WriteString(w, "content")
			return
		}
		s, err := http3.AcceptSession(w, req, &http3.AcceptOptions{CheckOrigin: func(*http.Request) bool { return true }})
		if err != nil {
			t.Logf("backend: %v", err)
			return
		}
		each(s, req)
	})}
	go func() { _ = server.Serve(pc) }()
	t.Cleanup(func() { _ = server.Close() })
	text := strings.NewReplacer("SECURE", secure, "CERT", file, "BACKEND", pc.LocalAddr().String(), "OPTIONS", options).Replace(sessionFile)
	r = serve(t, text)
	return r, func(path string, o http3.MachineOptions) (*http3.Session, *http.Response, error) {
		return dialSession(t, secure, path, roots, o)
	}
}

func dialSession(t *testing.T, addr, path string, roots *x509.CertPool, o http3.MachineOptions) (*http3.Session, *http.Response, error) {
	tr := &http3.Transport{TLS: &ctls.Config{RootCAs: roots, ServerName: "proxy.example"}, Machine: o, QUIC: &quic.Config{Datagrams: true, ResetAt: true}}
	t.Cleanup(func() { _ = tr.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	_, port, _ := net.SplitHostPort(addr)
	tr.Lookup = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	return tr.DialSession(ctx, "https://proxy.example:"+port+path, http.Header{"Origin": {"https://page.example"}})
}

func TestSessionEchoes(t *testing.T) {
	_, dial := sessionGateway(t, "", http3.MachineOptions{WebTransport: 4}, func(s *http3.Session, r *http.Request) {
		st, err := s.AcceptStream(r.Context())
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(st, st)
		_ = st.Close()
		<-s.Context().Done()
	})
	s, resp, err := dial("/wt", http3.MachineOptions{WebTransport: 1})
	if err != nil {
		t.Fatal(err, resp)
	}
	st, err := s.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Write([]byte("through the gateway")); err != nil {
		t.Fatal(err)
	}
	_ = st.Close()
	if got, err := io.ReadAll(st); err != nil || string(got) != "through the gateway" {
		t.Errorf("%q, %v", got, err)
	}
	_ = s.CloseWithError(7, "bye")
	<-s.Context().Done()
	if e := new(http3.SessionError); !errors.As(context.Cause(s.Context()), &e) {
		t.Error(context.Cause(s.Context()))
	}
}
