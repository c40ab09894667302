package pcap_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/pcap"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

var _ pmd.Driver = (*pcap.Capture)(nil)

// copied is a packet in a Capture's capture.
type copied struct {
	Time int64
	Len  int
	Data string
	Flag capture.PacketFlags
}

func readCopies(t *testing.T, b []byte) []copied {
	t.Helper()
	r, err := capture.NewMemory(b)
	if err != nil {
		t.Fatal(err)
	}
	var all []copied
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, copied{rec.Time, rec.Len, string(rec.Data), rec.Meta.Flags})
	}
}

func newWriter(t testing.TB, out io.Writer) *capture.Writer {
	t.Helper()
	w, err := capture.NewWriter(out, capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: capture.LinkTypeEthernet, Name: "a"}}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// pair is a memory pair with its pools.
type pair struct {
	arena        *ring.Arena
	poolA, poolB *ring.Pool
	a, b         *pmd.Memory
}

func newPair(t testing.TB, framesA, framesB, slots int) *pair {
	t.Helper()
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: framesA + framesB, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arena.Close() })
	w := &pair{arena: arena}
	w.poolA, _ = arena.Cut(framesA)
	w.poolB, _ = arena.Cut(framesB)
	w.a, w.b, err = pmd.NewMemory(pmd.MemoryConfig{A: w.poolA, B: w.poolB, Slots: slots})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *pair) audit(t testing.TB, more ...ring.Holder) {
	t.Helper()
	if err := ring.Audit(w.arena, append(more, w.poolA, w.poolB, w.a, w.b)...); err != nil {
		t.Fatal(err)
	}
}

// batchOf fills frames of the pair's first pool: a packet per text, cut into pieces at '|'.
func (w *pair) batchOf(t testing.TB, texts ...string) *packet.Batch {
	t.Helper()
	b := packet.NewBatch(w.arena.View(), packet.BatchSize)
	for _, text := range texts {
		pieces := bytes.Split([]byte(text), []byte("|"))
		for i, p := range pieces {
			off, ok := w.poolA.Get()
			if !ok {
				t.Fatal("no frame")
			}
			d := packet.Desc{Off: off, Len: uint16(copy(w.arena.Mem[off:off+2048], p))}
			if i < len(pieces)-1 {
				d.Flags = packet.FlagMore
			}
			b.Append(d)
		}
	}
	return b
}

func TestCaptureCopiesBothDirections(t *testing.T) {
	w := newPair(t, 32, 32, 16)
	var file bytes.Buffer
	out := newWriter(t, &file)
	c := pcap.NewCapture(w.a, out, pcap.CaptureConfig{Epoch: 1_000_000})

	sent := w.batchOf(t, "ping", "two|frames", "bye")
	if n, err := c.Tx(5, sent); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	got := packet.NewBatch(w.arena.View(), 16)
	w.b.Rx(6, got)
	if n, err := w.b.Tx(7, got); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	got.Reset()
	if n, err := c.Rx(1<<33, got); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	w.audit(t, c, held{got})
	w.poolA.PutBatch(got)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	const late = 1_000_000 + 1<<33
	want := []copied{
		{1_000_005, 4, "ping", capture.FlagOutbound},
		{1_000_005, 9, "twoframes", capture.FlagOutbound},
		{1_000_005, 3, "bye", capture.FlagOutbound},
		{late, 4, "ping", capture.FlagInbound},
		{late, 9, "twoframes", capture.FlagInbound},
		{late, 3, "bye", capture.FlagInbound},
	}
	if d := cmp.Diff(want, readCopies(t, file.Bytes())); d != "" {
		t.Error(d)
	}
	if s := c.Stats(); s != (pcap.CaptureStats{Written: 6}) {
		t.Errorf("%+v", s)
	}
	r, _ := capture.NewMemory(file.Bytes())
	for _, err := r.Next(); err == nil; {
		_, err = r.Next()
	}
	if c := r.Interfaces()[0].Counters; c == nil || c.Received != 3 || c.Accepted != 3 || c.Delivered != 6 || c.End != late {
		t.Errorf("counters %+v", c)
	}
}

func TestCaptureCopiesOnlyTheDirectionAsked(t *testing.T) {
	for _, tt := range []struct {
		cfg  pcap.CaptureConfig
		want []copied
	}{
		{pcap.CaptureConfig{Rx: true}, []copied{{9, 2, "in", capture.FlagInbound}}},
		{pcap.CaptureConfig{Tx: true}, []copied{{1, 3, "out", capture.FlagOutbound}}},
	} {
		w := newPair(t, 8, 8, 16)
		var file bytes.Buffer
		c := pcap.NewCapture(w.a, newWriter(t, &file), tt.cfg)
		c.Tx(1, w.batchOf(t, "out"))
		w.b.Tx(2, w.batchOf(t, "in"))
		got := w.batchOf(t, "there before")
		c.Rx(9, got)
		c.Close()
		if d := cmp.Diff(tt.want, readCopies(t, file.Bytes())); d != "" {
			t.Error(d)
		}
	}
}

func TestCaptureCopiesWhatWasTakenAndOnce(t *testing.T) {
	w := newPair(t, 16, 16, 2)
	var file bytes.Buffer
	out := newWriter(t, &file)
	c := pcap.NewCapture(w.a, out, pcap.CaptureConfig{})
	b := w.batchOf(t, "a", "b", "c|d", "e")
	peer := packet.NewBatch(w.arena.View(), 16)
	for now := clock.Time(1); b.Len() > 0; now++ {
		n, err := c.Tx(now, b)
		if err != nil {
			t.Fatal(err)
		}
		b.Consume(n)
		w.b.Rx(now, peer)
		w.poolB.PutBatch(peer)
	}
	out.Flush()
	want := []copied{{1, 1, "a", 2}, {1, 1, "b", 2}, {2, 2, "cd", 2}, {3, 1, "e", 2}}
	if d := cmp.Diff(want, readCopies(t, file.Bytes())); d != "" {
		t.Error(d)
	}
}

func TestCaptureKeepsTheSnapLength(t *testing.T) {
	w := newPair(t, 8, 8, 8)
	var file bytes.Buffer
	c := pcap.NewCapture(w.a, newWriter(t, &file), pcap.CaptureConfig{SnapLen: 5})
	c.Tx(1, w.batchOf(t, "0123456789", "012|345|678"))
	w.b.Tx(1, w.batchOf(t, "0123456789"))
	c.Rx(2, packet.NewBatch(w.arena.View(), 8))
	c.Close()
	want := []copied{{1, 10, "01234", 2}, {1, 9, "01234", 2}, {2, 10, "01234", 1}}
	if d := cmp.Diff(want, readCopies(t, file.Bytes())); d != "" {
		t.Error(d)
	}
}

// brokenDisk fails every write.
type brokenDisk struct{}

var errDisk = errors.New("disk on fire")

func (brokenDisk) Write([]byte) (int, error) { return 0, errDisk }

func TestCaptureFailureDoesNotAffectTraffic(t *testing.T) {
	w := newPair(t, 8, 8, 8)
	c := pcap.NewCapture(w.a, newWriter(t, brokenDisk{}), pcap.CaptureConfig{})
	peer := packet.NewBatch(w.arena.View(), 8)
	long := string(make([]byte, 2000))
	const all = 200 // more than the writer holds back
	for range all {
		if n, err := c.Tx(1, w.batchOf(t, long)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := w.b.Rx(1, peer); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		w.poolB.PutBatch(peer)
	}
	if s := c.Stats(); s.Lost == 0 || s.Written+s.Lost != all {
		t.Errorf("%+v", s)
	}
	if err := c.Close(); !errors.Is(err, errDisk) {
		t.Errorf("Close: %v", err)
	}
	w.audit(t)
}

func TestCaptureStopsAtItsBound(t *testing.T) {
	w := newPair(t, 8, 8, 8)
	var file bytes.Buffer
	out := newWriter(t, &file)
	c := pcap.NewCapture(w.a, out, pcap.CaptureConfig{MaxBytes: 4300})
	peer := packet.NewBatch(w.arena.View(), 8)
	for range 10 {
		c.Tx(1, w.batchOf(t, string(make([]byte, 1000))))
		w.b.Rx(1, peer)
		w.poolB.PutBatch(peer)
	}
	c.Close()
	out.Close()
	if s := c.Stats(); s.Written != 3 || s.Lost != 7 || file.Len() > 4300 {
		t.Errorf("%+v, %d bytes", s, file.Len())
	}
}

func TestCapturePassesErrorsAndInfoOn(t *testing.T) {
	w := newPair(t, 8, 8, 8)
	var file bytes.Buffer
	out := newWriter(t, &file)
	c := pcap.NewCapture(w.a, out, pcap.CaptureConfig{})
	c.Tx(1, w.batchOf(t, "x"))
	got, inner := c.Info(), w.a.Info()
	inner.Negotiated += ", copied to a pcapng"
	if d := cmp.Diff(inner, got, cmp.Comparer(func(a, b *pmd.Notifier) bool { return a == b })); d != "" {
		t.Error(d)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	b := packet.NewBatch(w.arena.View(), 8)
	if _, err := c.Rx(1, b); !errors.Is(err, pmd.ErrClosed) {
		t.Error(err)
	}
	if _, err := c.Tx(1, b); !errors.Is(err, pmd.ErrClosed) {
		t.Error(err)
	}
}

// placerOf is a driver that can place payload.
type placerOf struct {
	pmd.Driver
	placer pmd.Placer
}

func (d *placerOf) Info() pmd.Info {
	i := d.Driver.Info()
	i.Placer, i.Caps = &d.placer, i.Caps|pmd.CapExternal
	return i
}

// A capture needs the bytes of a packet, so it does not offer to place them elsewhere, and the loop of a host gets no way past it.
func TestACaptureSeesPayloadThatCouldBePlaced(t *testing.T) {
	w := newPair(t, 8, 8, 4)
	inner := &placerOf{Driver: w.b}
	var out bytes.Buffer
	writer := newWriter(t, &out)
	c := pcap.NewCapture(inner, writer, pcap.CaptureConfig{Rx: true})
	if i := c.Info(); i.Placer != nil || i.Caps&pmd.CapExternal != 0 {
		t.Error("the capture offers to place payload, or takes packets without theirs")
	}
	l, err := stack.NewLoop(stack.Config{Devices: []pmd.Driver{c}, Pool: w.poolB, Engine: gpukern.NewCPU(gpukern.Config{}), Handler: placingHandler{}})
	if err != nil {
		t.Fatal(err)
	}
	if how, _, _ := inner.placer.Place(nil, 0); how != pmd.PlaceInFrames {
		t.Errorf("behind the capture: %v", how)
	}
	if err := errors.Join(l.Close(), c.Close()); err != nil {
		t.Error(err)
	}
}

// placingHandler is a Handler that places payload.
type placingHandler struct{ stack.Bridge }

func (placingHandler) PlacePayload([]byte, int) (pmd.Placement, int, [][]byte) {
	return pmd.PlaceDirect, 1, nil
}
