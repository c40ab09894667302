package ebpf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/pmd/xdp"
)

// libxdpObjects is where Debian's xdp-tools has its objects.
const libxdpObjects = "/usr/lib/x86_64-linux-gnu/bpf/"

// newShared is a world where programs share an interface and libxdp's programs are installed.
func newShared(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	extensions(t)
	testnet.Program(t, "xdp-loader", "xdp-filter")
	t.Setenv("LIBXDP_BPFFS", w.root)
	return w
}

func (w *world) run(name string, args ...string) string {
	w.t.Helper()
	out, err := w.near.Run(name, args...)
	w.ok(err)
	return out
}

// status returns the components that xdp-loader sees: "PRIORITY NAME ACTIONS".
func (w *world) status() (list []string) {
	w.t.Helper()
	for line := range strings.Lines(w.run("xdp-loader", "status", "eth0")) {
		if f := strings.Fields(line); len(f) >= 5 && f[0] == "=>" {
			list = append(list, f[1]+" "+f[2]+" "+strings.Join(f[5:], ""))
		}
	}
	return list
}

// ours returns the same of what we see.
func (w *world) ours() (list []string) {
	w.t.Helper()
	w.do(func() error {
		hooks, err := w.store.Hooks("eth0")
		for _, h := range hooks {
			for _, c := range h.Chain {
				list = append(list, fmt.Sprintf("%d %s %s", c.Priority, c.Name, strings.Join(c.Actions, ",")))
			}
		}
		return err
	})
	return list
}

// want checks that xdp-loader and we see the same components.
func (w *world) want(components ...string) {
	w.t.Helper()
	if diff := cmp.Diff(components, w.status()); diff != "" {
		w.t.Errorf("xdp-loader sees (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(components, w.ours()); diff != "" {
		w.t.Errorf("we see (-want +got):\n%s", diff)
	}
}

const (
	filterAllow = "10 xdpfilt_alw_all XDP_PASS"
	countDrop   = "20 count_then_drop XDP_DROP"
	countPass   = "50 count_xdp XDP_PASS"
	dropAll     = "99 drop_all XDP_PASS"
)

func TestXDPLoaderAddsAndRemovesBesideOurs(t *testing.T) {
	w := newShared(t)
	w.load("count.o", "")
	w.load("drop.o", "")
	w.attach("count/count_xdp", XDPOptions{})
	w.want(countPass)
	w.run("xdp-loader", "load", "eth0", libxdpObjects+"xdpfilt_alw_all.o")
	w.want(filterAllow, countPass)
	w.attach("count/count_then_drop", XDPOptions{}) // into libxdp's dispatcher
	w.want(filterAllow, countDrop, countPass)
	w.attach("drop", XDPOptions{Priority: 99})
	w.want(filterAllow, countDrop, countPass, dropAll)
	w.detach("drop")

	// The filter passes, the next program's drop continues, and the last counts and passes.
	out, in := packetSocket(t, w.far), packetSocket(t, w.near)
	send(t, out, 50)
	w.await("count/hits", 1, 50)
	w.await("count/hits", 0, 50)
	if n := received(in, 200*time.Millisecond); n != 50 {
		t.Errorf("%d frames passed the chain, want 50", n)
	}
	id := w.store.mustObject(t, "count").Programs[3].ID
	w.run("xdp-loader", "unload", "eth0", "--id", fmt.Sprint(id)) // ours, by theirs
	w.want(filterAllow, countDrop)
	w.detach("count/count_then_drop")
	w.want(filterAllow)
	w.run("xdp-loader", "unload", "eth0", "--all")
	w.want()
	w.do(w.store.Recover)
	if left, _ := filepath.Glob(w.root + "/xdp/*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if left, _ := filepath.Glob(w.root + "/millrace/dispatchers/*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestWeAddAndRemoveBesideXDPLoader(t *testing.T) {
	w := newShared(t)
	w.load("count.o", "")
	w.run("xdp-loader", "load", "eth0", libxdpObjects+"xdpfilt_alw_all.o", objects+"drop.o")
	w.want(filterAllow, "50 drop_all XDP_PASS")
	w.attach("count/count_xdp", XDPOptions{Priority: 11, Actions: xdp.Pass | xdp.Drop})
	w.want(filterAllow, "11 count_xdp XDP_DROP,XDP_PASS", "50 drop_all XDP_PASS")
	out, in := packetSocket(t, w.far), packetSocket(t, w.near)
	send(t, out, 20)
	w.await("count/hits", 0, 20)
	if n := received(in, 100*time.Millisecond); n != 0 {
		t.Errorf("%d frames passed drop_all", n)
	}
	w.do(func() error {
		_, err := w.store.Replace(objects+"count.o", "count", ReplaceOptions{})
		return err
	})
	w.want(filterAllow, "11 count_xdp XDP_DROP,XDP_PASS", "50 drop_all XDP_PASS")
	w.detach("count/count_xdp")
	w.want(filterAllow, "50 drop_all XDP_PASS")
	w.run("xdp-loader", "unload", "eth0", "--all")
	w.want()
}

func TestXDPFilterWorksBesideOurs(t *testing.T) {
	w := newShared(t)
	w.load("count.o", "")
	w.attach("count/count_xdp", XDPOptions{})
	w.run("xdp-filter", "load", "eth0", "--features", "ethernet")
	w.run("xdp-filter", "ether", "02:00:00:00:00:01", "--mode", "src")
	out := packetSocket(t, w.far)
	send(t, out, 30)
	time.Sleep(100 * time.Millisecond)
	if n := w.counter("count/hits", 0); n != 0 {
		t.Errorf("the filter let %d frames through", n)
	}
	w.attach("count/count_then_drop", XDPOptions{Priority: 1}) // a new dispatcher; the filter and its map stay
	send(t, out, 30)
	w.await("count/hits", 1, 30)
	if n := w.counter("count/hits", 0); n != 0 {
		t.Errorf("the filter let %d frames through", n)
	}
	w.run("xdp-filter", "unload", "eth0")
	send(t, out, 30)
	w.await("count/hits", 0, 30)
}

// Objects of other projects load as they are.
func TestObjectsOfXDPToolsLoad(t *testing.T) {
	w := newWorld(t)
	paths, _ := filepath.Glob(libxdpObjects + "*.o")
	if len(paths) == 0 {
		if os.Getenv("MILLRACE_MUST_EXTENSIONS") != "" {
			t.Fatal("xdp-tools is not installed")
		}
		t.Skip("xdp-tools is not installed: its objects are read by `make test-vm`")
	}
	for _, path := range paths {
		name := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(path), ".o"), ".", "_")
		_, err := w.store.Load(path, name)
		switch {
		case name == "xdpdump_bpf": // fentry, whose target only xdpdump knows
			if err == nil {
				t.Errorf("%s: loaded without a target", name)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		}
	}
}
