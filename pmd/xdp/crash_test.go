package xdp_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/filter/ebpf"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/pmd/xdp"
)

const (
	dev     = "eth0"
	objects = "../../filter/ebpf/testdata/objects/"
)

// childEnv makes the test binary a process that makes one change, "attach PROGRAM", "detach PROGRAM" or "replace OBJECT", and
// kills itself at the step with the number of stepEnv.
const childEnv, stepEnv = "MILLRACE_XDP_CHILD", "MILLRACE_XDP_STEP"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
	}
	os.Exit(m.Run())
}

func child() {
	last, _ := strconv.Atoi(os.Getenv(stepEnv))
	n := 0
	xdp.OnStep(func(string) {
		if n++; n == last {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	})
	s, err := ebpf.Open("")
	if err == nil {
		do, program, _ := strings.Cut(os.Getenv(childEnv), " ")
		switch do {
		case "attach":
			err = s.AttachXDP(program, dev, ebpf.XDPOptions{})
		case "detach":
			err = s.DetachXDP(program, dev)
		case "replace":
			_, err = s.Replace(objects+program+".o", program, ebpf.ReplaceOptions{})
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

type world struct {
	t     *testing.T
	ns    *testnet.Namespace
	store *ebpf.Store
	root  string
}

// newWorld is newAnyWorld where the kernel allows several programs on an interface.
func newWorld(t *testing.T) *world {
	t.Helper()
	refused, err := xdp.Extensions()
	if err != nil {
		t.Fatal(err)
	}
	if refused != nil && os.Getenv("MILLRACE_MUST_EXTENSIONS") == "" {
		t.Skipf("%v: `make test-vm` runs this test in a virtual machine", refused)
	}
	if refused != nil {
		t.Fatal(refused)
	}
	return newAnyWorld(t)
}

func newAnyWorld(t *testing.T) *world {
	t.Helper()
	n := testnet.For(t, "mr-xdp")
	w := &world{t: t, ns: n.Namespace("near"), root: t.TempDir()}
	w.ok(n.Link(w.ns, dev, n.Namespace("far"), dev))
	t.Setenv("LIBXDP_BPFFS", w.root)
	var err error
	w.store, err = ebpf.Open("")
	w.ok(err)
	t.Cleanup(func() { _ = unix.Unmount(w.root, unix.MNT_DETACH) })
	for _, file := range []string{"count.o", "drop.o"} {
		_, err := w.store.Load(objects+file, "")
		w.ok(err)
	}
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) chain() (names []string) {
	w.t.Helper()
	w.ok(w.ns.Do(func() error {
		hooks, err := w.store.Hooks(dev)
		for _, h := range hooks {
			for _, c := range h.Chain {
				names = append(names, c.Name)
			}
		}
		return err
	}))
	return names
}

// run makes a change in another process; killed says that it was, at the step.
func (w *world) run(change string, step int) (killed bool) {
	w.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+change, stepEnv+"="+strconv.Itoa(step))
	var out strings.Builder
	cmd.Stdout = &out
	w.ok(w.ns.Start(cmd))
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(interface{ Signaled() bool }).Signaled() {
		return true
	}
	if err != nil {
		w.t.Fatalf("%s: %v: %s", change, err, out.String())
	}
	return false
}

// leftovers returns the pinned dispatchers and their records.
func (w *world) leftovers() (pinned, records int) {
	a, _ := filepath.Glob(w.root + "/xdp/dispatch-*")
	b, _ := filepath.Glob(w.root + "/millrace/dispatchers/*")
	return len(a), len(b)
}

// A process is killed at each step of a change: the interface runs the old or the new set, and the next change works and
// leaves nothing behind.
func TestKilledBetweenSteps(t *testing.T) {
	for _, tc := range []struct{ change, undo string }{
		{"attach count/count_then_drop", "detach count/count_then_drop"},
		{"detach drop", "attach drop"},
	} {
		t.Run(strings.Fields(tc.change)[0], func(t *testing.T) {
			w := newWorld(t)
			w.run("attach count/count_xdp", 0)
			w.run("attach drop", 0)
			before := w.chain()
			w.run(tc.change, 0)
			after := w.chain()
			w.run(tc.undo, 0)
			swapped := 0
			for step := 1; w.run(tc.change, step); step++ {
				now := w.chain()
				if !slices.Equal(now, before) && !slices.Equal(now, after) {
					t.Fatalf("killed at step %d: %v, want %v or %v", step, now, before, after)
				}
				w.ok(w.ns.Do(w.store.Recover))
				if !slices.Equal(w.chain(), now) {
					t.Errorf("step %d: recovery changed %v to %v", step, now, w.chain())
				}
				if pinned, records := w.leftovers(); pinned != 1 || records != 1 {
					t.Errorf("step %d: %d dispatchers are pinned, %d recorded", step, pinned, records)
				}
				if slices.Equal(now, after) {
					swapped++
					w.run(tc.undo, 0)
				}
				if step > 40 {
					t.Fatal("the change does not come to an end")
				}
			}
			if !slices.Equal(w.chain(), after) || swapped == 0 {
				t.Errorf("at the end %v, want %v; killed behind the swap %d times", w.chain(), after, swapped)
			}
		})
	}
}

// A process is killed at each step of a change of the only program of an interface, which is alone where the kernel refuses
// extensions: the program that is there then is the object's, so that it can be replaced and detached.
func TestOnlyProgramKilledBetweenSteps(t *testing.T) {
	for _, change := range []string{"attach drop", "replace drop", "detach drop"} {
		t.Run(strings.Fields(change)[0], func(t *testing.T) {
			w := newAnyWorld(t)
			steps := 0
			for ; steps <= 40; steps++ {
				if !strings.HasPrefix(change, "attach") {
					w.run("attach drop", 0)
				}
				if !w.run(change, steps+1) {
					break
				}
				w.ok(w.ns.Do(w.store.Recover))
				w.mendable(change, steps+1)
			}
			if steps < 2 || steps > 40 {
				t.Errorf("%d steps", steps)
			}
		})
	}
}

// mendable checks that what a killed change has left can be replaced and detached, and does so.
func (w *world) mendable(change string, step int) {
	w.t.Helper()
	w.ok(w.ns.Do(func() error {
		hooks, err := w.store.Hooks(dev)
		for _, h := range hooks {
			for _, c := range h.Chain {
				if c.Object != "drop/drop_all" {
					w.t.Errorf("%s killed at step %d: left %+v", change, step, c)
				}
			}
		}
		return err
	}))
	if n := len(w.chain()); n > 0 {
		w.run("replace drop", 0)
		w.run("detach drop", 0)
	} else if strings.HasPrefix(change, "replace") {
		w.t.Errorf("%s killed at step %d: the interface has no program", change, step)
	}
	if pinned, records := w.leftovers(); pinned != 0 || records != 0 || len(w.chain()) > 0 {
		w.t.Errorf("%s killed at step %d: %d dispatchers pinned, %d recorded, %v attached", change, step, pinned, records, w.chain())
	}
}

// Many processes change one interface at once: every change is made, one after the other.
func TestChangesAtOnceWaitForEachOther(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		_, err := w.store.Load(objects+"drop.o", fmt.Sprintf("drop%d", i))
		w.ok(err)
	}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for _, do := range []string{"attach", "detach", "attach"} {
				w.run(fmt.Sprintf("%s drop%d", do, i), 0)
			}
		})
	}
	all.Wait()
	if n := len(w.chain()); n != 4 {
		t.Errorf("%d programs are attached: %v", n, w.chain())
	}
	if pinned, records := w.leftovers(); pinned != 1 || records != 1 {
		t.Errorf("%d dispatchers are pinned, %d recorded", pinned, records)
	}
}

// The eleventh program is refused, and the ten stay.
func TestADispatcherHasTenPlaces(t *testing.T) {
	w := newWorld(t)
	for i := range xdp.MaxComponents + 1 {
		name := fmt.Sprintf("drop%d", i)
		_, err := w.store.Load(objects+"drop.o", name)
		w.ok(err)
		err = w.ns.Do(func() error { return w.store.AttachXDP(name, dev, ebpf.XDPOptions{Priority: uint32(100 - i)}) })
		if full := errors.Is(err, xdp.ErrFull); full != (i == xdp.MaxComponents) || err != nil && !full {
			t.Fatalf("program %d: %v", i+1, err)
		}
	}
	if n := len(w.chain()); n != xdp.MaxComponents {
		t.Errorf("%d programs", n)
	}
}
