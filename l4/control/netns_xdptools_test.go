package control_test

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/filter/ebpf"
	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/pmd/xdp"
)

// beside is a site on whose client's device libxdp's xdp-filter runs before the gateway starts.
func newBeside(t *testing.T) *defended {
	t.Helper()
	refused, err := xdp.Extensions()
	if err == nil && refused != nil && os.Getenv("MILLRACE_MUST_EXTENSIONS") == "" {
		t.Skipf("%v: `make test-vm` runs this test in a virtual machine", refused)
	}
	if err != nil || refused != nil {
		t.Fatal(err, refused)
	}
	testnet.Program(t, "xdp-loader", "xdp-filter")
	root := t.TempDir()
	t.Setenv("LIBXDP_BPFFS", root)
	if _, err := ebpf.Open(root); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	return newDefended(t, "afxdp", "drop", "1m", "", func(d *defended) {
		d.tool("xdp-filter", "load", "front", "--features", "ipv4,ipv6")
	})
}

func (d *defended) tool(name string, args ...string) string {
	d.t.Helper()
	out, err := d.gate.Run(name, args...)
	d.must(err)
	return out
}

// chain returns the components that xdp-loader sees.
func (d *defended) chain() (names []string) {
	d.t.Helper()
	for line := range strings.Lines(d.tool("xdp-loader", "status", "front")) {
		if f := strings.Fields(line); len(f) >= 5 && f[0] == "=>" {
			names = append(names, f[2])
		}
	}
	return names
}

// libxdp's loader and filter work on the interface of a gateway with a defence, before it starts, while it runs, and after it.
func TestGatewayBesideXDPTools(t *testing.T) {
	t.Parallel()
	d := newBeside(t)
	const service = "198.18.1.1:53"
	want := func(what string, names ...string) {
		t.Helper()
		have := d.chain()
		for i := range have { // xdp-filter names its programs by their features
			if strings.HasPrefix(have[i], "xdpfilt_dny") || strings.HasPrefix(have[i], "xdpfilt_alw") {
				have[i] = "xdpfilt"
			}
		}
		if !slices.Equal(have, names) {
			t.Errorf("%s: the chain is %v, want %v", what, have, names)
		}
	}
	want("with the gateway", "defence", "xdpfilt", "steer")
	if dev := d.status().Devices[0]; !dev.On || dev.How != "in the interface's XDP dispatcher" {
		t.Errorf("device %+v", dev)
	}
	d.until("the service answers", func() bool { return d.answers("198.18.0.5", service) })

	d.tool("xdp-filter", "ip", "198.18.0.5", "--mode", "src")
	if !d.silent("198.18.0.5", service) {
		t.Error("xdp-filter's address is answered")
	}
	d.tool("xdp-filter", "ip", "198.18.0.5", "--mode", "src", "--remove")
	if !d.answers("198.18.0.5", service) {
		t.Error("xdp-filter's address is not answered after it was removed")
	}
	verdict := admin.DefenceSource{Source: netip.MustParsePrefix("198.18.0.6/32")}
	d.must(d.g.AddVerdict(context.Background(), admin.DefenceVerdict{DefenceSource: verdict}))
	if !d.silent("198.18.0.6", service) || d.dropped("operator") == 0 {
		t.Error("the defence drops nothing")
	}

	d.tool("xdp-loader", "load", "front", "--prio", "7", "/usr/lib/x86_64-linux-gnu/bpf/xdpfilt_alw_all.o")
	want("with another of xdp-loader's", "defence", "xdpfilt", "xdpfilt", "steer")
	if !d.answers("198.18.0.5", service) || !d.silent("198.18.0.6", service) {
		t.Error("another program changes what passes")
	}
	d.must(d.g.RemoveVerdict(context.Background(), verdict))
	if !d.answers("198.18.0.6", service) {
		t.Error("the source is not answered after its verdict was removed")
	}
	d.tool("xdp-filter", "unload", "front")
	d.until("the gateway answers without xdp-filter", func() bool { return d.answers("198.18.0.5", service) })
	d.must(d.cmd.Process.Signal(os.Interrupt))
	d.must(d.cmd.Wait())
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if left := d.chain(); !slices.Contains(left, "defence") && !slices.Contains(left, "steer") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the gateway leaves %v", d.chain())
		}
	}
}
