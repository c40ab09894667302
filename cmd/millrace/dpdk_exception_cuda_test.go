//go:build cuda

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// newExceptionSite starts a gateway between two devices of DPDK with exception paths. Service and kernel share 198.18.0.2: HTTP
// by a backend at port 80, and a server of the kernel at 2222. No machine has static neighbours.
func newExceptionSite(t *testing.T, name string) (*wires, *buffer) {
	t.Helper()
	needDPDK(t)
	testnet.Program(t, "nc", "curl", "busybox")
	n := testnet.For(t, "mr-cli-"+name)
	w := &wires{n.Namespace("client"), n.Namespace("middle"), n.Namespace("server")}
	for _, err := range []error{
		n.Link(w.client, "eth0", w.middle, "a"), n.Link(w.server, "eth0", w.middle, "b"),
		w.client.Up("eth0", "198.18.0.1/24", "2001:db8::1/64"), w.server.Up("eth0", "198.18.1.1/24"),
		w.middle.Up("a", "198.18.0.2/24", "2001:db8::2/64"), w.middle.Up("b", "198.18.1.2/24"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	www := t.TempDir()
	if err := os.WriteFile(filepath.Join(www, "index.html"), []byte("from the backend"), 0o644); err != nil {
		t.Fatal(err)
	}
	background(t, w.server, "busybox", "httpd", "-f", "-p", "198.18.1.1:8080", "-h", www)
	background(t, w.middle, "busybox", "nc", "-ll", "-p", "2222", "-e", "echo", "from the kernel")
	background(t, w.client, "busybox", "nc", "-ll", "-p", "3333", "-e", "echo", "from the client")
	file := filepath.Join(t.TempDir(), "gw.yaml")
	text := fmt.Sprintf(`devices:
  - {name: "dpdk:net_af_xdp0,iface=a,exception=mra"}
  - {name: "dpdk:net_af_xdp1,iface=b,exception=mrb"}
snat: 198.18.1.3
services: [{name: web, address: "198.18.0.2:80", source: gateway, backends: [{address: "198.18.1.1:8080"}]}]
admin: {socket: %q}
`, filepath.Join(t.TempDir(), "admin"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return w, w.start(t, "gateway", "-c", file)
}

// TestDPDKExceptionPath reaches a service of the gateway and servers of the kernel at the same address, by one device of
// DPDK: a TCP server, echo requests, and the kernel's own connections.
func TestDPDKExceptionPath(t *testing.T) {
	w, out := newExceptionSite(t, "dpdkexc")
	get(t, w.client, "http://198.18.0.2/", "from the backend", out)
	say := func(from *testnet.Namespace, host, port, want string) {
		t.Helper()
		var got string
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			var err error
			if got, err = from.Run("nc", "-w", "3", host, port); strings.Contains(got, want) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s:%s: %q, %v\n%s", host, port, got, err, out.String())
			}
		}
	}
	say(w.client, "198.18.0.2", "2222", "from the kernel")
	say(w.client, "2001:db8::2", "2222", "from the kernel")
	say(w.middle, "198.18.0.1", "3333", "from the client") // the kernel's own connection
	for _, address := range []string{"198.18.0.2", "2001:db8::2"} {
		if answers, err := w.ping(address, 3); answers != 3 || err != nil {
			t.Errorf("%s: %d answers, %v", address, answers, err)
		}
	}
	get(t, w.client, "http://198.18.0.2/", "from the backend", out) // still
}

// TestDPDKExceptionPathReturnsAddresses ends the program: the interface has its address and its default route again.
func TestDPDKExceptionPathReturnsAddresses(t *testing.T) {
	needDPDK(t)
	w := newWires(t, "dpdkback")
	for _, err := range []error{
		w.middle.Up("a", "198.18.0.7/24"),
		func() error {
			_, err := w.middle.Run("ip", "route", "add", "default", "via", "198.18.0.1", "dev", "a")
			return err
		}(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Run("stack", func(t *testing.T) {
		out := w.start(t, "stack", "up", "--socket", "", "--dev", "dpdk:net_af_xdp0,iface=a,exception=mra", "--addr", "198.18.0.9/24")
		get(t, w.client, "http://198.18.0.9/", "", out)
		if answers, err := w.ping("198.18.0.7", 3); answers != 3 || err != nil { // the kernel's
			t.Errorf("%d answers, %v\n%s", answers, err, out.String())
		}
		if text, err := w.middle.Run("ip", "route", "show", "default"); err != nil || !strings.Contains(text, "via 198.18.0.1 dev mra") {
			t.Errorf("%v: %s", err, text)
		}
	})
	if text, err := w.middle.Run("ip", "route", "show", "default"); err != nil || !strings.Contains(text, "via 198.18.0.1 dev a") {
		t.Errorf("%v: %s", err, text)
	}
	if answers, err := w.ping("198.18.0.7", 3); answers != 3 || err != nil {
		t.Errorf("%d answers, %v", answers, err)
	}
}

// background runs a program in a namespace until the test ends.
func background(t *testing.T, ns *testnet.Namespace, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}
