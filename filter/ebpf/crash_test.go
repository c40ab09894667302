package ebpf

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd/xdp"
)

// childEnv makes the test binary a process that makes one change, and kills itself at the step with the number of stepEnv.
const childEnv, stepEnv = "MILLRACE_EBPF_CHILD", "MILLRACE_EBPF_STEP"

func TestMain(m *testing.M) {
	if change := os.Getenv(childEnv); change != "" {
		if err := child(change); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(change string) error {
	last, _ := strconv.Atoi(os.Getenv(stepEnv))
	n := 0
	step = func(string) {
		if n++; n == last {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	s, err := Open("")
	if err != nil {
		return err
	}
	switch change {
	case "load":
		_, err = s.Load(objects+"count.o", "")
	case "replace":
		_, err = s.Replace(objects+"count.o", "count", ReplaceOptions{})
	case "unload":
		_, err = s.Unload("count", true)
	}
	return err
}

// killed makes a change in another process; true: it was killed at the step.
func (w *world) killed(change string, step int) bool {
	w.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+change, stepEnv+"="+strconv.Itoa(step), "LIBXDP_BPFFS="+w.root)
	var out strings.Builder
	cmd.Stdout = &out
	w.ok(w.near.Start(cmd))
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

// ids returns the ids of the attached programs.
func (w *world) ids() (list []uint32) {
	w.t.Helper()
	w.do(func() error {
		hooks, err := w.store.Hooks("eth0")
		for _, h := range hooks {
			for _, c := range h.Chain {
				list = append(list, c.ID)
			}
		}
		return err
	})
	return list
}

// attachAll attaches three programs of count.o, by XDP, tcx and clsact.
func (w *world) attachAll() {
	w.t.Helper()
	w.attach("count/count_xdp", XDPOptions{})
	w.do(func() error { _, err := w.store.AttachTC("count/count_in", "eth0", TCOptions{}); return err })
	w.do(func() error {
		_, err := w.store.AttachTC("count/count_out", "eth0", TCOptions{Clsact: true})
		return err
	})
}

// A process is killed at each step of a replacement: all three programs stay attached, the old or the new ones, and after
// recovery all are those of the object.
func TestReplaceKilledBetweenSteps(t *testing.T) {
	w := newWorld(t)
	w.load("count.o", "")
	w.attachAll()
	steps := 0
	for step := 1; w.killed("replace", step); step++ {
		steps++
		if n := len(w.ids()); n != 3 {
			t.Fatalf("killed at step %d: %d programs are attached", step, n)
		}
		w.do(w.store.Recover)
		w.allOwned(fmt.Sprintf("killed at step %d", step))
	}
	if steps != 6 { // staged, one for each program, all, exchanged
		t.Errorf("%d steps", steps)
	}
}

// killsEnv is the number of random kills of TestReplaceKilledAnywhere.
const killsEnv = "MILLRACE_EBPF_KILLS"

// A process is killed at any instant of a replacement of a program at XDP, tcx and clsact. All three stay attached, and
// detach and attach work: nothing is attached that is not the object's.
func TestReplaceKilledAnywhere(t *testing.T) {
	kills, _ := strconv.Atoi(os.Getenv(killsEnv))
	w := newWorld(t)
	w.load("count.o", "")
	w.attachAll()
	random := rand.New(rand.NewPCG(1, 2))
	whole := 40 * time.Millisecond
	for i := range max(kills, 12) {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), childEnv+"=replace", "LIBXDP_BPFFS="+w.root)
		w.ok(w.near.Start(cmd))
		timer := time.AfterFunc(time.Duration(random.Int64N(int64(whole))), func() { _ = cmd.Process.Kill() })
		if cmd.Wait() == nil {
			whole -= whole / 8 // towards the length of a replacement, however fast the machine is
		} else {
			whole += whole / 16
		}
		timer.Stop()
		if n := len(w.ids()); n != 3 {
			t.Fatalf("kill %d: %d programs are attached", i, n)
		}
		w.do(w.store.Recover)
		w.allOwned(fmt.Sprintf("kill %d", i))
	}
	w.detach("count/count_xdp")
	w.do(func() error { return w.store.DetachTC("count/count_in", "eth0", AnyDirection) })
	w.do(func() error { return w.store.DetachTC("count/count_out", "eth0", AnyDirection) })
	if ids := w.ids(); len(ids) > 0 {
		t.Errorf("left after detach: %v", ids)
	}
}

// allOwned checks that what is attached is the object's.
func (w *world) allOwned(when string) {
	w.t.Helper()
	owned := map[uint32]bool{}
	for _, p := range w.store.mustObject(w.t, "count").Programs {
		owned[p.ID] = true
	}
	for _, id := range w.ids() {
		if !owned[id] {
			w.t.Errorf("%s: program %d is attached and not the object's", when, id)
		}
	}
	if left, _ := os.ReadDir(w.root + "/millrace/staged"); len(left) > 0 {
		w.t.Errorf("%s: %v is left", when, left)
	}
}

// A program that an earlier version left alone on an interface, without a record or a pin, is detached, and replaced by
// attach. One of the same name with other instructions is not.
func TestLeftoversAreMended(t *testing.T) {
	w := newWorld(t)
	w.load("drop.o", "")
	if w.store.mustObject(t, "drop").Programs[0].Alone == "" {
		t.Skip("the kernel allows several XDP programs on an interface: none is left alone")
	}
	leave := func(change func(ebpf.CollectionSpec)) {
		spec, err := ebpf.LoadCollectionSpec(objects + "drop.o")
		w.ok(err)
		change(*spec)
		coll, err := ebpf.NewCollection(spec)
		w.ok(err)
		defer coll.Close()
		w.do(func() error {
			l, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			if err := netlink.LinkSetXdpFd(l, coll.Programs["drop_all"].FD()); err != nil {
				return err
			}
			if err := w.store.DetachXDP("drop", "eth0"); !errors.Is(err, ErrNotFound) {
				t.Errorf("a program that a process holds was detached: %v", err)
			}
			return nil
		})
	}
	off := func() {
		w.do(func() error {
			l, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			return netlink.LinkSetXdpFd(l, -1)
		})
	}
	leave(func(ebpf.CollectionSpec) {})
	w.detach("drop")
	if ids := w.ids(); len(ids) > 0 {
		t.Errorf("left after detach: %v", ids)
	}
	leave(func(ebpf.CollectionSpec) {})
	w.attach("drop", XDPOptions{})
	if ids := w.ids(); len(ids) != 1 || ids[0] != w.store.mustObject(t, "drop").Programs[0].ID {
		t.Errorf("attached are %v", ids)
	}
	w.detach("drop")
	leave(func(s ebpf.CollectionSpec) {
		s.Programs["drop_all"].Instructions = asm.Instructions{asm.Mov.Imm(asm.R0, 2).WithSymbol("drop_all"), asm.Return()}
	})
	err := w.near.Do(func() error { return w.store.DetachXDP("drop", "eth0") })
	if !errors.Is(err, ErrNotFound) {
		t.Errorf("a program with other instructions was detached: %v", err)
	}
	err = w.near.Do(func() error { return w.store.AttachXDP("drop", "eth0", XDPOptions{}) })
	if !errors.Is(err, xdp.ErrForeign) {
		t.Errorf("attached over a program with other instructions: %v", err)
	}
	off()
}

func TestLoadAndUnloadKilledBetweenSteps(t *testing.T) {
	w := newWorld(t)
	for step := 1; w.killed("load", step); step++ {
		w.do(w.store.Recover)
		if pins := w.pins(); len(pins) > 0 {
			t.Fatalf("load killed at step %d: left %v", step, pins)
		}
	}
	w.attachAll()
	if !w.killed("unload", 1) {
		t.Fatal("not killed")
	}
	w.do(w.store.Recover)
	if pins, ids := w.pins(), w.ids(); len(pins) > 0 || len(ids) > 0 {
		t.Errorf("unload killed: left %v, attached %v", pins, ids)
	}
}

// Where a program cannot be swapped, those that were are swapped back: all that is attached is the old object's.
func TestReplaceThatFailsIsUndone(t *testing.T) {
	w := newWorld(t)
	w.load("count.o", "")
	w.attachAll()
	before, object := w.ids(), w.store.mustObject(t, "count")
	was, swapped := step, 0
	defer func() { step = was }()
	step = func(what string) {
		if what == "swapped one" {
			if swapped++; swapped == 2 { // two of three: the last one is gone
				w.ok(os.Remove(w.store.staged("count") + "/programs/count_out"))
			}
		}
	}
	err := w.near.Do(func() error { _, err := w.store.Replace(objects+"count.o", "count", ReplaceOptions{}); return err })
	if !errors.Is(err, os.ErrNotExist) || swapped < 4 {
		t.Errorf("%v, after %d swaps", err, swapped)
	}
	if got := w.ids(); !slices.Equal(got, before) {
		t.Errorf("programs %v are attached, were %v", got, before)
	}
	if got := w.store.mustObject(t, "count"); !reflect.DeepEqual(got, object) {
		t.Errorf("the object is %+v, was %+v", got, object)
	}
	if left, _ := os.ReadDir(w.root + "/millrace/staged"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// Where the pins cannot be exchanged after all programs were swapped, they are swapped back.
func TestExchangeThatFailsIsUndone(t *testing.T) {
	w := newWorld(t)
	w.load("count.o", "")
	w.attachAll()
	before, object := w.ids(), w.store.mustObject(t, "count")
	was, swapped := step, 0
	defer func() { step = was }()
	step = func(what string) {
		switch what {
		case "swapped one":
			swapped++
		case "swapped":
			w.ok(removeTree(w.store.staged("count")))
		}
	}
	err := w.near.Do(func() error { _, err := w.store.Replace(objects+"count.o", "count", ReplaceOptions{}); return err })
	if !errors.Is(err, os.ErrNotExist) || swapped != 6 {
		t.Errorf("%v, after %d swaps", err, swapped)
	}
	if got := w.ids(); !slices.Equal(got, before) {
		t.Errorf("programs %v are attached, were %v", got, before)
	}
	if got := w.store.mustObject(t, "count"); !reflect.DeepEqual(got, object) {
		t.Errorf("the object is %+v, was %+v", got, object)
	}
}
