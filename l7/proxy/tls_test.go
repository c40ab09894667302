package proxy

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	ctls "crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/l7/cache"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/tls"
)

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	tls  ctls.Certificate
}

// issue makes a certificate, or with parent nil an authority.
func issue(t *testing.T, parent *authority, change func(c *x509.Certificate)) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	must(t, err)
	c := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	if change != nil {
		change(c)
	}
	by, signer := c, key
	if parent == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		by, signer = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, signer)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	a := &authority{leaf, key, ctls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}}
	if parent != nil {
		a.tls.Certificate = append(a.tls.Certificate, parent.tls.Certificate...)
	}
	return a
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// withNames gives a certificate names.
func withNames(names ...string) func(c *x509.Certificate) {
	return func(c *x509.Certificate) { c.DNSNames, c.Subject.CommonName = names, names[0] }
}

// fieldsBackend answers with the fields of requests that begin with a prefix.
func fieldsBackend(t *testing.T, prefixes ...string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for _, p := range prefixes {
			for _, v := range req.Header.Values(p) {
				fmt.Fprintf(w, "%s: %s\n", p, v)
			}
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// Rules see the fingerprint and the protocols of the hello, of TLS that ends at the gateway too, however it is cut.
func TestRulesSeeTheHello(t *testing.T) {
	config := func(r *rig) *ctls.Config {
		return &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test", NextProtos: []string{"http/1.1", "x"}, MaxVersion: ctls.VersionTLS12}
	}
	r := newRig(t, "127.0.0.1:1", func(r *rig) {
		table, err := route.New([]route.Rule{
			{Name: "ja4", Match: route.Match{JA4: []string{helloOf(t, config(r)).JA4()}}}, {Name: "alpn", Match: route.Match{ALPN: []string{"x"}}}, {Name: "other"},
		})
		must(t, err)
		for _, ln := range r.tree.Listeners {
			ln.Table, ln.Rules = table, nil
			for _, name := range []string{"ja4", "alpn", "other"} {
				ln.Rules = append(ln.Rules, &Rule{Name: name, Response: &Response{Status: 200, Body: []byte(name)}})
			}
		}
	})
	other := config(r)
	other.NextProtos = nil
	changed := config(r)
	changed.MaxVersion = ctls.VersionTLS13
	for _, c := range []struct {
		cutter
		config *ctls.Config
		want   string
	}{
		{cutter{}, config(r), "ja4"}, {cutter{piece: 1}, config(r), "ja4"}, {cutter{record: 50}, config(r), "ja4"}, {cutter{}, changed, "alpn"}, {cutter{}, other, "other"},
	} {
		conn, err := net.Dial("tcp", r.secure)
		must(t, err)
		c.Conn = conn
		s := ctls.Client(&c.cutter, c.config)
		s.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(s, "GET / HTTP/1.1\r\nHost: gateway.test\r\nConnection: close\r\n\r\n")
		if all, err := io.ReadAll(s); err != nil || !strings.HasSuffix(string(all), "\r\n\r\n"+c.want) {
			t.Errorf("%q %v, want %s", all, err, c.want)
		}
		s.Close()
	}
	r.do(func() {
		for l := range r.worker.fronts {
			if l.Watch != nil {
				t.Error("a hello is still awaited")
			}
		}
	})
}

// A request for a host that the certificate of the connection is not for is answered 421, and the connection goes on.
func TestMisdirectedRequests(t *testing.T) {
	root := issue(t, nil, nil)
	store := &tls.Store{}
	must(t, store.Set("ab", issue(t, root, withNames("a.test", "b.test", "*.w.test")).tls, true))
	must(t, store.Set("c", issue(t, root, withNames("c.test")).tls, false))
	for _, c := range []struct {
		name   string
		serves func(sni, host string) bool
		want   map[string]int
	}{
		{"certificate", store.Serves, map[string]int{"a.test": 200, "A.test:443": 200, "b.test": 200, "x.w.test": 200, "c.test": 421, "d.test": 421, "[::1]": 421}},
		{"name", SameName, map[string]int{"a.test": 200, "A.TEST": 200, "b.test": 421}},
		{"off", nil, map[string]int{"a.test": 200, "c.test": 200}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, echoBackend(t, false), func(r *rig) {
				ln := r.tree.Listeners[1]
				config, err := tls.NewServerConfig(tls.ServerOptions{Store: store, Protocols: []string{"h2", "http/1.1"}})
				must(t, err)
				ln.TLS, ln.Serves = config, c.serves
			})
			for _, h2 := range []bool{false, true} {
				client := r.client(h2)
				client.Transport.(*http.Transport).TLSClientConfig = &ctls.Config{RootCAs: root.pool(), ServerName: "a.test"}
				for range 2 {
					for host, want := range c.want {
						req, err := http.NewRequest("GET", "https://"+r.secure+"/", nil)
						must(t, err)
						req.Host = host
						resp, err := client.Do(req)
						must(t, err)
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
						if resp.StatusCode != want {
							t.Errorf("%s %s: %d, want %d", resp.Proto, host, resp.StatusCode, want)
						}
					}
				}
			}
			if n := r.worker.Stats().Connections; n != 2 {
				t.Errorf("%d connections: one ended by a 421", n)
			}
			resp, err := http.Get("http://" + r.addr) // without TLS nothing is misdirected
			must(t, err)
			resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Error(resp.Status)
			}
		})
	}
}

// Backends learn of the certificate that a client has shown, and nothing that it says about one itself.
func TestClientCertificates(t *testing.T) {
	root := issue(t, nil, func(c *x509.Certificate) { c.Subject.CommonName = "root" })
	middle := issue(t, root, func(c *x509.Certificate) {
		c.Subject.CommonName, c.IsCA, c.BasicConstraintsValid, c.KeyUsage = "middle", true, true, x509.KeyUsageCertSign
	})
	client := issue(t, middle, func(c *x509.Certificate) {
		c.Subject = pkix.Name{CommonName: `a "quoted", name`, Organization: []string{"O"}}
		c.DNSNames = []string{"one.test", "two.test"}
		c.URIs = []*url.URL{{Scheme: "spiffe", Host: "d", Path: "/w;x"}}
	})
	evil := issue(t, middle, func(c *x509.Certificate) { c.Subject.CommonName = "a\r\nX-Admin: 1" })
	names := []string{"Client-Cert", "Client-Cert-Chain", "X-Forwarded-Client-Cert", "X-Admin"}
	b64 := func(a *authority) string { return ":" + base64.StdEncoding.EncodeToString(a.cert.Raw) + ":" }
	hash := func(a *authority) string { sum := sha256.Sum256(a.cert.Raw); return hex.EncodeToString(sum[:]) }
	asPEM := func(list ...*authority) string {
		var all []byte
		for _, a := range list {
			all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})...)
		}
		return strings.ReplaceAll(url.QueryEscape(string(all)), "+", "%20")
	}
	xfcc := `;Subject="CN=a \\\"quoted\\\"\\, name,O=O";URI="spiffe://d/w;x";DNS=one.test;DNS=two.test`
	for _, c := range []struct {
		name  string
		style rewrite.ClientCert
		cert  *authority
		want  string
	}{
		{"RFC 9440, trusted", rewrite.ClientCert{Style: rewrite.CertRFC9440}, client, "Client-Cert: " + b64(client) + "\n"},
		{"none shown, trusted", rewrite.ClientCert{Style: rewrite.CertRFC9440}, nil, "Client-Cert: forged\nClient-Cert-Chain: forged\nX-Forwarded-Client-Cert: forged\n"},
		{"off", rewrite.ClientCert{}, client, ""},
		{"none shown", rewrite.ClientCert{Style: rewrite.CertRFC9440}, nil, ""},
		{"RFC 9440", rewrite.ClientCert{Style: rewrite.CertRFC9440}, client, "Client-Cert: " + b64(client) + "\n"},
		{"RFC 9440 with chain", rewrite.ClientCert{Style: rewrite.CertRFC9440, Chain: true}, client, "Client-Cert: " + b64(client) + "\nClient-Cert-Chain: " + b64(middle) + ", " + b64(root) + "\n"},
		{"XFCC", rewrite.ClientCert{Style: rewrite.CertXFCC}, client, "X-Forwarded-Client-Cert: Hash=" + hash(client) + xfcc + "\n"},
		{"XFCC with chain", rewrite.ClientCert{Style: rewrite.CertXFCC, Chain: true}, client, "X-Forwarded-Client-Cert: Hash=" + hash(client) + `;Cert="` + asPEM(client) + `";Chain="` + asPEM(client, middle, root) + `"` + xfcc + "\n"},
		{"a name with lines", rewrite.ClientCert{Style: rewrite.CertXFCC}, evil, "X-Forwarded-Client-Cert: Hash=" + hash(evil) + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, fieldsBackend(t, names...), func(r *rig) {
				ln := r.tree.Listeners[1]
				ln.TLS.ClientAuth, ln.TLS.ClientCAs = ctls.VerifyClientCertIfGiven, root.pool()
				ln.ClientCert = c.style
				if strings.HasSuffix(c.name, "trusted") {
					ln.Forwarding.Trusted = loopback
				}
			})
			config := &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test", ClientSessionCache: ctls.NewLRUClientSessionCache(4)}
			if c.cert != nil {
				config.Certificates = []ctls.Certificate{c.cert.tls}
			}
			for _, h2 := range []bool{false, true, false} { // the third resumes a session, which keeps the certificate
				tr := r.client(h2).Transport.(*http.Transport)
				tr.TLSClientConfig = config.Clone()
				tr.TLSClientConfig.NextProtos = nil
				req, err := http.NewRequest("GET", "https://"+r.secure, nil)
				must(t, err)
				for _, n := range names[:3] { // what the client says itself
					req.Header.Set(n, "forged")
				}
				resp, err := (&http.Client{Transport: tr, Timeout: 20 * time.Second}).Do(req)
				must(t, err)
				body, err := io.ReadAll(resp.Body)
				must(t, err)
				resp.Body.Close()
				if string(body) != c.want {
					t.Errorf("%s:\n%s\nwant\n%s", resp.Proto, body, c.want)
				}
				tr.CloseIdleConnections()
			}
			resp, err := http.Get("http://" + r.addr)
			must(t, err)
			resp.Body.Close()
		})
	}
	// A client without a certificate, where one is required, and one of another authority, are refused.
	r := newRig(t, fieldsBackend(t, names...), func(r *rig) {
		ln := r.tree.Listeners[1]
		ln.TLS.ClientAuth, ln.TLS.ClientCAs = ctls.RequireAndVerifyClientCert, root.pool()
	})
	for _, certs := range [][]ctls.Certificate{nil, {issue(t, issue(t, nil, nil), nil).tls}} {
		tr := r.client(false).Transport.(*http.Transport)
		tr.TLSClientConfig.Certificates = certs
		if resp, err := (&http.Client{Transport: tr}).Get("https://" + r.secure); err == nil {
			resp.Body.Close()
			t.Error("served without a good certificate")
		}
	}
	r.settled()
}

// What a client with a certificate gets is not stored for others, who may have none (RFC 9111 3.5).
func TestCertificatesAreCredentials(t *testing.T) {
	root := issue(t, nil, nil)
	var asked atomic.Int64
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Cache-Control", "max-age=9")
	}))
	t.Cleanup(back.Close)
	r := newRig(t, back.Listener.Addr().String(), func(r *rig) {
		ln := r.tree.Listeners[1]
		ln.TLS.ClientAuth, ln.TLS.ClientCAs = ctls.VerifyClientCertIfGiven, root.pool()
		store := cache.NewNamed("c", cache.Options{Memory: 1 << 20}, 1, time.Now)
		r.rule.Cache = &cache.Rule{Store: store, Policy: cache.Policy{MaxObject: 1 << 16}}
	})
	for i, certs := range [][]ctls.Certificate{{issue(t, root, nil).tls}, nil, nil} {
		tr := r.client(false).Transport.(*http.Transport)
		tr.TLSClientConfig.Certificates = certs
		resp, err := (&http.Client{Transport: tr}).Get("https://" + r.secure)
		must(t, err)
		resp.Body.Close()
		tr.CloseIdleConnections()
		if want := min(int64(i)+1, 2); asked.Load() != want {
			t.Errorf("%d requests after %d, want %d", asked.Load(), i+1, want)
		}
	}
	r.settled()
}

// tlsBackend is a backend with TLS that counts handshakes and resumptions.
func tlsBackend(t *testing.T, config *ctls.Config) (addr string, full, resumed *atomic.Int64) {
	full, resumed = new(atomic.Int64), new(atomic.Int64)
	config.VerifyConnection = func(cs ctls.ConnectionState) error {
		if cs.DidResume {
			resumed.Add(1)
		} else {
			full.Add(1)
		}
		return nil
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		peer := ""
		if len(req.TLS.PeerCertificates) > 0 {
			peer = req.TLS.PeerCertificates[0].Subject.CommonName
		}
		fmt.Fprintf(w, "%s %s %s %s", req.Proto, req.TLS.ServerName, req.TLS.NegotiatedProtocol, peer)
	}))
	s.TLS = config
	s.EnableHTTP2 = strings.Contains(strings.Join(config.NextProtos, " "), "h2")
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "https://"), full, resumed
}

// Backends are verified by name and authority, get SNI, ALPN and the certificate of the gateway, and sessions are resumed.
func TestTLSToBackends(t *testing.T) {
	root, foreign := issue(t, nil, nil), issue(t, nil, nil)
	server := issue(t, root, withNames("back.test"))
	client := issue(t, root, withNames("gateway"))
	for _, c := range []struct {
		name   string
		server *ctls.Config
		client *ctls.Config
		status int
		want   string
	}{
		{"h1", &ctls.Config{}, &ctls.Config{RootCAs: root.pool(), ServerName: "back.test"}, 200, "HTTP/1.1 back.test  "},
		{"h2", &ctls.Config{NextProtos: []string{"h2"}}, &ctls.Config{RootCAs: root.pool(), ServerName: "back.test", NextProtos: []string{"h2"}}, 200, "HTTP/2.0 back.test h2 "},
		{"h1 by ALPN", &ctls.Config{NextProtos: []string{"http/1.1"}}, &ctls.Config{RootCAs: root.pool(), ServerName: "back.test", NextProtos: []string{"h2", "http/1.1"}}, 200, "HTTP/1.1 back.test http/1.1 "},
		{"mTLS", &ctls.Config{ClientAuth: ctls.RequireAndVerifyClientCert, ClientCAs: root.pool()}, &ctls.Config{RootCAs: root.pool(), ServerName: "back.test", Certificates: []ctls.Certificate{client.tls}}, 200, "HTTP/1.1 back.test  gateway"},
		{"no certificate for mTLS", &ctls.Config{ClientAuth: ctls.RequireAndVerifyClientCert, ClientCAs: root.pool()}, &ctls.Config{RootCAs: root.pool(), ServerName: "back.test"}, 502, ""},
		{"another name", &ctls.Config{}, &ctls.Config{RootCAs: root.pool(), ServerName: "other.test"}, 502, "tls_"},
		{"another authority", &ctls.Config{}, &ctls.Config{RootCAs: foreign.pool(), ServerName: "back.test"}, 502, "tls_"},
		{"TLS 1.2", &ctls.Config{MaxVersion: ctls.VersionTLS12}, &ctls.Config{RootCAs: root.pool(), ServerName: "back.test"}, 200, "HTTP/1.1 back.test  "},
		{"no version in common", &ctls.Config{MaxVersion: ctls.VersionTLS12}, &ctls.Config{RootCAs: root.pool(), ServerName: "back.test", MinVersion: ctls.VersionTLS13}, 502, "tls_"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.server.Certificates = []ctls.Certificate{server.tls}
			addr, full, resumed := tlsBackend(t, c.server)
			c.client.ClientSessionCache = ctls.NewLRUClientSessionCache(16)
			r := newRig(t, addr, func(r *rig) {
				r.pool.TLS, r.pool.MaxUses = c.client, 1 // each request on a connection of its own
				if c.name == "h2" {
					r.pool.Protocol = HTTP2
				}
			})
			const requests = 3
			for range requests {
				resp, err := http.Get("http://" + r.addr)
				must(t, err)
				body, err := io.ReadAll(resp.Body)
				must(t, err)
				resp.Body.Close()
				if resp.StatusCode != c.status || c.status == 200 && string(body) != c.want || !strings.Contains(resp.Header.Get("Proxy-Status"), c.want) && c.status != 200 {
					t.Errorf("%d %q %q, want %d %q", resp.StatusCode, body, resp.Header.Get("Proxy-Status"), c.status, c.want)
				}
			}
			r.settled()
			if c.status == 200 && (full.Load() != 1 || resumed.Load() != requests-1) {
				t.Errorf("%d full handshakes and %d resumed sessions of %d connections", full.Load(), resumed.Load(), requests)
			}
		})
	}
}

// A session that one worker has begun is resumed by another one, with the same config, and with tickets of the same secret
// behind another config.
func TestSessionsAreSharedByWorkers(t *testing.T) {
	cert := issue(t, nil, withNames("gateway.test"))
	secret := bytes.Repeat([]byte("s"), tls.MinTicketSecret)
	configOf := func() *ctls.Config {
		keys, err := tls.NewTicketKeys(0, secret)
		must(t, err)
		store := &tls.Store{}
		must(t, store.Set("c", cert.tls, true))
		config, err := tls.NewServerConfig(tls.ServerOptions{Store: store, Tickets: keys, Protocols: []string{"http/1.1"}})
		must(t, err)
		return config
	}
	shared := configOf()
	var addrs []string
	for _, config := range []*ctls.Config{shared, shared, configOf()} {
		r := newRig(t, echoBackend(t, false), func(r *rig) { r.tree.Listeners[1].TLS = config })
		addrs = append(addrs, r.secure)
	}
	for _, version := range []uint16{ctls.VersionTLS12, ctls.VersionTLS13} {
		cache := ctls.NewLRUClientSessionCache(4)
		for i, addr := range addrs {
			c, err := ctls.Dial("tcp", addr, &ctls.Config{RootCAs: cert.pool(), ServerName: "gateway.test", MaxVersion: version, ClientSessionCache: cache})
			must(t, err)
			c.SetDeadline(time.Now().Add(time.Minute))
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: gateway.test\r\nConnection: close\r\n\r\n")
			if all, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 200") {
				t.Errorf("%q %v", all, err)
			}
			if got := c.ConnectionState().DidResume; got != (i > 0) {
				t.Errorf("%s, worker %d: resumed %v", ctls.VersionName(version), i, got)
			}
			c.Close()
		}
	}
}

// s_client shows its certificate, resumes its session, and is refused without one.
func TestOpenSSLClients(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	root := issue(t, nil, nil)
	client := issue(t, root, withNames("who"))
	r := newRig(t, fieldsBackend(t, "X-Forwarded-Client-Cert"), func(r *rig) {
		ln := r.tree.Listeners[1]
		ln.TLS.ClientAuth, ln.TLS.ClientCAs = ctls.RequireAndVerifyClientCert, root.pool()
		ln.ClientCert.Style = rewrite.CertXFCC
	})
	dir := t.TempDir()
	key, err := x509.MarshalECPrivateKey(client.key)
	must(t, err)
	must(t, os.WriteFile(dir+"/c.pem", append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: client.cert.Raw}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})...), 0o600))
	run := func(args ...string) string {
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
		defer stop()
		cmd := exec.CommandContext(ctx, openssl, append([]string{"s_client", "-connect", r.secure, "-servername", "gateway.test", "-ign_eof"}, args...)...)
		cmd.Stdin = strings.NewReader("GET / HTTP/1.1\r\nHost: gateway.test\r\nConnection: close\r\n\r\n")
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		session := dir + "/session" + version
		if out := run(version, "-cert", dir+"/c.pem", "-sess_out", session); !strings.Contains(out, `Subject="CN=who";DNS=who`) || !strings.Contains(out, "New, TLSv1") {
			t.Errorf("%s: %s", version, out)
		}
		if out := run(version, "-cert", dir+"/c.pem", "-sess_in", session); !strings.Contains(out, `Subject="CN=who";DNS=who`) || !strings.Contains(out, "Reused, TLSv1") {
			t.Errorf("%s resumed: %s", version, out)
		}
		if out := run(version); strings.Contains(out, "200 OK") || !strings.Contains(out, "alert") {
			t.Errorf("%s without a certificate: %s", version, out)
		}
	}
	r.settled()
}
