package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/socket"
	mtls "github.com/millrace/millrace/tls"
)

// getServer is a server of HTTPS whose certificate is for example.com and 127.0.0.1, and the file of its
// authority.
func getServer(t *testing.T, h http.HandlerFunc, change func(*httptest.Server)) (s *httptest.Server, ca string) {
	t.Helper()
	s = httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if change != nil {
		change(s)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, ca
}

func hello(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Asked", r.Header.Get("X-Ask"))
	fmt.Fprintf(w, "%s %s\n", r.Proto, r.URL.Path)
}

func TestGetNegotiatesOrTakesTheVersionOfTheFlag(t *testing.T) {
	s, ca := getServer(t, hello, nil)
	plain := httptest.NewServer(http.HandlerFunc(hello))
	defer plain.Close()
	for _, tc := range []struct{ args, want string }{
		{"--cacert " + ca + " " + s.URL + "/a", "HTTP/2.0 /a\n"},
		{"--http2 --cacert " + ca + " " + s.URL, "HTTP/2.0 /\n"},
		{"--http1.1 --cacert " + ca + " " + s.URL, "HTTP/1.1 /\n"},
		{"--insecure " + s.URL, "HTTP/2.0 /\n"},
		{plain.URL + "/b", "HTTP/1.1 /b\n"},
	} {
		code, out, errs := run(append([]string{"get"}, strings.Fields(tc.args)...)...)
		if code != exitOK || out != tc.want || errs != "" {
			t.Errorf("%s: code %d, %q, %q", tc.args, code, out, errs)
		}
	}
}

func TestGetReportsPhasesTLSAndHeaders(t *testing.T) {
	s, ca := getServer(t, hello, nil)
	keys := filepath.Join(t.TempDir(), "keys")
	code, out, errs := run("get", "-v", "--json", "--keylog", keys, "-H", "X-Ask: why", "--cacert", ca, s.URL+"/x")
	if code != exitOK {
		t.Fatalf("code %d, %s", code, errs)
	}
	var r struct {
		Schema int `json:"schema"`
		getReport
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Schema != 1 || r.Status != 200 || r.HTTP != "HTTP/2.0" || r.Bytes != int64(len("HTTP/2.0 /x\n")) || r.URL != s.URL+"/x" || r.Address != strings.TrimPrefix(s.URL, "https://") || r.Headers["X-Asked"][0] != "why" {
		t.Errorf("%+v", r)
	}
	last := 0.0
	for _, phase := range []string{"dns", "connect", "tls", "first_byte", "total"} { // request may be reported late
		at, ok := r.Times[phase]
		if !ok || at < last {
			t.Errorf("%s after %v ms, the phase before after %v", phase, at, last)
		}
		last = at
	}
	if x := r.TLS; x == nil || x.Version != "TLS 1.3" || x.Group != "X25519MLKEM768" || x.ALPN != "h2" || len(x.Certificates) != 1 || !regexp.MustCompile(`^t13i\d{4}h2_[0-9a-f]{12}_[0-9a-f]{12}$`).MatchString(x.JA4) {
		t.Errorf("%+v", x)
	}
	for _, want := range []string{"* connected to 127.0.0.1", "* ClientHello: JA4 " + r.TLS.JA4, "* TLS 1.3 after", "* certificate 0: O=Acme Co, RSA 2048", "  for example.com", "> GET /x HTTP/2.0\n", "> X-Ask: why\n", "< HTTP/2.0 200 OK\n", "* first byte after", "* 12 bytes in"} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in\n%s", want, errs)
		}
	}
	b, _ := os.ReadFile(keys)
	info, err := os.Stat(keys)
	if err != nil || info.Mode().Perm() != 0o600 || !bytes.Contains(b, []byte("CLIENT_TRAFFIC_SECRET_0 ")) {
		t.Errorf("key log %q, %v", b, err)
	}
}

func TestGetOverHTTP3(t *testing.T) {
	s, ca := getServer(t, hello, nil)
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h3 := &http3.Server{TLS: s.TLS, Handler: http.HandlerFunc(hello)}
	go func() { _ = h3.Serve(pc) }()
	defer h3.Close()
	logs := filepath.Join(t.TempDir(), "logs")
	code, out, errs := run("get", "-v", "--json", "--http3", "--qlog", logs, "--cacert", ca, "https://"+pc.LocalAddr().String()+"/x")
	if code != exitOK {
		t.Fatalf("code %d, %s", code, errs)
	}
	var r getReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Status != 200 || r.HTTP != "HTTP/3.0" || r.Bytes != int64(len("HTTP/3.0 /x\n")) || r.Address != pc.LocalAddr().String() || r.TLS == nil || r.TLS.ALPN != "h3" {
		t.Errorf("%+v", r)
	}
	last := 0.0
	for _, phase := range []string{"dns", "connect", "tls", "first_byte", "total"} { // request may be reported late
		if at, ok := r.Times[phase]; !ok || at < last {
			t.Errorf("%s after %v ms, the phase before after %v", phase, at, last)
		}
		last = r.Times[phase]
	}
	if !strings.Contains(errs, "by QUIC over the UDP of kernel") {
		t.Errorf("%s", errs)
	}
	files, _ := filepath.Glob(filepath.Join(logs, "*.sqlog"))
	if len(files) != 1 {
		t.Fatalf("files of qlog: %q", files)
	}
	if b, err := os.ReadFile(files[0]); err != nil || !bytes.Contains(b, []byte(`"packet_sent"`)) && !bytes.Contains(b, []byte(`:packet_sent"`)) {
		t.Errorf("%.200q, %v", b, err)
	}
	if code, _, errs := run("get", "--qlog", logs, "https://"+pc.LocalAddr().String()); code != exitUsage || !strings.Contains(errs, "--qlog needs --http3") {
		t.Errorf("code %d, %s", code, errs)
	}
	if code, _, errs := run("get", "--http3", "https://"+pc.LocalAddr().String()); code != exitFailure || !strings.Contains(errs, "--cacert FILE trusts") {
		t.Errorf("an unknown authority: code %d, %s", code, errs)
	}
}

func TestGetWritesCompleteFilesOnly(t *testing.T) {
	s, ca := getServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/cut" {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("cut"))
			return
		}
		_, _ = w.Write(bytes.Repeat([]byte("0123456789"), 300_000))
	}, nil)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if code, out, errs := run("get", "-o", file, "--cacert", ca, s.URL); code != exitOK || out != "" {
		t.Errorf("code %d, %q, %q", code, out, errs)
	}
	if info, err := os.Stat(file); err != nil || info.Size() != 3_000_000 || info.Mode().Perm() != 0o644 {
		t.Errorf("%+v, %v", info, err)
	}
	for _, version := range []string{"--http1.1", "--http2"} {
		code, _, errs := run("get", version, "-o", file, "--cacert", ca, s.URL+"/cut")
		if code != exitFailure || !strings.Contains(errs, "after 3 bytes of content") {
			t.Errorf("%s: code %d, %q", version, code, errs)
		}
	}
	info, _ := os.Stat(file)
	if list, _ := os.ReadDir(dir); info.Size() != 3_000_000 || len(list) != 1 {
		t.Errorf("a cut download left %d bytes, %d files", info.Size(), len(list))
	}
	if code, _, errs := run("get", "-o", filepath.Join(dir, "no", "folder"), "--cacert", ca, s.URL); code != exitFailure || !strings.Contains(errs, "no such file") {
		t.Errorf("code %d, %q", code, errs)
	}
}

// TestGetShowsProgressOfLongDownloads looks at a terminal that is none.
func TestGetShowsProgressOfLongDownloads(t *testing.T) {
	s, ca := getServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "4000000")
		for range 40 {
			_, _ = w.Write(make([]byte, 100_000))
			time.Sleep(10 * time.Millisecond)
		}
	}, nil)
	var out, errs bytes.Buffer
	code := execute(t.Context(), []string{"get", "-o", filepath.Join(t.TempDir(), "f"), "--cacert", ca, s.URL}, &console{out: &out, err: &errs, live: true})
	if code != exitOK || !strings.Contains(errs.String(), "MB") {
		t.Errorf("code %d, %q", code, errs.String())
	}
}

func TestGetFollowsRedirectionsIfAsked(t *testing.T) {
	s, ca := getServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/from":
			http.Redirect(w, r, "/to", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			hello(w, r)
		}
	}, nil)
	if code, _, errs := run("get", "--cacert", ca, s.URL+"/from"); code != exitOK || !strings.Contains(errs, "redirected to /to; -L follows") {
		t.Errorf("code %d, %q", code, errs)
	}
	if code, out, errs := run("get", "-L", "--cacert", ca, s.URL+"/from"); code != exitOK || out != "HTTP/2.0 /to\n" {
		t.Errorf("code %d, %q, %q", code, out, errs)
	}
	if code, _, errs := run("get", "-L", "--cacert", ca, s.URL+"/loop"); code != exitFailure || !strings.Contains(errs, "more than 10 redirections") {
		t.Errorf("code %d, %q", code, errs)
	}
}

func TestGetExplainsWhatFails(t *testing.T) {
	s, ca := getServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
			return
		}
		http.NotFound(w, r)
	}, nil)
	mutual, mutualCA := getServer(t, hello, func(s *httptest.Server) { s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert} })
	old, oldCA := getServer(t, hello, func(s *httptest.Server) { s.EnableHTTP2 = false; s.TLS = &tls.Config{NextProtos: []string{"http/1.1"}} })
	plain := httptest.NewServer(http.HandlerFunc(hello))
	defer plain.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	_ = l.Close()
	port := s.URL[strings.LastIndex(s.URL, ":"):]
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"", exitUsage, "0 URLs; name one"},
		{"ftp://a.example/", exitUsage, "no URL of HTTP"},
		{"www.example", exitUsage, "no URL of HTTP"},
		{"--http1.1 --http2 " + s.URL, exitUsage, "none of the others can be"},
		{"--addr 198.18.0.2/24 " + s.URL, exitUsage, "name its interface by --stack"},
		{"--stack eth9 " + s.URL, exitUsage, "--addr 198.18.0.3/24"},
		{"--key x " + s.URL, exitUsage, "--key without --cert"},
		{"--ech !! " + s.URL, exitUsage, "no base64"},
		{"--ech AAAA http://a.example", exitUsage, "needs an https URL"},
		{"-H none --cacert " + ca + " " + s.URL, exitUsage, "Name: value"},
		{s.URL, exitFailure, "--cacert FILE trusts the authority"},
		{"--cacert " + ca + " https://localhost" + port, exitFailure, "use one of its names: example.com"},
		{"--cacert " + ca + " " + s.URL + "/none", exitFailure, "the server answers 404"},
		{"--max-time 100ms --cacert " + ca + " " + s.URL + "/slow", exitTimeout, "no complete response within 100ms"},
		{"--cacert " + mutualCA + " " + mutual.URL, exitFailure, "--cert FILE"},
		{"--http2 --cacert " + oldCA + " " + old.URL, exitFailure, "leave the flag out"},
		{strings.Replace(plain.URL, "http", "https", 1), exitFailure, "say http:// instead"},
		{strings.Replace(s.URL, "https", "http", 1), exitFailure, "400"},
		{"http://" + closed, exitFailure, "no server listens there"},
		{"http://no..name/", exitFailure, "check the name of the host"},
		{"--cacert /nonexistent " + s.URL, exitFailure, "--cacert: /nonexistent"},
		{"--cert /nonexistent " + s.URL, exitFailure, "--cert: /nonexistent"},
		{"--keylog /nonexistent/x " + s.URL, exitFailure, "--keylog: "},
	} {
		code, out, errs := run(append([]string{"get"}, strings.Fields(tc.args)...)...)
		if code != tc.code || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: code %d, want %d with %q: %q %q", tc.args, code, tc.code, tc.want, out, errs)
		}
	}
}

// TestGetWithECH encrypts the hello, and learns the configuration that the server has now.
func TestGetWithECH(t *testing.T) {
	keys, err := mtls.LoadECHKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := keys.Rotate("example.com", 2); err != nil {
		t.Fatal(err)
	}
	s, ca := getServer(t, hello, func(s *httptest.Server) {
		c, err := mtls.NewServerConfig(mtls.ServerOptions{Store: &mtls.Store{}, ECH: keys})
		if err != nil {
			t.Fatal(err)
		}
		s.TLS = &tls.Config{GetEncryptedClientHelloKeys: c.GetEncryptedClientHelloKeys}
	})
	list, _ := keys.ConfigList()
	code, out, errs := run("get", "-v", "--ech", base64.StdEncoding.EncodeToString(list), "--cacert", ca, s.URL)
	if code != exitOK || out != "HTTP/2.0 /\n" || !strings.Contains(errs, "server name on the wire example.com") || !strings.Contains(errs, "ECH true") {
		t.Errorf("code %d, %q, %q", code, out, errs)
	}
	for range 2 {
		_ = keys.Rotate("example.com", 2)
	}
	now, _ := keys.ConfigList()
	code, _, errs = run("get", "--ech", base64.StdEncoding.EncodeToString(list), "--cacert", ca, s.URL)
	if code != exitFailure || !strings.Contains(errs, "--ech "+base64.StdEncoding.EncodeToString(now)) {
		t.Errorf("code %d, %q", code, errs)
	}
}

// opens returns a function that gives a stack for the arguments that it should get.
func opens(s *socket.Stack, iface, addr string) func(string, ...netip.Prefix) (*socket.Stack, error) {
	return func(name string, addrs ...netip.Prefix) (*socket.Stack, error) {
		if name != iface || len(addrs) != 1 || addrs[0].String() != addr {
			return nil, errors.New("other arguments")
		}
		return s, nil
	}
}

// TestGetOverAStack uses two stacks in this process.
func TestGetOverAStack(t *testing.T) {
	server, client, err := socket.Pair(netip.MustParsePrefix("198.18.0.1/24"), netip.MustParsePrefix("198.18.0.2/24"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	l, err := server.Listen("tcp", "198.18.0.1:443")
	if err != nil {
		t.Fatal(err)
	}
	other, _ := getServer(t, hello, nil) // whose certificate serves here too
	s := http.Server{Handler: http.HandlerFunc(hello), TLSConfig: &tls.Config{Certificates: other.TLS.Certificates}}
	go func() { _ = s.ServeTLS(l, "", "") }()
	defer s.Close()
	var out, errs bytes.Buffer
	g := &getClient{c: &console{out: &out, err: &errs}, versions: make([]bool, len(getTransports))}
	g.stack.open = opens(client, "eth7", "198.18.0.2/24")
	cmd := g.command()
	cmd.SetArgs([]string{"--stack", "eth7", "--addr", "198.18.0.2/24", "-v", "--insecure", "https://198.18.0.1/p"})
	if err := cmd.ExecuteContext(context.Background()); err != nil || out.String() != "HTTP/2.0 /p\n" || !strings.Contains(errs.String(), "by the TCP of eth7") {
		t.Errorf("%v, %q, %q", err, out.String(), errs.String())
	}
	if _, err := client.Dial("tcp", "198.18.0.1:443"); err == nil {
		t.Error("the stack is still open")
	}
}

// TestGetOverAnInterface opens a stack on an interface beside the kernel's.
func TestGetOverAnInterface(t *testing.T) {
	n := testnet.For(t, "mr-cli-get")
	client, site := n.Namespace("client"), n.Namespace("server")
	for _, err := range []error{
		n.Link(client, "eth0", site, "eth0"), client.Up("eth0", "198.18.0.1/24"), site.Up("eth0", "198.18.0.2/24"),
		site.NoOffload("eth0"), // AF_XDP sees packets before Linux would have summed them
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var l net.Listener
	err := site.Do(func() (err error) {
		l, err = net.Listen("tcp", "198.18.0.2:80")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s := http.Server{Handler: http.HandlerFunc(hello)}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	cmd := program("get", "-v", "--max-time", "20s", "--stack", "eth0", "--addr", "198.18.0.3/24", "http://198.18.0.2/")
	var out, errs buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := client.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(errs.String(), "by the TCP of eth0") || out.String() != "HTTP/1.1 /\n" {
		t.Errorf("%v, %q, %q", err, out.String(), errs.String())
	}
}
