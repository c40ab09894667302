package control_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// bgpConfig announces an address of a service whose one backend is b1. The router is where clients are otherwise.
const bgpConfig = `
devices: [{name: front, driver: afxdp}, {name: back1, driver: afxdp}]
snat: 198.18.2.1
bgp:
  as: 64512
  router_id: 198.18.0.1
  med: %d
  drain: 100ms
  peers: [{address: 198.18.0.2, as: 65000, port: 1179}]
services:
  - name: web
    address: 198.18.1.1:80
    announce: {}
    backends: [{name: b1, address: 198.18.3.2:8080}]
    health: {interval: 1s, timeout: 1s, rise: 1, fall: 1}
`

// bgpListenerConfig announces an address of a listener of the kernel's stack, with a pool of b1.
const bgpListenerConfig = `
bgp:
  as: 64512
  router_id: 198.18.0.1
  med: %d
  drain: 100ms
  peers: [{address: 198.18.0.2, as: 65000, port: 1179}]
listeners: [{name: web, address: "198.18.1.1:80", protocol: HTTP, announce: {}}]
routes: [{name: web, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, backends: [{name: b1, address: "198.18.3.2:8080"}], health: {type: tcp, interval: 1s, timeout: 1s, rise: 1, fall: 1}}]
`

// bgpRouter is as much of a router as the test needs: it answers an OPEN with the same one of another AS, and keeps the UPDATEs.
type bgpRouter struct {
	t    *testing.T
	conn net.Conn
}

// read reads a message, and answers a KEEPALIVE.
func (r *bgpRouter) read() (kind byte, body []byte) {
	r.t.Helper()
	_ = r.conn.SetDeadline(time.Now().Add(time.Minute))
	head := make([]byte, 19)
	_, err := io.ReadFull(r.conn, head)
	if err == nil {
		body = make([]byte, int(binary.BigEndian.Uint16(head[16:]))-len(head))
		_, err = io.ReadFull(r.conn, body)
	}
	if err == nil && head[18] == 4 {
		_, err = r.conn.Write(head)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return head[18], body
}

// accept brings up a session on a connection.
func (r *bgpRouter) accept(conn net.Conn) {
	r.t.Helper()
	r.conn = conn
	kind, open := r.read()
	if kind != 1 {
		r.t.Fatalf("the first message has type %d", kind)
	}
	as := binary.BigEndian.AppendUint32([]byte{65, 4}, 64512) // the capability of AS numbers of four octets
	if !bytes.Contains(open, as) {
		r.t.Fatalf("the OPEN %x lacks AS 64512", open)
	}
	open = bytes.Replace(open, as, binary.BigEndian.AppendUint32([]byte{65, 4}, 65000), 1)
	copy(open[1:], []byte{0xfd, 0xe8})
	copy(open[5:], []byte{198, 18, 0, 2})
	head := append(bytes.Repeat([]byte{0xff}, 16), 0, byte(19+len(open)), 1)
	if _, err := conn.Write(append(head, open...)); err != nil {
		r.t.Fatal(err)
	}
}

// wantUpdate reads messages until one of the service's address, which is to be announced with a MED, or with -1 withdrawn.
func (r *bgpRouter) wantUpdate(med int, community ...byte) {
	r.t.Helper()
	prefix := []byte{32, 198, 18, 1, 1}
	for {
		kind, body := r.read()
		if kind == 4 {
			continue
		}
		if kind != 2 {
			r.t.Fatalf("a message of type %d: %x", kind, body)
		}
		n := int(binary.BigEndian.Uint16(body))
		withdrawn, attrs := body[2:2+n], body[4+n:]
		switch {
		case !bytes.Contains(body, prefix): // the end of the routes
			continue
		case med < 0 && bytes.Equal(withdrawn, prefix):
			return
		case med >= 0 && bytes.HasSuffix(attrs, prefix) && bytes.Contains(attrs, []byte{0x80, 4, 4, 0, 0, 0, byte(med)}) && bytes.Contains(attrs, community):
			return
		}
		r.t.Fatalf("UPDATE %x, want MED %d, community %x", body, med, community)
	}
}

// TestAnnouncedAddressesFollowTheirBackends has a gateway whose router is the test: the backend comes and goes, the file changes, and the
// gateway stops. So do the addresses of a listener.
func TestAnnouncedAddressesFollowTheirBackends(t *testing.T) {
	for name, config := range map[string]string{"svc": bgpConfig, "lis": bgpListenerConfig} {
		t.Run(name, func(t *testing.T) { followBackends(t, name, config) })
	}
}

func followBackends(t *testing.T, name, config string) {
	s, _ := layOut(t, "gwbgp"+name)
	if name == "lis" {
		s.must(s.gate.Up("lo", "198.18.1.1/32"))
	}
	configure := func(med int) { s.must(os.WriteFile(s.file, fmt.Appendf(nil, config, med), 0o600)) }
	listen := func(ns *testnet.Namespace, at string) (l net.Listener) {
		s.must(ns.Do(func() (err error) { l, err = net.Listen("tcp", at); return err }))
		return l
	}
	router := listen(s.client, "198.18.0.2:1179")
	defer router.Close()
	backend := listen(s.backends[0], "198.18.3.2:8080")
	configure(7)
	s.start()
	s.must(router.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)))
	conn, err := router.Accept()
	s.must(err)
	r := &bgpRouter{t: t}
	r.accept(conn)
	r.wantUpdate(7)

	backend.Close()
	r.wantUpdate(-1)
	backend = listen(s.backends[0], "198.18.3.2:8080")
	defer backend.Close()
	r.wantUpdate(7)

	configure(9)
	s.must(s.cmd.Process.Signal(syscall.SIGHUP))
	r.wantUpdate(9)

	s.must(s.cmd.Process.Signal(syscall.SIGTERM))
	r.wantUpdate(9, 0xc0, 8, 4, 0xff, 0xff, 0, 0)
	r.wantUpdate(-1)
	for {
		kind, body := r.read()
		if kind == 3 {
			if body[0] != 6 || body[1] != 2 || !strings.Contains(string(body), "the gateway stops") {
				t.Errorf("NOTIFICATION %x", body)
			}
			break
		}
	}
	conn.Close()
}
