package interop

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/l7/route"
	sockets "github.com/millrace/millrace/l7/transport"
)

// gatewayBetween starts a worker that takes headers of the PROXY protocol and sends headers of a version to a backend: with
// HTTP/1.1, as a stream, and as a stream of TLS. The listeners are at addrs, in this order.
func gatewayBetween(t *testing.T, addrs []string, backend string, version uint8) {
	t.Helper()
	p, err := pool.New(pool.Options{Name: "p"}, []pool.BackendOptions{{Address: netip.MustParseAddrPort(backend)}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	to := &proxy.Pool{Pool: p, ProxyHeader: proxy.ProxyHeader{Version: version, TLVs: true}}
	table, err := route.New([]route.Rule{{Name: "all"}})
	if err != nil {
		t.Fatal(err)
	}
	times := proxy.Timeouts{Handshake: time.Minute, Header: time.Minute, Body: time.Minute, Write: time.Minute, Idle: time.Minute}
	tree := &proxy.Tree{Pools: []*proxy.Pool{to}}
	for i, mode := range []proxy.StreamMode{proxy.NoStream, proxy.StreamTCP, proxy.StreamTLS} {
		ln := &proxy.Listener{
			Name: addrs[i], Address: netip.MustParseAddrPort(addrs[i]), Stream: mode, HTTP1: &http1.Options{}, Table: table, Timeouts: times,
			Rules:         []*proxy.Rule{{Name: "all", Backends: []proxy.Weighted{{Pool: to, Weight: 1}}, Attempts: 1}},
			ProxyProtocol: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		}
		tree.Listeners = append(tree.Listeners, ln)
	}
	loop, err := sockets.NewEpollLoop()
	if err != nil {
		t.Fatal(err)
	}
	if err := proxy.NewWorker(loop, 0).Apply(tree); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- loop.Run(context.Background()) }()
	t.Cleanup(func() {
		loop.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestHAProxyBehindTheGateway has HAProxy relay connections to the gateway, which relays them to HAProxy: that sees the
// client, and the address that the client connected to.
func TestHAProxyBehindTheGateway(t *testing.T) {
	cert, _ := testcert.SelfSigned("b")
	request := []byte("GET / HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n")
	for _, version := range []uint8{1, 2} {
		for i, name := range []string{"http", "stream"} {
			addrs := []string{freePort(t), freePort(t), freePort(t)}
			v1, v2, _, receiver, _ := haproxy(t, addrs[i], cert)
			gatewayBetween(t, addrs, receiver, version)
			for _, front := range []string{v1, v2} {
				got, local := exchange(t, front, request, nil)
				want := strings.ReplaceAll(local+" "+front, ":", " ")
				if _, body, _ := strings.Cut(got, "\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") || strings.TrimRight(body, " -") != want {
					t.Errorf("%s, version %d: %q, want %q", name, version, got, want)
				}
			}
		}
	}
}

// TestHAProxyTellsOfTLS has HAProxy end TLS, and tell the gateway by TLVs, which passes the server name on.
func TestHAProxyTellsOfTLS(t *testing.T) {
	cert, roots := testcert.SelfSigned("b")
	addrs := []string{freePort(t), freePort(t), freePort(t)}
	_, _, secure, receiver, _ := haproxy(t, addrs[0], cert)
	gatewayBetween(t, addrs, receiver, 2)
	got, local := exchange(t, secure, []byte("GET / HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n"), &tls.Config{RootCAs: roots, ServerName: "b"})
	if want := strings.ReplaceAll(local+" "+secure, ":", " ") + " b"; !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

const nginxAround = `
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
stream {
	server { listen %[2]s; proxy_pass %[5]s; proxy_protocol on; }
	server { listen %[3]s; proxy_pass %[6]s; proxy_protocol on; }
	server { listen %[4]s; proxy_pass %[7]s; proxy_protocol on; }
}
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	ssl_certificate %[10]s; ssl_certificate_key %[11]s;
	server {
		listen %[8]s proxy_protocol;
		listen %[9]s proxy_protocol ssl;
		return 200 "$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_addr $proxy_protocol_server_port $ssl_server_name";
	}
}`

// TestNginxAroundTheGateway has nginx relay connections to the gateway, which relays them to nginx: as HTTP, as a stream, and
// as a stream of TLS, which nginx ends.
func TestNginxAroundTheGateway(t *testing.T) {
	needs(t, "nginx", "make deps")
	if _, err := os.Stat("/usr/lib/nginx/modules/ngx_stream_module.so"); err != nil {
		t.Skipf("nginx has no stream module: make deps (%v)", err)
	}
	cert, roots := testcert.SelfSigned("b")
	certFile, keyFile := writePEM(t, &tls.Config{Certificates: []tls.Certificate{cert}})
	request := []byte("GET / HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n")
	for _, version := range []uint8{1, 2} {
		dir := t.TempDir()
		fronts := []string{freePort(t), freePort(t), freePort(t)}
		plain, secure := freePort(t), freePort(t)
		addrs, others := []string{freePort(t), freePort(t), freePort(t)}, []string{freePort(t), freePort(t), freePort(t)}
		conf := filepath.Join(dir, "nginx.conf")
		text := fmt.Appendf(nil, nginxAround, dir, fronts[0], fronts[1], fronts[2], addrs[0], addrs[1], others[2], plain, secure, certFile, keyFile)
		if err := os.WriteFile(conf, text, 0o600); err != nil {
			t.Fatal(err)
		}
		daemonOf(t, append(fronts, plain, secure), "nginx", "-p", dir, "-c", conf)
		gatewayBetween(t, addrs, plain, version)
		gatewayBetween(t, others, secure, version)
		for i, front := range fronts {
			var config *tls.Config
			want := ""
			if i == 2 {
				config, want = &tls.Config{RootCAs: roots, ServerName: "b"}, " b"
			}
			got, local := exchange(t, front, request, config)
			clientIP, clientPort, _ := net.SplitHostPort(local)
			serverIP, serverPort, _ := net.SplitHostPort(front)
			want = strings.Join([]string{clientIP, clientPort, serverIP, serverPort}, " ") + want
			if _, body, _ := strings.Cut(got, "\r\n\r\n"); strings.TrimSpace(body) != want {
				t.Errorf("listener %d, version %d: %q, want %q", i, version, got, want)
			}
		}
	}
}
