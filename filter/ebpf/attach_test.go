package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pmd/xdp"
)

// One program is on the interface, as a component or alone, whichever the kernel allows.
func TestXDPProgramSeesPacketsAndLeaves(t *testing.T) {
	w := newWorld(t)
	w.load("count.o", "")
	w.load("drop.o", "")
	w.attach("count/count_xdp", XDPOptions{})
	out, in := packetSocket(t, w.far), packetSocket(t, w.near)
	send(t, out, 100)
	w.await("count/hits", 0, 100)
	if n := received(in, 200*time.Millisecond); n != 100 {
		t.Errorf("%d frames passed, want 100", n)
	}
	if err := w.near.Do(func() error { return w.store.AttachXDP("count/count_xdp", "eth0", XDPOptions{}) }); err == nil {
		t.Error("attached twice")
	}
	if _, err := w.store.Unload("count", true); !errors.Is(err, ErrElsewhere) {
		t.Errorf("unloaded from another network namespace: %v", err)
	}
	if err := w.near.Do(func() error { _, err := w.store.Unload("count", false); return err }); !errors.Is(err, ErrAttached) {
		t.Errorf("unloaded although attached: %v", err)
	}
	w.detach("count/count_xdp")
	w.attach("drop", XDPOptions{})
	if diff := cmp.Diff([]string{"drop_all"}, w.chain("xdp")); diff != "" {
		t.Error(diff)
	}
	w.do(func() error { // another program than the one that is meant stays
		l, err := lookUp("eth0")
		if err == nil && !errors.Is(w.store.fs.Detach(l.index, w.store.mustObject(t, "count").Programs[0].ID), xdp.ErrForeign) {
			t.Error("a program that is not on the interface was detached")
		}
		return err
	})
	send(t, out, 100)
	if n := received(in, 200*time.Millisecond); n != 0 {
		t.Errorf("%d frames passed a program that drops", n)
	}
	w.detach("drop")
	if err := w.near.Do(func() error { return w.store.DetachXDP("drop", "eth0") }); !errors.Is(err, ErrNotFound) {
		t.Errorf("detached twice: %v", err)
	}
	if left, _ := filepath.Glob(w.root + "/millrace/dispatchers/*"); len(left) > 0 {
		t.Errorf("records of what is no more attached: %v", left)
	}
	send(t, out, 100)
	if n := received(in, 200*time.Millisecond); n != 100 {
		t.Errorf("%d frames came after detach, want 100", n)
	}
	if n := w.counter("count/hits", 0); n != 100 {
		t.Errorf("the detached program counted %d", n)
	}
}

func TestTCProgramsAtTCXAndClsact(t *testing.T) {
	w := newWorld(t)
	w.load("count.o", "")
	out, in := packetSocket(t, w.far), packetSocket(t, w.near)
	for i, clsact := range []bool{false, true} {
		for _, prog := range []string{"count_in", "count_out"} {
			w.do(func() error {
				_, err := w.store.AttachTC("count/"+prog, "eth0", TCOptions{Clsact: clsact})
				return err
			})
			err := w.near.Do(func() error { _, err := w.store.AttachTC("count/"+prog, "eth0", TCOptions{}); return err })
			if !errors.Is(err, ErrAttached) {
				t.Errorf("%s attached twice: %v", prog, err)
			}
		}
		send(t, out, 50)
		send(t, in, 30)
		w.await("count/hits", 2, uint64(50*(i+1)))
		w.await("count/hits", 3, uint64(30*(i+1)))
		if diff := cmp.Diff([]string{"count_in"}, w.chain("tc-ingress")); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"count_out"}, w.chain("tc-egress")); diff != "" {
			t.Error(diff)
		}
		for _, prog := range []string{"count_in", "count_out"} {
			w.do(func() error { return w.store.DetachTC("count/"+prog, "eth0", AnyDirection) })
		}
		if left := append(w.chain("tc-ingress"), w.chain("tc-egress")...); len(left) > 0 {
			t.Errorf("left after detach: %v", left)
		}
	}
}

// Of an object with several programs, the one that is attached need not be named to detach it.
func TestDetachNamesTheProgramThatIsAttached(t *testing.T) {
	w := newWorld(t)
	w.load("count.o", "")
	attach := func(prog string) {
		w.do(func() error {
			_, err := w.store.AttachTC("count/"+prog, "eth0", TCOptions{})
			return err
		})
	}
	detach := func() error {
		return w.near.Do(func() error { return w.store.DetachTC("count", "eth0", AnyDirection) })
	}
	if err := detach(); !errors.Is(err, ErrUsage) {
		t.Errorf("none is attached: %v", err)
	}
	attach("count_in")
	w.ok(detach())
	if left := w.chain("tc-ingress"); len(left) > 0 {
		t.Errorf("left after detach: %v", left)
	}
	attach("count_in")
	attach("count_out")
	if err := detach(); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "count/count_out") {
		t.Errorf("two are attached: %v", err)
	}
}

// Where one program of the store is attached, its object need not be named either.
func TestAttachedNamesTheOnlyProgram(t *testing.T) {
	w := newWorld(t)
	w.load("count.o", "")
	w.load("drop.o", "")
	attached := func(kind Kind, d Direction, want string, is error) {
		t.Helper()
		w.do(func() error {
			ref, err := w.store.Attached(kind, "eth0", d)
			if ref != want || !errors.Is(err, is) {
				t.Errorf("%v %v: %q, %v, want %q", kind, d, ref, err, want)
			}
			return nil
		})
	}
	attached(KindXDP, AnyDirection, "", ErrNotFound)
	w.attach("drop", XDPOptions{})
	attached(KindXDP, AnyDirection, "drop/drop_all", nil)
	attached(KindTC, AnyDirection, "", ErrNotFound)
	w.do(func() error { _, err := w.store.AttachTC("count/count_in", "eth0", TCOptions{}); return err })
	attached(KindTC, AnyDirection, "count/count_in", nil)
	attached(KindTC, Egress, "", ErrNotFound)
	w.do(func() error { _, err := w.store.AttachTC("count/count_out", "eth0", TCOptions{}); return err })
	attached(KindTC, AnyDirection, "", ErrUsage)
	attached(KindTC, Egress, "count/count_out", nil)
}

// A link at tcx is named by its interface where that is in the caller's network namespace.
func TestPlacesAreNamedByTheirInterface(t *testing.T) {
	w := newWorld(t)
	w.load("count.o", "")
	w.do(func() error { _, err := w.store.AttachTC("count/count_in", "eth0", TCOptions{}); return err })
	for _, c := range []struct {
		do   func(func() error) error
		want string
	}{
		{w.near.Do, "count_in at tcx of eth0"},
		{w.far.Do, "of another network namespace"},
	} {
		var places []string
		err := c.do(func() (err error) { places, err = w.store.Unload("count", false); return err })
		if !errors.Is(err, ErrAttached) || len(places) != 1 || !strings.Contains(places[0], c.want) {
			t.Errorf("%v, %v, want %q", places, err, c.want)
		}
	}
}

// A program that drops is replaced by itself while frames come: one that met no program would pass.
func TestReplaceLeavesNoGap(t *testing.T) {
	w := newWorld(t)
	w.load("drop.o", "")
	w.attach("drop", XDPOptions{})
	out, in := packetSocket(t, w.far), packetSocket(t, w.near)
	stop, sent := make(chan bool), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				sent <- n
				return
			default:
				send(t, out, 10)
				n += 10
			}
		}
	}()
	before := w.store.mustObject(t, "drop").Programs[0].ID
	for range 8 {
		w.do(func() error {
			r, err := w.store.Replace(objects+"drop.o", "drop", ReplaceOptions{})
			if err == nil && len(r.Places) != 1 {
				t.Errorf("replaced at %v", r.Places)
			}
			return err
		})
	}
	close(stop)
	n := <-sent
	if passed := received(in, 300*time.Millisecond); passed != 0 || n < 100 {
		t.Errorf("%d of %d frames passed", passed, n)
	}
	if now := w.store.mustObject(t, "drop").Programs[0].ID; now == before {
		t.Error("the program is the same")
	}
}

func (s *Store) mustObject(t testing.TB, name string) Object {
	t.Helper()
	o, err := s.Object(name)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestReplaceKeepsMapsAndAttachments(t *testing.T) {
	w := newWorld(t)
	w.load("count.o", "")
	w.attach("count/count_xdp", XDPOptions{})
	w.do(func() error { _, err := w.store.AttachTC("count/count_in", "eth0", TCOptions{}); return err })
	w.do(func() error {
		_, err := w.store.AttachTC("count/count_out", "eth0", TCOptions{Clsact: true})
		return err
	})
	out, in := packetSocket(t, w.far), packetSocket(t, w.near)
	send(t, out, 10)
	w.await("count/hits", 2, 10)
	w.do(func() error {
		r, err := w.store.Replace(objects+"count.o", "count", ReplaceOptions{})
		if diff := cmp.Diff([]string{"hits"}, r.Kept); diff != "" || len(r.Places) != 3 {
			t.Errorf("kept %v, places %v", r.Kept, r.Places)
		}
		return err
	})
	send(t, out, 10)
	send(t, in, 10)
	w.await("count/hits", 0, 20)
	w.await("count/hits", 2, 20)
	w.await("count/hits", 3, 10)
	w.do(func() error {
		_, err := w.store.Replace(objects+"count.o", "count", ReplaceOptions{FreshMaps: true})
		return err
	})
	if n := w.counter("count/hits", 0); n != 0 {
		t.Errorf("the fresh map begins at %d", n)
	}
	err := w.near.Do(func() error { _, err := w.store.Replace(objects+"drop.o", "count", ReplaceOptions{}); return err })
	if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "has no program for") {
		t.Errorf("replaced by an object without the program: %v", err)
	}
	w.do(func() error {
		places, err := w.store.Unload("count", true)
		if len(places) != 3 {
			t.Errorf("detached from %v", places)
		}
		return err
	})
	if pins := w.pins(); len(pins) > 0 {
		t.Errorf("left: %v", pins)
	}
}

// A program that another process holds on the interface by a bpf_link is named, and stays.
func TestProgramsThatCannotBeJoinedAreNamed(t *testing.T) {
	w := newWorld(t)
	w.load("drop.o", "")
	spec, err := ebpf.LoadCollectionSpec(objects + "drop.o")
	w.ok(err)
	coll, err := ebpf.NewCollection(spec)
	w.ok(err)
	defer coll.Close()
	w.do(func() error {
		l, err := lookUp("eth0")
		if err != nil {
			return err
		}
		held, err := link.AttachXDP(link.XDPOptions{Program: coll.Programs["drop_all"], Interface: l.index})
		if err == nil {
			defer held.Close()
			err = w.store.AttachXDP("drop", "eth0", XDPOptions{})
		}
		if !errors.Is(err, xdp.ErrForeign) {
			t.Errorf("attached beside a bpf_link: %v", err)
			return nil
		}
		for _, want := range []string{"\"drop_all\"", "bpf_link", fmt.Sprintf("(pid %d)", os.Getpid())} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not name %s", err, want)
			}
		}
		return nil
	})
	if left := w.chain("xdp"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
