package ebpf

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
		owned := map[uint32]bool{}
		for _, p := range w.store.mustObject(t, "count").Programs {
			owned[p.ID] = true
		}
		for _, id := range w.ids() {
			if !owned[id] {
				t.Errorf("killed at step %d: program %d is attached and not the object's", step, id)
			}
		}
		if left, _ := os.ReadDir(w.root + "/millrace/staged"); len(left) > 0 {
			t.Errorf("killed at step %d: %v is left", step, left)
		}
	}
	if steps != 6 { // staged, one for each program, all, exchanged
		t.Errorf("%d steps", steps)
	}
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
