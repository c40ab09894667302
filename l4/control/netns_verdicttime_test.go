package control_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/quic"
)

// requestDefence has a listener whose requests are inspected, and whose clients are dropped by what is found.
const requestDefence = `
listeners:
  - {name: l7, address: "198.18.0.1:8090", protocol: HTTP}
  - {name: safe, address: "198.18.0.1:8443", protocol: HTTPS, versions: ["1.1", "2", "3"], tls: {certificates: [{cert: %s/gateway.pem}]}}
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, backends: [{address: "198.18.3.2:8080"}]}]
inspection: {policies: [{name: p, mode: prevent, listeners: [l7, safe], rules: [drop.rules]}]}
`

// requestRule is the rule that requests match, and requestVerdict what the defence calls it.
const (
	requestRule    = `drop http any any -> any any (msg:"x"; http.uri; content:"/attack"; sid:7;)` + "\n"
	requestVerdict = "inspection 1:7"
)

// connect opens a TCP connection of a source to the listener.
func (d *defended) connect(source string, wait time.Duration) (c net.Conn, err error) {
	d.must(d.client.Do(func() error {
		c, err = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: wait}).Dial("tcp", "198.18.0.1:8090")
		return nil
	}))
	return c, err
}

// Each of a hundred clients is in the table of XDP when its 403 comes: the SYN that it sends then, and the next a second
// later, are dropped. So the time from its request to its 403, which is logged, is no less than that from the verdict to
// the table.
func TestInspectedRequestIsDroppedInXDPByItsAnswer(t *testing.T) {
	t.Parallel()
	d, _ := newRequestDefended(t, 100)
	d.dropAll(100, d.attack)
}

// The same over HTTP/3, whose connection is open before.
func TestInspectedHTTP3RequestIsDroppedInXDPByItsAnswer(t *testing.T) {
	t.Parallel()
	d, roots := newRequestDefended(t, 100)
	d.dropAll(100, func(source string) time.Duration { return d.attack3(source, roots) })
}

// newRequestDefended starts a gateway with listeners, and gives the client addresses of sources.
func newRequestDefended(t *testing.T, sources int) (*defended, *x509.CertPool) {
	t.Helper()
	dir := t.TempDir()
	front, roots := testcert.SelfSigned("gateway.test", net.ParseIP("198.18.0.1"))
	return newDefended(t, "afxdp", "drop", "1m", fmt.Sprintf(requestDefence, dir), func(d *defended) {
		d.must(writePair(filepath.Join(dir, "gateway.pem"), front))
		d.must(os.WriteFile(filepath.Join(filepath.Dir(d.file), "drop.rules"), []byte(requestRule), 0o644))
		b, err := os.ReadFile(d.file)
		d.must(err)
		d.must(os.WriteFile(d.file, []byte(strings.Replace(string(b), "  limits: {excess", "  inspection: {}\n  limits: {excess", 1)), 0o644))
		for i := range sources {
			d.must(d.client.Up("eth0", fmt.Sprintf("198.18.0.%d/24", 101+i)))
		}
	}), roots
}

// dropAll has each source attack, and expects that XDP drops it from its answer on.
func (d *defended) dropAll(clients int, attack func(source string) time.Duration) {
	d.t.Helper()
	var again sync.WaitGroup
	took := make([]time.Duration, clients)
	for i := range clients {
		source := fmt.Sprintf("198.18.0.%d", 101+i)
		took[i] = attack(source)
		again.Go(func() {
			if c, err := d.connect(source, 2500*time.Millisecond); err == nil {
				c.Close()
				d.t.Errorf("%s: the SYN after its 403 is answered", source)
			}
		})
	}
	again.Wait()
	slices.Sort(took)
	d.t.Logf("request to 403, %d clients: min %v, median %v, p99 %v, max %v", clients, took[0], took[clients/2], took[clients*99/100-1], took[clients-1])
	verdicts := map[string]string{}
	for _, v := range d.status().Verdicts {
		verdicts[v.Source.String()] = v.Rule
	}
	for i := range clients {
		if source := fmt.Sprintf("198.18.0.%d/32", 101+i); verdicts[source] != requestVerdict {
			d.t.Errorf("%s has the verdict %q", source, verdicts[source])
		}
	}
	// Two SYNs of each, besides what its first connection still sends.
	if n := d.dropped(requestVerdict); n < uint64(2*clients) {
		d.t.Errorf("XDP has counted %d packets", n)
	}
	c, err := d.connect("198.18.0.5", 5*time.Second)
	if err != nil {
		d.t.Fatalf("another client: %v", err)
	}
	c.Close()
}

// attack3 is attack over HTTP/3.
func (d *defended) attack3(source string, roots *x509.CertPool) time.Duration {
	d.t.Helper()
	s := site3{d.site, roots}
	tr := &http3.Transport{
		TLS: &tls.Config{RootCAs: roots, ServerName: "gateway.test"},
		Dial: func(ctx context.Context, to string, tc *tls.Config, c *quic.Config) (*quic.Conn, error) {
			return s.transport(source+":0").Dial(ctx, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)), tc, c)
		},
	}
	d.t.Cleanup(func() { _ = tr.Close() })
	c := &http.Client{Transport: tr, Timeout: 10 * time.Second}
	get := func(path string, status int) {
		resp, err := c.Get("https://198.18.0.1:8443" + path)
		d.must(err)
		resp.Body.Close()
		if resp.StatusCode != status || resp.ProtoMajor != 3 {
			d.t.Fatalf("%s: %s is answered %s %s", source, path, resp.Proto, resp.Status)
		}
	}
	get("/", 200)
	begun := time.Now()
	get("/attack", 403)
	return time.Since(begun)
}

// attack sends a request that the rule matches, and returns the time until its answer, which is 403.
func (d *defended) attack(source string) time.Duration {
	d.t.Helper()
	c, err := d.connect(source, 5*time.Second)
	d.must(err)
	d.t.Cleanup(func() { c.Close() })
	d.must(c.SetDeadline(time.Now().Add(10 * time.Second)))
	begun := time.Now()
	_, err = c.Write([]byte("GET /attack HTTP/1.1\r\nHost: a\r\n\r\n"))
	d.must(err)
	b := make([]byte, 512)
	n, err := c.Read(b)
	took := time.Since(begun)
	if err != nil || !strings.HasPrefix(string(b[:n]), "HTTP/1.1 403") {
		d.t.Fatalf("%s: the answer is %q, %v", source, b[:n], err)
	}
	return took
}
