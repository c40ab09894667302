//go:build cuda

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/app/replay"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// dpdkStack starts a stack on a device of DPDK in a namespace and returns its control socket.
func dpdkStack(t *testing.T, ns *testnet.Namespace, device, addr string) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "dpdk") // short: it is the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	w := &wires{middle: ns}
	out := w.start(t, "stack", "up", "--socket", socket, "--dev", "dpdk:"+device, "--addr", addr)
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if code, _, _ := run("net", "addr", "--socket", socket); code == exitOK {
			return socket
		}
		if time.Now().After(end) {
			t.Fatalf("the stack does not start:\n%s", out.String())
		}
	}
}

// execServer serves a file of random bytes by python3, unmodified, on the stack of a socket, and returns its digest.
func execServer(t *testing.T, ns *testnet.Namespace, socket, addr string, size int) [32]byte {
	t.Helper()
	www, content := t.TempDir(), make([]byte, size)
	source := rand.NewChaCha8([32]byte{7})
	_, _ = source.Read(content)
	if err := os.WriteFile(filepath.Join(www, "file"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := program("exec", "--socket", socket, "--", "python3", "-m", "http.server", "--bind", addr, "--directory", www, "8080")
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return sha256.Sum256(content)
}

// fetch downloads the file by a command in a namespace until it has the digest.
func fetch(t *testing.T, ns *testnet.Namespace, want [32]byte, args ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "got")
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		cmd := program(append(args, "curl", "-s", "-m", "30", "-o", file, "http://198.18.0.9:8080/file")...)
		if len(args) == 0 {
			_, _ = ns.Run("curl", "-s", "-m", "30", "-o", file, "http://198.18.0.9:8080/file")
		} else if err := ns.Start(cmd); err == nil {
			_ = cmd.Wait()
		}
		if got, err := os.ReadFile(file); err == nil && sha256.Sum256(got) == want {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the file does not come, or is another one")
		}
	}
}

// TestDPDKExec serves Linux a file by an unmodified program: the socket shim and the TCP engine over DPDK's AF_XDP driver.
func TestDPDKExec(t *testing.T) {
	needDPDK(t)
	library(t)
	testnet.Program(t, "python3", "curl")
	w := newWires(t, "dpdkexec")
	socket := dpdkStack(t, w.middle, "net_af_xdp0,iface=a", "198.18.0.9/24")
	want := execServer(t, w.middle, socket, "198.18.0.9", 8<<20)
	fetch(t, w.client, want)
}

// TestDPDKMemifExec has unmodified programs at both ends of shared memory between two processes: DPDK's memif driver, two TCP
// engines, and no kernel between them.
func TestDPDKMemifExec(t *testing.T) {
	needDPDK(t)
	library(t)
	testnet.Program(t, "python3", "curl")
	n := testnet.For(t, "mr-cli-dpdkmemif")
	ns := n.Namespace("both")
	dir, err := os.MkdirTemp("", "memif")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	args := ",id=1,socket-abstract=no,socket=" + filepath.Join(dir, "m")
	server := dpdkStack(t, ns, "net_memif0,role=server"+args, "198.18.0.9/24")
	client := dpdkStack(t, ns, "net_memif0,role=client,mac=02:00:00:00:00:02"+args, "198.18.0.1/24")
	want := execServer(t, ns, server, "198.18.0.9", 8<<20)
	fetch(t, ns, want, "exec", "--socket", client, "--")
}

// TestDPDKReplayToAnInterface sends a capture by DPDK's AF_XDP driver: the kernel counts each packet at the other end.
func TestDPDKReplayToAnInterface(t *testing.T) {
	needDPDK(t)
	w := newWires(t, "dpdkreplay")
	received := func() uint64 {
		text, err := w.client.Run("ip", "-json", "-stats", "link", "show", "dev", "eth0")
		if err != nil {
			t.Fatal(err)
		}
		var links []struct {
			Stats64 struct{ RX struct{ Packets uint64 } }
		}
		if err := json.Unmarshal([]byte(text), &links); err != nil {
			t.Fatal(err)
		}
		return links[0].Stats64.RX.Packets
	}
	for _, ns := range []*testnet.Namespace{w.client, w.middle} { // which would solicit neighbours
		if err := ns.Sysctl("net.ipv6.conf.all.disable_ipv6", "1"); err != nil {
			t.Fatal(err)
		}
	}
	before := received()
	var out, errs bytes.Buffer
	cmd := program("replay", "--json", "--to", "dpdk:net_af_xdp0,iface=a", sample(t))
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := w.middle.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var rep replay.Report
	decode(t, out.String(), &rep)
	if got := received() - before; rep.Output.Packets == 0 || got != rep.Output.Packets {
		t.Errorf("%d packets came, %d were sent", got, rep.Output.Packets)
	}
}
