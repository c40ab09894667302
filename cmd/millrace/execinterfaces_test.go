package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// TestExecShowsTheHostsInterfaces: what a program sees of interfaces, their addresses and AI_ADDRCONFIG is what it sees on the kernel's
// stack with the same addresses, with one version of IP and with both.
func TestExecShowsTheHostsInterfaces(t *testing.T) {
	library(t)
	testnet.Program(t, "cc")
	see := filepath.Join(t.TempDir(), "interfaces")
	if out, err := exec.Command("cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-o", see, "../../shim/testdata/interfaces.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, addrs := range map[string][]string{"IPv4": {"198.18.0.2/24"}, "both": {"198.18.0.2/24", "2001:db8::2/64"}} {
		t.Run(name, func(t *testing.T) {
			n := testnet.For(t, "mr-cli-ifs")
			far, host, kernel, other := n.Namespace("far"), n.Namespace("host"), n.Namespace("kernel"), n.Namespace("other")
			for _, err := range []error{
				n.Link(far, "x0", host, "eth0"), far.Up("x0"), host.Up("eth0"), n.Link(other, "x0", kernel, "eth0"), other.Up("x0"), kernel.Sysctl("net.ipv6.conf.eth0.addr_gen_mode", "1"), kernel.Up("lo"),
				kernel.Up("eth0", addrs...),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			dir := t.TempDir()
			socket, file := filepath.Join(dir, "s.sock"), filepath.Join(dir, "stack.yaml")
			text := "devices: [{name: eth0, driver: afpacket, addresses: [" + strings.Join(addrs, ", ") + "]}]\ncontrol: {socket: " + socket + "}\n"
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _, _ = run("stack", "down", "--socket", socket) })
			sees := func(ns *testnet.Namespace, args ...string) []string {
				var out buffer
				cmd := exec.Command(see)
				if len(args) > 0 {
					cmd = program(append(args, "--", see)...)
				}
				cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, 5*time.Second
				if err := ns.Start(cmd); err != nil {
					t.Fatal(err)
				}
				if err := cmd.Wait(); err != nil {
					t.Fatalf("%v: %s", err, &out)
				}
				return strings.Split(strings.TrimSpace(out.String()), "\n")
			}
			var want []string
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) { // until the kernel's address is no longer tentative
				if want = sees(kernel); slices.Contains(want, "eth0 1043 198.18.0.2 mask 255.255.255.0 other 198.18.0.255") || time.Now().After(end) {
					break
				}
			}
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
				got := sees(host, "exec", "--socket", socket, "-c", file)
				if slices.Equal(got, want) {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("it sees\n%s\non the kernel's stack\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
			if got := sees(host, "exec", "--socket", socket, "--kernel-interfaces"); slices.ContainsFunc(got, func(l string) bool { return strings.HasPrefix(l, "eth0") && strings.Contains(l, "198.18.0.2") }) {
				t.Errorf("with --kernel-interfaces it sees\n%s", strings.Join(got, "\n"))
			}
		})
	}
}
