package interop

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/websocket"
)

// nginxPeers have nginx between a client and our server: the client's TLS ends there, and the upgrade is passed on.
func nginxPeers() []peer {
	return []peer{
		{"WebSocket", "nginx", asProxy, overTCP, never, throughNginx},
		{"WebSocket", "nginx, `millrace ws`", asProxy, overTCP, never, commandThroughNginx},
	}
}

const nginxConfig = `
daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server {
		listen %[2]s:PORT ssl; ssl_certificate %[3]s; ssl_certificate_key %[4]s;
		location / {
			proxy_pass http://%[5]s; proxy_http_version 1.1;
			proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; proxy_set_header Host $http_host;
		}
	}
}`

// nginx starts nginx in front of our server, and returns its address and what a client trusts.
func (b *testbed) nginx(t *testing.T, upstream string) (addr string, client *tls.Config) {
	t.Helper()
	needs(t, "nginx", "make interop-peers")
	tc, client := certificate(t)
	cert, key := writePEM(t, tc)
	addr = b.freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	dir := t.TempDir()
	conf := strings.ReplaceAll(fmt.Sprintf(nginxConfig, dir, linuxAddr, cert, key, upstream), "PORT", port)
	if err := os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	b.ready(t, addr, "nginx", "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
	return addr, client
}

func throughNginx(t *testing.T, b *testbed) {
	upstream, ended := webSocketServer(t, b, nil)
	addr, client := b.nginx(t, upstream)
	weCallWebSocket(t, b, "wss://"+addr+"/chat", client, true)
	wantClosed(t, ended, websocket.CloseNormal, "bye")
}

// commandThroughNginx has the command on the host of the peers.
func commandThroughNginx(t *testing.T, b *testbed) {
	upstream, ended := webSocketServer(t, b, nil)
	addr, _ := b.nginx(t, upstream)
	out, err := b.program(t, "a line\nanother\n", built(t, "millrace"), "ws", "--insecure", "wss://"+addr+"/chat")
	if err != nil || !strings.Contains(out, "a line\nanother\n") {
		t.Errorf("%v\n%s", err, out)
	}
	wantClosed(t, ended, websocket.CloseNormal, "")
}
