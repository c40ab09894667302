package control

import (
	ctls "crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/config"
)

// A client that offers HTTP/1.0 alone, as some tools do, gets a connection; one that offers more gets the best.
func TestListenersAgreeOnOldProtocols(t *testing.T) {
	dir := t.TempDir()
	clientPair(t, filepath.Join(dir, "site.pem"), x509.Certificate{DNSNames: []string{"site.test"}})
	path := filepath.Join(dir, "gateway.yaml")
	if err := os.WriteFile(path, []byte(`
listeners: [{name: web, address: "198.18.0.1:443", protocol: HTTPS, tls: {certificates: [{cert: site.pem}]}}]
routes: [{name: r, rules: [{filters: [{type: FixedResponse}]}]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	served, err := (&Set{}).planTLS(&plan{cfg: cfg}, &cfg.Listeners[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		offers []string
		want   string
	}{
		{[]string{"http/1.0"}, "http/1.0"}, {[]string{"http/1.0", "http/1.1"}, "http/1.1"}, {[]string{"http/1.0", "h2"}, "h2"}, {nil, ""},
	} {
		here, there := net.Pipe()
		if err := here.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, ctls.Server(there, served.config)) }()
		conn := ctls.Client(here, &ctls.Config{InsecureSkipVerify: true, NextProtos: c.offers})
		err := conn.Handshake()
		if got := conn.ConnectionState().NegotiatedProtocol; err != nil || got != c.want {
			t.Errorf("offers %v: %q, %v; want %q", c.offers, got, err, c.want)
		}
		here.Close()
		there.Close()
	}
}
