package interop

import (
	"bufio"
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	stdtls "crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"

	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/tls"
)

// tlsWorld is a CA, an OCSP responder, and a server of ours with all that package tls has.
type tlsWorld struct {
	dir    string
	root   *x509.Certificate
	key    crypto.Signer
	store  *tls.Store
	ech    *tls.ECHKeys
	leaves map[string]stdtls.Certificate // by kind of key
	client stdtls.Certificate
}

var tlsSerial atomic.Int64

// path returns the path of a file of the world.
func (w *tlsWorld) path(name string) string { return filepath.Join(w.dir, name) }

func (w *tlsWorld) write(t testing.TB, name, kind string, der ...[]byte) {
	t.Helper()
	var b []byte
	for _, d := range der {
		b = append(b, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: d})...)
	}
	if err := os.WriteFile(w.path(name), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// issue makes a certificate and writes NAME.pem and NAME.key.
func (w *tlsWorld) issue(t testing.TB, name string, key crypto.Signer, template x509.Certificate) stdtls.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(100 + tlsSerial.Add(1))
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	template.Subject = pkix.Name{CommonName: name}
	parent, signer := w.root, w.key
	if parent == nil {
		parent, signer = &template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := stdtls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	if w.root != nil {
		c.Certificate = append(c.Certificate, w.root.Raw)
	}
	w.write(t, name+".pem", "CERTIFICATE", c.Certificate...)
	w.write(t, name+".key", "PRIVATE KEY", pkcs8)
	return c
}

func p256(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newTLSWorld makes the certificates; those of the server are stapled.
func newTLSWorld(t testing.TB) *tlsWorld {
	t.Helper()
	w := &tlsWorld{dir: t.TempDir(), store: &tls.Store{}, leaves: map[string]stdtls.Certificate{}, key: p256(t)}
	ca := w.issue(t, "ca", w.key, x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature})
	w.root = ca.Leaf
	responder := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		q, err := ocsp.ParseRequest(b)
		if err != nil {
			t.Error(err)
			return
		}
		answer, err := ocsp.CreateResponse(w.root, w.root, ocsp.Response{Status: ocsp.Good, SerialNumber: q.SerialNumber, ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour)}, w.key)
		if err != nil {
			t.Error(err)
		}
		_, _ = rw.Write(answer)
	}))
	t.Cleanup(responder.Close)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	server := x509.Certificate{DNSNames: []string{"a.example", "*.a.example"}, OCSPServer: []string{responder.URL}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for kind, key := range map[string]crypto.Signer{"ecdsa": p256(t), "rsa": rsaKey} {
		w.leaves[kind] = w.issue(t, kind, key, server)
		if err := w.store.Set(kind, w.leaves[kind], true); err != nil {
			t.Fatal(err)
		}
	}
	w.client = w.issue(t, "client", p256(t), x509.Certificate{DNSNames: []string{"c.example"}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	stapler := &tls.Stapler{Store: w.store, Report: func(id string, err error) { t.Errorf("%s: %v", id, err) }}
	stapler.Refresh(t.Context())
	if w.ech, err = tls.LoadECHKeys(w.path("ech")); err != nil {
		t.Fatal(err)
	}
	if err := w.ech.Rotate("public.a.example", 2); err != nil {
		t.Fatal(err)
	}
	return w
}

// config returns a server's config; instances of the world share tickets.
func (w *tlsWorld) config(t testing.TB, auth *tls.ClientAuth) *stdtls.Config {
	t.Helper()
	tickets, err := tls.NewTicketKeys(0, bytes.Repeat([]byte{5}, 32))
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.NewServerConfig(tls.ServerOptions{Store: w.store, Protocols: []string{"h2", "http/1.1"}, Tickets: tickets, ECH: w.ech, ClientAuth: auth})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serveTLS serves HTTP, which says what was negotiated, and returns the port on 127.0.0.1. With
// onStack the server's connections are those of a socket.Stack, to which a relay copies what clients
// of the kernel send.
func serveTLS(t *testing.T, config *stdtls.Config, onStack bool) (port string) {
	t.Helper()
	kernel := listen(t)
	l := net.Listener(kernel)
	if onStack {
		l = relayToStack(t, kernel)
	}
	s := &http.Server{TLSConfig: config, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprintf(w, "version=%#x group=%v name=%s resumed=%v ech=%v clients=%d proto=%s\n", r.TLS.Version, r.TLS.CurveID, r.TLS.ServerName,
			r.TLS.DidResume, r.TLS.ECHAccepted, len(r.TLS.VerifiedChains), r.TLS.NegotiatedProtocol)
	}), ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = s.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = s.Close() })
	return fmt.Sprint(kernel.Addr().(*net.TCPAddr).Port)
}

// relayToStack returns a listener of one of two stacks in this process. The other one dials it for
// each connection to l.
func relayToStack(t *testing.T, l net.Listener) net.Listener {
	t.Helper()
	server, client, err := socket.Pair(netip.MustParsePrefix("198.18.0.1/24"), netip.MustParsePrefix("198.18.0.2/24"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close(); _ = client.Close() })
	inside, err := server.Listen("tcp", "198.18.0.1:443")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			outer, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer outer.Close()
				inner, err := client.DialContext(context.Background(), "tcp", "198.18.0.1:443")
				if err != nil {
					return
				}
				defer inner.Close()
				go func() {
					_, _ = io.Copy(inner, outer)
					_ = inner.(interface{ CloseWrite() error }).CloseWrite()
				}()
				_, _ = io.Copy(outer, inner)
			}()
		}
	}()
	return inside
}

// program runs a program that must be installed and returns what it prints, with its exit code.
func program(t *testing.T, stdin, name string, args ...string) (out string, code int) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("MILLRACE_MUST_NETNS") != "" {
			t.Fatalf("no %s: %v (make deps)", name, err)
		}
		t.Skipf("no %s: %v (make deps)", name, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v\n%s", name, err, b)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// programUntil is program for one that does not end by itself: it is killed once its output has text.
func programUntil(t *testing.T, text, stdin, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stderr = io.Discard
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("%s: %v (make deps)", name, err)
	}
	var all strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&all, lines.Text())
		if strings.Contains(lines.Text(), text) {
			break
		}
	}
	cancel()
	_ = cmd.Wait()
	return all.String()
}

// wants reports what is missing in a program's output.
func wants(t *testing.T, what, out string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(out, p) {
			t.Errorf("%s: no %q in\n%s", what, p, out)
		}
	}
}

const request = "GET / HTTP/1.0\r\nHost: www.a.example\r\n\r\n"

// TestTLSServerWithOtherClients connects programs to our server, over the kernel's TCP and over ours.
func TestTLSServerWithOtherClients(t *testing.T) {
	w := newTLSWorld(t)
	ca := w.path("ca.pem")
	for _, onStack := range []bool{false, true} {
		name := map[bool]string{false: "kernel", true: "stack"}[onStack]
		t.Run(name, func(t *testing.T) {
			port := serveTLS(t, w.config(t, nil), onStack)
			other := serveTLS(t, w.config(t, nil), onStack)
			t.Run("openssl", func(t *testing.T) {
				for _, v := range []string{"-tls1_2", "-tls1_3"} {
					session := w.path(name + v)
					base := []string{"s_client", v, "-CAfile", ca, "-verify_return_error", "-servername", "www.a.example", "-ign_eof"}
					out, code := program(t, request, "openssl", append(base, "-connect", "127.0.0.1:"+port, "-status", "-alpn", "http/1.1", "-sess_out", session)...)
					wants(t, v, out, "OCSP Response Status: successful", "Cert Status: good", "Verify return code: 0 (ok)", "ALPN protocol: http/1.1", "name=www.a.example resumed=false", "CN = ecdsa")
					if code != 0 {
						t.Errorf("%s: exit code %d", v, code)
					}
					out, _ = program(t, request, "openssl", append(base, "-connect", "127.0.0.1:"+other, "-sess_in", session)...) // the other instance
					wants(t, v, out, "Reused", "resumed=true")
					out, _ = program(t, request, "openssl", append(base, "-connect", "127.0.0.1:"+port, "-sigalgs", "RSA-PSS+SHA256")...)
					wants(t, v, out, "CN = rsa", "Verify return code: 0 (ok)")
				}
				for _, bad := range [][]string{{"-tls1_1", "-cipher", "ALL:@SECLEVEL=0"}, {"-tls1_2", "-cipher", "AES128-GCM-SHA256"}, {"-tls1_2", "-cipher", "ECDHE-RSA-AES128-SHA"}} {
					out, code := program(t, request, "openssl", append([]string{"s_client", "-connect", "127.0.0.1:" + port}, bad...)...)
					if code == 0 || !strings.Contains(out, "alert protocol version") && !strings.Contains(out, "alert handshake failure") {
						t.Errorf("%v: code %d\n%s", bad, code, out)
					}
				}
			})
			t.Run("gnutls", func(t *testing.T) {
				for _, v := range []string{"NORMAL:-VERS-ALL:+VERS-TLS1.2", "NORMAL:-VERS-ALL:+VERS-TLS1.3"} {
					out, code := program(t, request, "gnutls-cli", "--x509cafile", ca, "--sni-hostname", "www.a.example", "--verify-hostname", "www.a.example",
						"--ocsp", "--alpn", "http/1.1", "--priority", v, "--save-cert", w.path("saved.pem"), "-p", port, "127.0.0.1")
					wants(t, v, out, "Status: The certificate is trusted", "name=www.a.example", "proto=http/1.1")
					if code != 0 {
						t.Errorf("%s: code %d\n%s", v, code, out)
					}
				}
				out, code := program(t, request, "gnutls-cli", "--x509cafile", ca, "--sni-hostname", "www.a.example", "--verify-hostname", "b.example", "-p", port, "127.0.0.1")
				if code == 0 || !strings.Contains(out, "does not match the expected") {
					t.Errorf("wrong name: code %d\n%s", code, out)
				}
			})
			t.Run("curl", func(t *testing.T) {
				for flag, want := range map[string]string{"--http1.1": "proto=http/1.1", "--http2": "proto=h2", "--tls-max=1.2": "version=0x303"} {
					out, code := program(t, "", "curl", append([]string{"-sS", "--cacert", ca, "--cert-status", "--resolve", "www.a.example:" + port + ":127.0.0.1", "https://www.a.example:" + port + "/"}, strings.Split(flag, "=")...)...)
					if wants(t, flag, out, want); code != 0 {
						t.Errorf("%s: code %d", flag, code)
					}
				}
			})
			t.Run("NSS", func(t *testing.T) {
				db := "sql:" + t.TempDir()
				if out, code := program(t, "", "certutil", "-N", "--empty-password", "-d", db); code != 0 {
					t.Fatal(out)
				}
				if out, code := program(t, "", "certutil", "-A", "-n", "ca", "-t", "C,,", "-i", ca, "-d", db); code != 0 {
					t.Fatal(out)
				}
				list, err := w.ech.ConfigList()
				if err != nil {
					t.Fatal(err)
				}
				for ech, args := range map[bool][]string{false: nil, true: {"-N", base64.StdEncoding.EncodeToString(list)}} {
					out := programUntil(t, "proto=", request, "tstclnt", append([]string{"-h", "127.0.0.1", "-p", port, "-a", "www.a.example", "-d", db, "-V", "tls1.3:tls1.3"}, args...)...)
					wants(t, "NSS", out, "name=www.a.example", fmt.Sprintf("ech=%v", ech))
				}
			})
		})
	}
}

// TestTLSClientCertificatesOfOpenSSL is mutual TLS, with a certificate that gets revoked.
func TestTLSClientCertificatesOfOpenSSL(t *testing.T) {
	w := newTLSWorld(t)
	crl := func(revoked ...*x509.Certificate) {
		list := &x509.RevocationList{Number: big.NewInt(tlsSerial.Add(1)), ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour)}
		for _, c := range revoked {
			list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now()})
		}
		der, err := x509.CreateRevocationList(rand.Reader, list, w.root, w.key)
		if err != nil {
			t.Fatal(err)
		}
		w.write(t, "ca.crl", "X509 CRL", der)
	}
	crl()
	roots, err := tls.LoadRoots(w.path("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	revocation, err := tls.LoadRevocation(tls.RevocationOptions{Files: []string{w.path("ca.crl")}, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	port := serveTLS(t, w.config(t, &tls.ClientAuth{Roots: roots, Revocation: revocation}), false)
	get := func(args ...string) string {
		out, _ := program(t, request, "openssl", append([]string{"s_client", "-connect", "127.0.0.1:" + port, "-CAfile", w.path("ca.pem"), "-servername", "a.example", "-ign_eof"}, args...)...)
		return out
	}
	with := []string{"-cert", w.path("client.pem"), "-key", w.path("client.key")}
	wants(t, "with a certificate", get(with...), "clients=1", "Acceptable client certificate CA names\nCN = ca")
	wants(t, "without one", get(), "alert certificate required")
	wants(t, "for servers", get("-cert", w.path("ecdsa.pem"), "-key", w.path("ecdsa.key")), "alert bad certificate")
	crl(w.client.Leaf)
	if err := revocation.Reload(); err != nil {
		t.Fatal(err)
	}
	wants(t, "revoked", get(with...), "alert bad certificate")
}

// TestTLSClientWithOtherServers connects our client to servers of OpenSSL and GnuTLS.
func TestTLSClientWithOtherServers(t *testing.T) {
	w := newTLSWorld(t)
	roots, err := tls.LoadRoots(w.path("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for what, args := range map[string][]string{
		"openssl, TLS 1.3": {"openssl", "s_server", "-accept", "PORT", "-cert", w.path("ecdsa.pem"), "-key", w.path("ecdsa.key"), "-www", "-alpn", "http/1.1"},
		"openssl, TLS 1.2": {"openssl", "s_server", "-accept", "PORT", "-cert", w.path("rsa.pem"), "-key", w.path("rsa.key"), "-www", "-tls1_2", "-alpn", "http/1.1"},
		"gnutls":           {"gnutls-serv", "--http", "-p", "PORT", "--x509certfile", w.path("ecdsa.pem"), "--x509keyfile", w.path("ecdsa.key"), "--alpn", "http/1.1"},
	} {
		t.Run(what, func(t *testing.T) {
			addr := startServer(t, args)
			sessions := stdtls.NewLRUClientSessionCache(1)
			for round := range 2 {
				config, err := tls.NewClientConfig(tls.ClientOptions{ServerName: "www.a.example", Roots: roots, Protocols: []string{"http/1.1"}, Sessions: sessions})
				if err != nil {
					t.Fatal(err)
				}
				c, err := (&stdtls.Dialer{Config: config}).DialContext(t.Context(), "tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				_ = c.SetDeadline(time.Now().Add(30 * time.Second))
				fmt.Fprint(c, request)
				line, err := bufio.NewReader(c).ReadString('\n')
				if err != nil || !strings.Contains(line, "200") {
					t.Errorf("%q, %v", line, err)
				}
				st := c.(*stdtls.Conn).ConnectionState()
				if st.NegotiatedProtocol != "http/1.1" || round == 1 && !st.DidResume {
					t.Errorf("ALPN %q, resumed %v", st.NegotiatedProtocol, st.DidResume)
				}
				_ = c.Close()
			}
			wrong, _ := tls.NewClientConfig(tls.ClientOptions{ServerName: "b.example", Roots: roots})
			if _, err := (&stdtls.Dialer{Config: wrong}).DialContext(t.Context(), "tcp", addr); !errors.Is(tls.Diagnose(err), tls.ErrWrongName) {
				t.Errorf("wrong name: %v", err)
			}
		})
	}
}

// startServer starts a program that listens on a free port, PORT in its arguments, until the test ends.
func startServer(t *testing.T, args []string) (addr string) {
	t.Helper()
	addr = freePort(t)
	_, port, _ := net.SplitHostPort(addr)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "PORT", port)
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		if os.Getenv("MILLRACE_MUST_NETNS") != "" {
			t.Fatalf("no %s: %v (make deps)", args[0], err)
		}
		t.Skipf("no %s: %v (make deps)", args[0], err)
	}
	cmd := exec.Command(path, args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return addr
		}
	}
	t.Fatalf("%s does not listen", args[0])
	return ""
}
