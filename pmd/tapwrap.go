package pmd

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
)

// TapConfig describes a Tap wrapper. With neither Rx nor Tx set, both are copied.
type TapConfig struct {
	Rx, Tx    bool
	Epoch     int64 // ns since the Unix epoch at clock zero: a packet's capture time is its clock time + Epoch
	SnapLen   int   // bytes kept of each packet; 0 is all, up to capture.MaxRecord
	MaxBytes  int64 // the capture ends before it is longer; 0 is no limit
	Interface int   // interface of the writer
}

// TapStats counts packets that passed a Tap.
type TapStats struct {
	Written uint64 // given to the writer, which may hold back the last of them
	Lost    uint64 // not written: MaxBytes was reached, the writer failed or cannot hold them
}

// Tap is a Driver around a Driver that copies what passes to a capture, with the direction as the
// packet's flags. Traffic never notices: what cannot be written is counted.
//
// Received packets carry their arrival time, sent ones the now of the Tx that took them. Packets
// that the wrapped driver does not take are not copied until it does.
type Tap struct {
	inner   Driver
	w       *capture.Writer
	cfg     TapConfig
	rec     capture.Record
	stage   []byte      // the bytes of the packets of one Tx, before the wrapped driver takes them
	spans   []stagedTap // the packets in stage
	written atomic.Uint64
	lost    atomic.Uint64
	closed  bool
}

// stagedTap is a packet in Tap.stage: where it ends, its length, and the descriptors up to its end.
type stagedTap struct{ end, size, descs int }

// NewTap wraps inner, which it closes with itself. It borrows w, which the caller closes after it
// and nobody else uses meanwhile.
func NewTap(inner Driver, w *capture.Writer, cfg TapConfig) *Tap {
	if !cfg.Rx && !cfg.Tx {
		cfg.Rx, cfg.Tx = true, true
	}
	if cfg.SnapLen <= 0 || cfg.SnapLen > capture.MaxRecord {
		cfg.SnapLen = capture.MaxRecord
	}
	return &Tap{inner: inner, w: w, cfg: cfg}
}

// Rx implements Driver: the wrapped driver's, and a copy of what it brought.
func (t *Tap) Rx(now clock.Time, b *packet.Batch) (int, error) {
	first := len(b.D)
	n, err := t.inner.Rx(now, b)
	if !t.cfg.Rx {
		return n, err
	}
	for at := first; at < len(b.D); {
		chain := max(Chain(b.D[at:]), 1)
		data, size := t.bytes(b, b.D[at:at+chain])
		t.write(data, size, b.Time(at), capture.FlagInbound)
		at += chain
	}
	return n, err
}

// Tx implements Driver: the wrapped driver's, and a copy of what it took. The copy is made before,
// because the frames are the wrapped driver's afterwards, and written after, because only then it
// is known what it took.
func (t *Tap) Tx(now clock.Time, b *packet.Batch) (int, error) {
	if !t.cfg.Tx {
		return t.inner.Tx(now, b)
	}
	t.stage = t.stage[:0]
	for at := 0; at < len(b.D); {
		chain := max(Chain(b.D[at:]), 1)
		d := b.D[at : at+chain]
		_, size := Count(d)
		at += chain
		t.stage = gatherChain(t.stage, b.Arena, d, t.cfg.SnapLen)
		t.spans = append(t.spans, stagedTap{end: len(t.stage), size: int(size), descs: at})
	}
	n, err := t.inner.Tx(now, b)
	t.settle(now, n)
	return n, err
}

// settle writes those staged packets that the first n descriptors are, and forgets the others.
func (t *Tap) settle(now clock.Time, n int) {
	from := 0
	for _, s := range t.spans {
		if s.descs > n {
			break
		}
		t.write(t.stage[from:s.end], s.size, int64(now), capture.FlagOutbound)
		from = s.end
	}
	t.stage, t.spans = t.stage[:0], t.spans[:0]
}

// bytes returns what is kept of the packet whose descriptors are d, and its length. Only a packet
// of several frames is copied for that.
func (t *Tap) bytes(b *packet.Batch, d []packet.Desc) ([]byte, int) {
	if len(d) == 1 {
		data := b.Arena.Bytes(&d[0])
		return data[:min(len(data), t.cfg.SnapLen)], len(data)
	}
	_, size := Count(d)
	t.stage = gatherChain(t.stage[:0], b.Arena, d, t.cfg.SnapLen)
	return t.stage, int(size)
}

// write gives one packet to the writer.
func (t *Tap) write(data []byte, size int, at int64, dir capture.PacketFlags) {
	const overhead = 64 + 128 // bytes around a packet, and of the counters at the end, at most
	if t.cfg.MaxBytes > 0 && t.w.Written()+int64(len(data))+overhead > t.cfg.MaxBytes {
		t.lost.Add(1)
		return
	}
	t.rec = capture.Record{
		Data: data, Len: size, Time: at + t.cfg.Epoch, Interface: t.cfg.Interface,
		Meta: capture.Meta{Has: capture.HasFlags, Flags: dir},
	}
	if t.w.Write(&t.rec) != nil {
		t.lost.Add(1)
		return
	}
	t.written.Add(1)
}

// Copied tells what became of the copies. Any goroutine may call it.
func (t *Tap) Copied() TapStats {
	return TapStats{Written: t.written.Load(), Lost: t.lost.Load()}
}

// Info implements Driver: the wrapped driver's, with the tap named in Granted.
func (t *Tap) Info() Info {
	info := t.inner.Info()
	if info.Granted != "" {
		info.Granted += ", "
	}
	info.Granted += "copied to a " + t.w.Format().String()
	return info
}

// Close implements Driver. It closes the wrapped driver, gives the writer the interface's counters
// and flushes it; a capture that is not complete is an error here, and only here.
func (t *Tap) Close() error {
	if t.closed {
		return nil
	}
	t.closed = true
	err := t.inner.Close()
	info := t.inner.Info()
	s := info.Stats
	flush := errors.Join(t.w.SetCounters(t.cfg.Interface, capture.Counters{
		Received: s.RxPackets + s.RxDropped, Dropped: s.RxDropped, Accepted: s.RxPackets, Delivered: t.written.Load(),
	}), t.w.Flush())
	if flush != nil {
		flush = &OpError{Op: "tap", Device: info.Device, Queue: info.Queue, Err: fmt.Errorf("%d packets written, %d lost: %w", t.written.Load(), t.lost.Load(), flush)}
	}
	return errors.Join(err, flush)
}

// Holds implements ring.Holder: nothing. A Tap keeps copies, never frames; those of the wrapped
// driver are its own to tell.
func (t *Tap) Holds(func(off uint32)) {}
