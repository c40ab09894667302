//go:build cuda

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/internal/app/replay"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/pmd/dpdk"
)

// needDPDK skips a test where DPDK is not asked for: `make dpdk-test` installs it.
func needDPDK(t *testing.T) {
	t.Helper()
	if os.Getenv("MILLRACE_DPDK_TEST") == "" {
		t.Skip("DPDK is not installed by `make deps`: `make dpdk-test` runs this")
	}
	if _, err := dpdk.Version(); err != nil {
		t.Fatal(err)
	}
}

// start starts millrace in the middle and ends it with the test, by SIGINT as a person would.
func (w *wires) start(t *testing.T, args ...string) *buffer {
	t.Helper()
	cmd, out := program(args...), &buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := w.middle.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out.String())
		}
	})
	return out
}

// get fetches a URL with curl in a namespace until it has text.
func get(t *testing.T, ns *testnet.Namespace, url, text string, out *buffer) {
	t.Helper()
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		got, err := ns.Run("curl", "-s", "-m", "5", url)
		if err == nil && strings.Contains(got, text) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v, %q\n%s", url, err, got, out.String())
		}
	}
}

// TestDPDKGateway proxies HTTP between two devices of DPDK, on the gateway's own stack.
func TestDPDKGateway(t *testing.T) {
	needDPDK(t)
	n := testnet.For(t, "mr-cli-dpdkgw")
	w := &wires{n.Namespace("client"), n.Namespace("middle"), n.Namespace("server")}
	for _, err := range []error{
		n.Link(w.client, "eth0", w.middle, "a"), n.Link(w.server, "eth0", w.middle, "b"),
		w.client.Up("eth0", "198.18.0.1/24"), w.server.Up("eth0", "198.18.1.1/24"), w.middle.Up("a"), w.middle.Up("b"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	www := t.TempDir()
	if err := os.WriteFile(filepath.Join(www, "index.html"), []byte("from the backend"), 0o644); err != nil {
		t.Fatal(err)
	}
	backend := exec.Command("busybox", "httpd", "-f", "-p", "198.18.1.1:8080", "-h", www)
	if err := w.server.Start(backend); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = backend.Process.Kill(); _ = backend.Wait() })
	file := filepath.Join(t.TempDir(), "gw.yaml")
	text := fmt.Sprintf(`stack: devices
devices:
  - {name: "dpdk:net_af_xdp0,iface=a", addresses: [198.18.0.2/24]}
  - {name: "dpdk:net_af_xdp1,iface=b", addresses: [198.18.1.2/24]}
listeners: [{name: web, address: "198.18.0.2:80", protocol: HTTP}]
routes: [{name: r, rules: [{matches: [{}], backend_refs: [{name: p}]}]}]
pools: [{name: p, backends: [{address: "198.18.1.1:8080"}]}]
admin: {socket: %q}
`, filepath.Join(t.TempDir(), "admin"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := w.start(t, "gateway", "-c", file)
	get(t, w.client, "http://198.18.0.2/", "from the backend", out)
}

// TestDPDKStack serves HTTP by the stack on a device of DPDK.
func TestDPDKStack(t *testing.T) {
	needDPDK(t)
	w := newWires(t, "dpdkstack")
	out := w.start(t, "stack", "up", "--socket", "", "--dev", "dpdk:net_af_xdp0,iface=a", "--addr", "198.18.0.9/24")
	get(t, w.client, "http://198.18.0.9/", "", out)
	if answers, err := w.ping("198.18.0.9", 3); answers != 3 || err != nil {
		t.Errorf("%d answers, %v", answers, err)
	}
}

// TestDPDKReplay sends a capture to DPDK's pcap driver, which writes it again.
func TestDPDKReplay(t *testing.T) {
	needDPDK(t)
	dir, err := os.MkdirTemp("", "dpdk") // without commas
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "out.pcap")
	cmd := program("replay", "--json", "--to", "dpdk:net_pcap0,tx_pcap="+file, sample(t))
	var out, errs buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var rep replay.Report
	decode(t, out.String(), &rep)
	r, err := capture.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := uint64(0)
	for _, err = r.Next(); err == nil; _, err = r.Next() {
		n++
	}
	if n == 0 || n != rep.Output.Packets || rep.Output.Driver != "dpdk" {
		t.Errorf("%d packets in the file, %+v", n, rep.Output)
	}
}
