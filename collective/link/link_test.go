package link

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// memory is a sink that keeps a message.
type memory struct {
	b      []byte
	direct bool
	mu     sync.Mutex
	stored int
}

func (m *memory) Direct(off, n int) []byte {
	if !m.direct {
		return nil
	}
	return m.b[off:min(off+n, off+100_000)]
}

func (m *memory) Store(off int, b []byte) {
	m.mu.Lock()
	m.stored += copy(m.b[off:], b)
	m.mu.Unlock()
}

// tcp returns both ends of a connection of the kernel.
func tcp(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
	return b
}

func header(step uint32, n int) *Header {
	return &Header{Key: Key{Context: 1, Sequence: 2, Step: step}, Fingerprint: 3, Total: uint64(n)}
}

// exchange sends messages of some sizes each way at a time, of which each end reads the last one first.
func exchange(t *testing.T, a, b Link, sizes []int) {
	t.Helper()
	var wg sync.WaitGroup
	for _, ends := range [][2]Link{{a, b}, {b, a}} {
		wg.Go(func() {
			var p Pending
			for i, n := range sizes {
				m := pattern(n, i)
				ends[0].Send(header(uint32(i), n), [][]byte{m[:n/3], m[n/3:]}, &p)
			}
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
		})
		for _, half := range [][]int{{len(sizes) - 1}, nil} { // a goroutine waits for the last one alone
			wg.Go(func() {
				if half == nil {
					for i := range len(sizes) - 1 {
						half = append(half, i)
					}
				}
				for _, i := range half {
					m := &memory{b: make([]byte, sizes[i]), direct: i%2 == 0}
					if err := ends[1].Recv(header(uint32(i), sizes[i]), m); err != nil {
						t.Errorf("message %d: %v", i, err)
						return
					}
					if !bytes.Equal(m.b, pattern(sizes[i], i)) {
						t.Errorf("message %d of %d bytes differs", i, sizes[i])
					}
				}
			})
		}
	}
	wg.Wait()
}

func TestMessagesArriveWhole(t *testing.T) {
	sizes := []int{0, 1, 8, 4095, 4096, 4097, inline - 1, inline, inline + 1, piece + 5, 1 << 20, 3, 10}
	a, b := tcp(t)
	exchange(t, NewSingle(a), NewSingle(b), sizes)
	c, d := net.Pipe()
	exchange(t, NewSingle(c), NewSingle(d), sizes)
}

// TestMessagesThatDoNotFitWait has more messages come early than may be kept: they are received in their order.
func TestMessagesThatDoNotFitWait(t *testing.T) {
	a, b := net.Pipe()
	from, to := NewSingle(a), NewSingle(b)
	const n = ahead/2 + 100
	var p Pending
	for i := range 3 {
		from.Send(header(uint32(i), n), [][]byte{make([]byte, n)}, &p)
	}
	var wg sync.WaitGroup
	for _, i := range []uint32{2, 1, 0} {
		wg.Go(func() {
			if err := to.Recv(header(i, n), &memory{b: make([]byte, n)}); err != nil {
				t.Error(i, err)
			}
		})
	}
	wg.Wait()
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

func TestOtherMessagesAreErrors(t *testing.T) {
	for name, change := range map[string]func(h *Header){
		"parameters": func(h *Header) { h.Fingerprint++ },
		"length":     func(h *Header) { h.Total++ },
	} {
		a, b := net.Pipe()
		from, to := NewSingle(a), NewSingle(b)
		var p Pending
		from.Send(header(0, 1), [][]byte{{1}}, &p)
		want := header(0, 1)
		change(want)
		if err := to.Recv(want, &memory{}); !errors.Is(err, ErrMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClosedLinksFail(t *testing.T) {
	why := errors.New("why")
	a, b := net.Pipe()
	from, to := NewSingle(a), NewSingle(b)
	var p Pending
	from.Send(header(0, 1<<20), [][]byte{make([]byte, 1<<20)}, &p)
	done := make(chan error)
	go func() { done <- to.Recv(header(9, 1), &memory{}) }()
	to.Close(why)
	if err := <-done; !errors.Is(err, why) {
		t.Error(err)
	}
	if err := to.Recv(header(9, 1), &memory{}); !errors.Is(err, why) {
		t.Error(err)
	}
	if err := p.Wait(); err == nil {
		t.Error("a message that was not read was sent")
	}
	from.Send(header(1, 1), [][]byte{{1}}, &p)
	if err := p.Wait(); err == nil {
		t.Error("a link that has failed sends")
	}
	if err := from.Recv(header(0, 1), &memory{}); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

func FuzzHeader(f *testing.F) {
	b := make([]byte, HeaderSize)
	h := header(4, 100)
	h.Kind, h.Length, h.Offset = Data, 40, 60
	h.Put(b)
	f.Add(b)
	h.Offset = 1 << 63
	h.Put(b)
	f.Add(bytes.Clone(b))
	f.Add(make([]byte, HeaderSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderSize {
			return
		}
		h, err := ParseHeader(b)
		if err != nil {
			if !errors.Is(err, ErrHeader) {
				t.Error(err)
			}
			return
		}
		if h.Offset+h.Length < h.Offset || h.Offset+h.Length > h.Total && h.Kind == Data || h.Total > MaxMessage {
			t.Errorf("%+v passes", h)
		}
		out := make([]byte, HeaderSize)
		if h.Put(out); !bytes.Equal(out, b[:HeaderSize]) {
			t.Errorf("%x becomes %x", b[:HeaderSize], out)
		}
	})
}
