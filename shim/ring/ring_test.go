package ring

import (
	"bytes"
	"errors"
	"sync/atomic"
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
	b, err := unix.Mmap(fd, 0, header+2*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
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
	p := &Memory{page: page{b: b, size: size}}
	p.In.direction, p.Out.direction = p.direction(1), p.direction(0)
	return p
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

// TestDoorbellsOfCommit: a byte for each arming, where the consumer wants one.
func TestDoorbellsOfCommit(t *testing.T) {
	for _, tc := range []struct {
		state      uint8
		want       uint32
		bytes      int
		doorbells  int
		bytes2     int // written after that
		doorbells2 int
	}{
		{notifyArmed, 0, 1, 1, 100, 0},
		{notifyWatched, 0, 1, 1, 100, 0},
		{notifyDisarmed, 0, 1, 0, 100, 0},
		{notifySpinning, 10, 10, 0, 1, 1},
		{notifySpinning, 10, 11, 1, 1, 0},
		{notifyAsleep, 10, 11, 1, 1, 0},
		{77, 0, 1, 0, 1, 0},
	} {
		m, b := create(t, 4096)
		p := program(b, 4096)
		for epoch := range uint32(3) { // each is answered once
			p.In.arm.Store(wakeup(tc.state, epoch, tc.want))
			before := int(m.Out.Doorbells())
			if n := m.Out.Commit(tc.bytes); n != tc.doorbells {
				t.Errorf("%+v: %d doorbell bytes", tc, n)
			}
			n := m.Out.Commit(tc.bytes2)
			if n != tc.doorbells2 || int(m.Out.Doorbells()) != before+tc.doorbells+tc.doorbells2 || p.In.Doorbells() != m.Out.Doorbells() {
				t.Errorf("%+v: %d doorbell bytes more", tc, n)
			}
			if notified := m.Out.notified.Load(); n+tc.doorbells > 0 && answerTo(p.In.arm.Load(), notified) != answerNotified {
				t.Errorf("%+v: notified is %#x", tc, notified)
			}
			p.In.Discard(tc.bytes + tc.bytes2)
		}
	}
}

// TestNoDoorbellForNothing: a program that has read all before it armed gets no doorbell byte for that.
func TestNoDoorbellForNothing(t *testing.T) {
	m, b := create(t, 4096)
	p := program(b, 4096)
	m.Out.own, m.Out.epoch = 5, 1
	p.In.head.Store(8)
	p.In.arm.Store(wakeup(notifyArmed, 2, 0))
	if n := m.Out.Commit(3); n != 0 || m.Out.notified.Load() != 0 {
		t.Errorf("%d doorbell bytes", n)
	}
}

// TestArm: an arming that was answered gets another epoch, and one that was not stays.
func TestArm(t *testing.T) {
	m, b := create(t, 4096)
	p := program(b, 4096)
	for i, want := range []int{1, 0, 1, 0, 0} { // armed from the beginning, answered, armed, suppressed, and suppressed again
		if n := p.Out.Commit(1); n != want {
			t.Errorf("%d: %d doorbell bytes", i, n)
		}
		switch i {
		case 1:
			m.In.Arm()
		case 2, 3:
			m.In.Suppress()
			m.In.Suppress()
		}
	}
	m.In.Arm()
	armed := m.In.arm.Load()
	m.In.Arm()
	if m.In.arm.Load() != armed || p.Out.Commit(1) != 1 {
		t.Errorf("armed twice: %#x, then %#x", armed, m.In.arm.Load())
	}
	m.In.epoch = epochMask
	p.Out.notified.Store(wakeup(answerNotified, epochMask, 0))
	if m.In.Arm(); epochOf(m.In.arm.Load()) != 0 {
		t.Errorf("after the last epoch: %#x", m.In.arm.Load())
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
	if !p.In.waits() || p.In.space.Load()&spaceByte == 0 {
		t.Error("the program does not know")
	}
	p.In.Emptied()
	if p.In.waits() || m.Out.AwaitSpace() || !p.In.waits() {
		t.Error("answered, and asked again")
	}
	p.In.Discard(1)
	if !m.Out.AwaitSpace() {
		t.Error("no space")
	}
	p.Out.Commit(3000)
	p.Out.space.Store(1<<epochShift | spaceFilled)
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
	m.In.own, m.Out.own, p.In.own, p.Out.own = 4090, 4090, 4090, 4090 // around the end
	for _, d := range []*direction{&m.In.direction, &m.Out.direction} {
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
	for _, v := range []uint64{4097, tailLeft, ^uint64(0)} {
		m.In.tail.Store(v)
		_, err := m.In.Len()
		_, err2 := m.In.Peek(10)
		_, _, err3 := m.Drain()
		if !errors.Is(err, ErrViolation) || !errors.Is(err2, ErrViolation) || !errors.Is(err3, ErrViolation) || m.In.Filled() {
			t.Errorf("tail %d: %v, %v, %v", v, err, err2, err3)
		}
	}
	m.In.tail.Store(0)
	for _, v := range []uint64{1, 1 << 31, ^uint64(4096)} { // read before it was written; longer ago than the ring is
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
		words := []*atomic.Uint64{p.In.head, p.In.arm, p.Out.tail, p.Out.notified, p.In.tail, p.In.notified}
		for i := uint64(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				words[i%uint64(len(words))].Store(i * 2654435761 >> (i % 32) << (i % 37))
				p.Out.space.Store(uint32(i))
				p.In.freed.Store(uint32(i))
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
			if doorbells := m.Out.Commit(n); doorbells > 1 {
				t.Fatalf("%d doorbell bytes", doorbells)
			}
		}
		m.In.Filled()
	}
	close(stop)
	<-done
}
