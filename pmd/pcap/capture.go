package pcap

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// CaptureConfig describes a Capture wrapper. With neither Rx nor Tx set, both are copied: a capture of nothing is of no use,
// so that the zero value means all.
type CaptureConfig struct {
	Rx, Tx    bool
	Epoch     int64 // ns since the Unix epoch at clock zero: a packet's capture time is its clock time + Epoch
	SnapLen   int   // bytes kept of each packet; 0 is all, up to capture.MaxRecord
	MaxBytes  int64 // the capture stops before it is longer; 0 is no limit
	Interface int   // interface of the writer
}

// CaptureStats counts packets that passed a Capture. Their sum is the number of packets in the directions that it copies.
type CaptureStats struct {
	Written uint64 // given to the writer, which may hold back the last of them
	Lost    uint64 // not written: MaxBytes was reached, the writer failed or cannot hold them
}

// Capture is a pmd.Driver around another that copies what passes to a capture, with the direction as the
// packet's flags (pcapng epb_flags). It owns no frame. Traffic is not affected: a copy that cannot be
// written is counted as lost.
//
// Received packets carry their arrival time, sent ones the now of the Tx that took them. Packets
// that the wrapped driver does not take are not copied until it does.
type Capture struct {
	inner    pmd.Driver
	w        *capture.Writer
	cfg      CaptureConfig
	rec      capture.Record // reused, so that a packet allocates nothing
	stageBuf []byte         // the bytes of the packets of one Tx, before the wrapped driver takes them
	staged   []stagedPacket // the packets in stageBuf
	written  atomic.Uint64  // by the loop; Stats reads it in any goroutine
	lost     atomic.Uint64
	closed   bool
}

// stagedPacket is a packet in Capture.stageBuf: where it ends, its length on the wire, and the descriptors up to its end.
type stagedPacket struct{ end, size, descs int }

// NewCapture wraps inner, which it closes with itself. It borrows w, which the caller closes after it and must not use
// meanwhile: a writer has no lock, so each loop needs one of its own.
func NewCapture(inner pmd.Driver, w *capture.Writer, cfg CaptureConfig) *Capture {
	if !cfg.Rx && !cfg.Tx {
		cfg.Rx, cfg.Tx = true, true
	}
	if cfg.SnapLen <= 0 || cfg.SnapLen > capture.MaxRecord {
		cfg.SnapLen = capture.MaxRecord
	}
	return &Capture{inner: inner, w: w, cfg: cfg}
}

// Rx implements pmd.Driver: the wrapped driver's, and a copy of what it brought.
func (c *Capture) Rx(now clock.Time, b *packet.Batch) (int, error) {
	first := len(b.D)
	n, err := c.inner.Rx(now, b)
	if !c.cfg.Rx {
		return n, err
	}
	// What lies before first was in the batch before this call.
	for at := first; at < len(b.D); {
		chain := max(packet.Chain(b.D[at:]), 1)
		data, size := c.bytes(b, b.D[at:at+chain])
		c.write(data, size, b.Time(at), capture.FlagInbound)
		at += chain
	}
	return n, err
}

// Tx implements pmd.Driver: the wrapped driver's, and a copy of what it took. The copy is made before, because the frames
// are the wrapped driver's afterwards and may be received into. It is written after, because only then it is known which
// packets it took: those that it did not take are offered again and would be in the capture twice.
func (c *Capture) Tx(now clock.Time, b *packet.Batch) (int, error) {
	if !c.cfg.Tx {
		return c.inner.Tx(now, b)
	}
	c.stageBuf = c.stageBuf[:0]
	for at := 0; at < len(b.D); {
		chain := max(packet.Chain(b.D[at:]), 1)
		d := b.D[at : at+chain]
		_, size := packet.Count(d)
		at += chain
		c.stageBuf = b.Arena.Gather(c.stageBuf, d, c.cfg.SnapLen)
		c.staged = append(c.staged, stagedPacket{end: len(c.stageBuf), size: int(size), descs: at})
	}
	n, err := c.inner.Tx(now, b)
	c.writeTaken(now, n)
	return n, err
}

// writeTaken writes the staged packets of the first n descriptors, which the wrapped driver took, and drops the others:
// the caller offers them again. It reads the stage alone, because the frames may be received into already.
func (c *Capture) writeTaken(now clock.Time, n int) {
	from := 0
	for _, s := range c.staged {
		if s.descs > n {
			break
		}
		c.write(c.stageBuf[from:s.end], s.size, int64(now), capture.FlagOutbound)
		from = s.end
	}
	c.stageBuf, c.staged = c.stageBuf[:0], c.staged[:0]
}

// bytes returns what is kept of the packet whose descriptors are d, at most SnapLen bytes, and its length. Only a packet
// of several frames is copied for that. The bytes are borrowed from the frames, or from the stage until the next call.
func (c *Capture) bytes(b *packet.Batch, d []packet.Desc) ([]byte, int) {
	if len(d) == 1 {
		data := b.Arena.Bytes(&d[0])
		return data[:min(len(data), c.cfg.SnapLen)], len(data)
	}
	_, size := packet.Count(d)
	c.stageBuf = b.Arena.Gather(c.stageBuf[:0], d, c.cfg.SnapLen)
	return c.stageBuf, int(size)
}

// write gives one packet to the writer. The bound is checked before, so that a capture ends with a whole record and with
// its counters. A packet that the writer rejects is counted as lost and no error of the traffic.
func (c *Capture) write(data []byte, size int, at int64, dir capture.PacketFlags) {
	const overhead = 64 + 128 // bytes around a packet, and of the counters at the end, at most
	if c.cfg.MaxBytes > 0 && c.w.Written()+int64(len(data))+overhead > c.cfg.MaxBytes {
		c.lost.Add(1)
		return
	}
	c.rec = capture.Record{
		Data: data, Len: size, Time: at + c.cfg.Epoch, Interface: c.cfg.Interface,
		Meta: capture.Meta{Has: capture.HasFlags, Flags: dir},
	}
	if c.w.Write(&c.rec) != nil {
		c.lost.Add(1)
		return
	}
	c.written.Add(1)
}

// Stats returns the counters of the copies. Any goroutine may call it.
func (c *Capture) Stats() CaptureStats {
	return CaptureStats{Written: c.written.Load(), Lost: c.lost.Load()}
}

// Info implements pmd.Driver: the wrapped driver's, and the capture in Negotiated. The capabilities are the wrapped
// driver's, since packets pass unchanged.
func (c *Capture) Info() pmd.Info {
	info := c.inner.Info()
	info.Placer = nil // the capture needs the payload in frames
	info.Caps &^= pmd.CapExternal
	if info.Negotiated != "" {
		info.Negotiated += ", "
	}
	info.Negotiated += "copied to a " + c.w.Format().String()
	return info
}

// Close implements pmd.Driver. It closes the wrapped driver, passes the interface's counters to the writer
// and flushes it; a capture that is not complete is an error here, and only here.
func (c *Capture) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	// The wrapped driver is closed first: its counters are final only then.
	err := c.inner.Close()
	info := c.inner.Info()
	s := info.Stats
	flush := errors.Join(c.w.SetCounters(c.cfg.Interface, capture.Counters{
		Received: s.RxPackets + s.RxMissed, Dropped: s.RxMissed, Accepted: s.RxPackets, Delivered: c.written.Load(),
	}), c.w.Flush())
	if flush != nil {
		flush = &pmd.OpError{Op: "capture", Device: info.Device, Queue: info.Queue, Err: fmt.Errorf("%d packets written, %d lost: %w", c.written.Load(), c.lost.Load(), flush)}
	}
	return errors.Join(err, flush)
}

// Holds implements ring.Holder: nothing. A Capture keeps copies, never frames. The wrapped driver is a holder of its own,
// which an audit visits by itself.
func (c *Capture) Holds(func(off uint32)) {}
