package ring

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func create(t testing.TB, size int) (*Memory, []byte) {
	t.Helper()
	m, fd, err := Create(size)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	b, err := unix.Mmap(fd, 0, headerSize+2*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.Close()
		_ = unix.Munmap(b)
	})
	return m, b
}

// program is the program's side: the same memory, mapped once more, with the two directions exchanged.
func program(b []byte, size int) *Memory {
	p := &Memory{b: b, size: uint32(size)}
	p.In.half, p.Out.half = p.direction(1), p.direction(0)
	return p
}

// TestLayout compares offsets with what a C compiler says about ring.h.
func TestLayout(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc)")
	}
	dir := t.TempDir()
	source := `#include "ring.h"
#include <stddef.h>
#include <stdio.h>
#define D(f) offsetof(struct ring_direction, f)
#define P(f) offsetof(struct ring_page, f)
int main(void) {
	printf("%d %d %d %zu %zu %zu %zu %zu %zu %zu %zu | ", RING_MAGIC, RING_VERSION, RING_HEADER, P(magic), P(version), P(size), P(state), P(shut), P(fin), P(direction), P(locks));
	printf("%zu %zu %zu %zu %zu %zu %zu %zu %zu | ", sizeof(struct ring_direction), D(head), D(want), D(taken), D(tail), D(doorbells), D(notifier), D(space), D(fill));
	printf("%d %d %d %d %d | %d %d %d %d %d\n", RING_CONNECTING, RING_OPEN, RING_MOVED, RING_CLOSED, RING_FAILED, RING_ARMED, RING_DISARMED, RING_SUPPRESSED, RING_ASLEEP, RING_WOKEN);
}`
	file, bin := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-std=c11", "-I../preload", "-o", bin, file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintln(Magic, Version, headerSize, magicAt, versionAt, sizeAt, stateAt, shutAt, finAt, directionAt, locksAt, "|",
		directionSize, headAt, wantAt, takenAt, tailAt, doorbellsAt, notifierAt, spaceAt, fillAt, "|",
		int(Connecting), int(Open), int(Moved), int(Closed), int(Failed), "|", notifierArmed, notifierDisarmed, notifierSuppressed, notifierAsleep, notifierWoken)
	if string(got) != want {
		t.Errorf("C:  %sGo: %s", got, want)
	}
}

func TestSizes(t *testing.T) {
	for _, size := range []int{0, -4096, 2048, 5000, 3 << 12, 1 << 31} {
		if m, fd, err := Create(size); err == nil {
			t.Errorf("size %d: no error", size)
			_ = m.Close()
			unix.Close(fd)
		}
	}
}

// TestSeals: no holder of the descriptor can change the size, which would kill the node (SIGBUS).
func TestSeals(t *testing.T) {
	m, fd, err := Create(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	defer unix.Close(fd)
	for _, size := range []int64{0, 4096, 1 << 20} {
		if err := unix.Ftruncate(fd, size); err != unix.EPERM {
			t.Errorf("ftruncate to %d: %v", size, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != unix.EPERM {
		t.Errorf("another seal: %v", err)
	}
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); err != nil {
		t.Logf("a hole: %v", err)
	}
	m.SetState(Open) // a hole reads as zeros
}

// TestBytes moves bytes both ways, around the end of the ring, by pieces of many sizes.
func TestBytes(t *testing.T) {
	m, b := create(t, 4096)
	p := program(b, 4096)
	for _, dir := range []struct {
		out *Producer
		in  *Consumer
	}{{&m.Out, &p.In}, {&p.Out, &m.In}} {
		sent, got := byte(0), byte(0)
		for n := 1; n < 9000; n += 97 {
			space, err := dir.out.Reserve(n)
			if err != nil || len(space[0])+len(space[1]) != min(n, 4096) {
				t.Fatalf("%d bytes of %d, %v", len(space[0])+len(space[1]), n, err)
			}
			for _, s := range space {
				for i := range s {
					s[i] = sent
					sent++
				}
			}
			dir.out.Commit(min(n, 4096))
			for {
				data, err := dir.in.Peek(1000)
				if err != nil {
					t.Fatal(err)
				}
				if len(data[0]) == 0 {
					break
				}
				for _, d := range data {
					for _, v := range d {
						if v != got {
							t.Fatalf("byte %d, want %d", v, got)
						}
						got++
					}
				}
				dir.in.Discard(len(data[0]) + len(data[1]))
			}
		}
	}
}

// TestDoorbellsOfCommit has the doorbell bytes for each state of the consumer.
func TestDoorbellsOfCommit(t *testing.T) {
	for _, tc := range []struct {
		notifier, want uint32
		bytes          int
		doorbells      int
		next           uint32
		bytes2         int // written after that
		doorbells2     int
	}{
		{notifierArmed, 0, 1, 1, notifierDisarmed, 100, 0},
		{notifierDisarmed, 0, 1, 0, notifierDisarmed, 100, 0},
		{notifierSuppressed, 10, 10, 0, notifierSuppressed, 1, 1},
		{notifierSuppressed, 10, 11, 1, notifierDisarmed, 1, 0},
		{notifierAsleep, 10, 10, 1, notifierWoken, 1, 1},
		{notifierAsleep, 10, 11, 2, notifierDisarmed, 1, 0},
		{77, 0, 1, 0, 77, 1, 0},
	} {
		m, b := create(t, 4096)
		p := program(b, 4096)
		p.In.notifier.Store(tc.notifier)
		p.In.want.Store(tc.want)
		if n := m.Out.Commit(tc.bytes); n != tc.doorbells || p.In.notifier.Load() != tc.next {
			t.Errorf("%+v: %d doorbell bytes, then state %d", tc, n, p.In.notifier.Load())
		}
		if n := m.Out.Commit(tc.bytes2); n != tc.doorbells2 || int(m.Out.Doorbells()) != tc.doorbells+tc.doorbells2 || p.In.Doorbells() != m.Out.Doorbells() {
			t.Errorf("%+v: %d doorbell bytes more", tc, n)
		}
	}
}

// TestSpace: the producer learns of space that came while it asked for it.
func TestSpace(t *testing.T) {
	m, b := create(t, 4096)
	p := program(b, 4096)
	m.Out.Commit(4096)
	if space, err := m.Out.Reserve(1); err != nil || len(space[0]) != 0 || m.Out.AwaitSpace() {
		t.Fatalf("a full ring has %d bytes, %v", len(space[0]), err)
	}
	if p.In.space.Load() != 1 {
		t.Error("the program does not know")
	}
	p.In.Discard(1)
	if !m.Out.AwaitSpace() {
		t.Error("no space")
	}
	p.Out.Commit(3000)
	p.Out.fill.Store(1)
	if m.In.Filled() {
		t.Error("emptied with less than half of the ring free")
	}
	m.In.Discard(1000)
	if !m.In.Filled() || !m.In.Full() {
		t.Error("not emptied with half of the ring free")
	}
	m.In.Emptied()
	if m.In.Filled() || m.In.Full() {
		t.Error("emptied twice")
	}
}

func TestDrain(t *testing.T) {
	m, b := create(t, 4096)
	p := program(b, 4096)
	move := func(out *Producer, text string) {
		space, err := out.Reserve(len(text))
		if err != nil {
			t.Fatal(err)
		}
		n := copy(space[0], text)
		copy(space[1], text[n:])
		out.Commit(len(text))
	}
	for _, d := range []*half{&m.In.half, &m.Out.half, &p.In.half, &p.Out.half} { // around the end
		d.own = 4090
		d.head.Store(4090)
		d.tail.Store(4090)
	}
	move(&p.Out, "from the program")
	move(&m.Out, "to the program")
	p.In.Discard(3)
	from, to, err := m.Drain()
	if err != nil || string(from) != "from the program" || string(to) != "the program" {
		t.Errorf("%q, %q, %v", from, to, err)
	}
}

// TestViolations: indexes that cannot be are reported by all methods that read them, and change nothing else.
func TestViolations(t *testing.T) {
	m, b := create(t, 4096)
	p := program(b, 4096)
	for _, v := range []uint32{4097, 1 << 31, ^uint32(0)} {
		m.In.tail.Store(v)
		_, err := m.In.Len()
		_, err2 := m.In.Peek(10)
		_, _, err3 := m.Drain()
		if !errors.Is(err, ErrViolation) || !errors.Is(err2, ErrViolation) || !errors.Is(err3, ErrViolation) || m.In.Filled() {
			t.Errorf("tail %d: %v, %v, %v", v, err, err2, err3)
		}
	}
	m.In.tail.Store(0)
	for _, v := range []uint32{1, 1 << 31, ^uint32(4096)} { // read before it was written; longer ago than the ring is
		m.Out.head.Store(v)
		_, err := m.Out.Reserve(10)
		_, err2 := m.Out.Used()
		_, _, err3 := m.Drain()
		if !errors.Is(err, ErrViolation) || !errors.Is(err2, ErrViolation) || !errors.Is(err3, ErrViolation) {
			t.Errorf("head %d: %v, %v, %v", v, err, err2, err3)
		}
	}
	m.Out.head.Store(0)
	// The node's own indexes are its own: the program's changes have no effect.
	p.Out.Commit(5)
	m.In.Discard(2)
	m.In.head.Store(4000)
	if n, err := m.In.Len(); n != 3 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	m.Out.Commit(7)
	m.Out.tail.Store(9999)
	if n, err := m.Out.Used(); n != 7 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestHostileWhileReading changes indexes and states all the time. The node must not fault, and moves no byte that is outside.
func TestHostileWhileReading(t *testing.T) {
	m, b := create(t, 4096)
	p := program(b, 4096)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		words := []func(uint32){p.In.head.Store, p.In.notifier.Store, p.In.want.Store, p.Out.tail.Store, p.Out.notifier.Store, p.Out.fill.Store, p.In.space.Store}
		for i := uint32(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				words[i%uint32(len(words))](i * 2654435761 >> (i % 32))
			}
		}
	}()
	var sink bytes.Buffer
	for range 200_000 {
		data, err := m.In.Peek(4096)
		if err == nil {
			if len(data[0])+len(data[1]) > 4096 {
				t.Fatal("more than the ring has")
			}
			sink.Reset()
			sink.Write(data[0])
			sink.Write(data[1])
			m.In.Discard(sink.Len())
		}
		if space, err := m.Out.Reserve(100); err == nil {
			n := copy(space[0], "some bytes")
			if doorbells := m.Out.Commit(n); doorbells > 2 {
				t.Fatalf("%d doorbell bytes", doorbells)
			}
		}
		m.In.Filled()
	}
	close(stop)
	<-done
}
