package afxdp

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/filter/ebpf"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/xdp"
)

// shared is a network whose host runs a program that counts and passes, by a dispatcher.
type shared struct {
	*network
	store *ebpf.Store
}

func newShared(t *testing.T) *shared {
	t.Helper()
	w := &shared{network: newNetwork(t, 1, 1500).silencePeer(t)}
	refused, err := xdp.Extensions()
	must(t, err)
	if refused != nil && os.Getenv("MILLRACE_MUST_EXTENSIONS") == "" {
		t.Skipf("%v: `make test-vm` runs this test in a virtual machine", refused)
	}
	must(t, refused)
	root := t.TempDir()
	t.Setenv("LIBXDP_BPFFS", root)
	w.store, err = ebpf.Open("")
	must(t, err)
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	_, err = w.store.Load("../../filter/ebpf/testdata/objects/count.o", "")
	must(t, err)
	must(t, w.host.Do(func() error { return w.store.AttachXDP("count/count_xdp", dev, ebpf.XDPOptions{}) }))
	return w
}

// wantChain checks which programs the interface calls, in order.
func (w *shared) wantChain(t *testing.T, want ...string) {
	t.Helper()
	var have []string
	must(t, w.host.Do(func() error {
		hooks, err := w.store.Hooks(dev)
		for _, h := range hooks {
			for _, c := range h.Chain {
				have = append(have, c.Name)
			}
		}
		return err
	}))
	if !slices.Equal(have, want) {
		t.Errorf("the chain is %v, want %v", have, want)
	}
}

// counted returns what the first program has counted.
func (w *shared) counted(t *testing.T) (n int) {
	t.Helper()
	must(t, w.store.DumpMap("count/hits", func(e ebpf.Entry) error {
		if string(e.Key) != "0" {
			return nil
		}
		return json.Unmarshal(e.Value, &n)
	}))
	return n
}

func TestDriverJoinsADispatcherAsItsLastComponent(t *testing.T) {
	w := newShared(t)
	r := w.open(t, Config{All: true})
	w.wantChain(t, "count_xdp", "steer")
	if info := r.Queues[0].Info().Negotiated; !strings.HasPrefix(info, "native, behind other XDP programs, ") {
		t.Errorf("negotiated %q", info)
	}
	before := w.counted(t)
	const frames = 20
	w.exchange(t, r, frames)
	if n := w.counted(t) - before; n < frames {
		t.Errorf("the program before it saw %d of %d frames", n, frames)
	}
	// Another program comes and goes while the device is open.
	must(t, w.host.Do(func() error {
		return w.store.AttachXDP("count/count_then_drop", dev, ebpf.XDPOptions{Actions: xdp.Drop})
	}))
	w.wantChain(t, "count_then_drop", "count_xdp", "steer")
	must(t, w.host.Do(func() error { return w.store.DetachXDP("count/count_then_drop", dev) }))
	if err := r.SetPrefilter(&pmd.Prefilter{}); err == nil {
		t.Error("a prefilter was placed into the dispatcher")
	}
	must(t, r.Close())
	w.wantChain(t, "count_xdp")
}

// A process that is killed leaves its component, which passes packets. The next change takes it off.
func TestComponentOfAKilledProcessIsTakenOff(t *testing.T) {
	w := newShared(t)
	cmd, line := w.startChild(t)
	if line != "open" {
		t.Fatal(line)
	}
	w.wantChain(t, "count_xdp", "steer")
	must(t, w.host.Do(func() error {
		return w.store.AttachXDP("count/count_then_drop", dev, ebpf.XDPOptions{Actions: xdp.Drop})
	}))
	w.wantChain(t, "count_then_drop", "count_xdp", "steer") // the process lives
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	must(t, w.host.Do(func() error { return w.store.DetachXDP("count/count_then_drop", dev) }))
	w.wantChain(t, "count_xdp")
	w.open(t, Config{All: true})
	w.wantChain(t, "count_xdp", "steer")
}
