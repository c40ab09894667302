// Package pcap replays capture files as a driver, and copies the packets of other drivers to captures.
//
// Driver is a device whose Rx reads pcap and pcapng files and whose Tx writes one. Capture wraps any
// other driver and writes what passes it to a capture. The two are a package of their own so that a
// program that only moves packets does not link the readers and writers of package capture.
package pcap

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// Mode is where packets are stored until Rx passes them on.
type Mode uint8

// The storage modes, slowest first.
const (
	// Stream reads the files as packets are wanted, in bounded memory.
	Stream Mode = iota
	// Preload reads the files into memory at first; Rx copies each packet into a frame.
	Preload
	// Resident copies the packets into frames of the pool at Open, several to a frame where
	// they fit, and keeps those frames until Close. Rx copies descriptors only, which is as fast as
	// a device can be. The driver stays the owner: the caller returns a batch with Release or Tx,
	// never to the pool, and does not write to the packets, because the next lap has the same bytes.
	Resident
)

var modeNames = [...]string{"stream", "preload", "resident"}

// String returns the mode's name.
func (m Mode) String() string { return modeNames[m] }

// Config describes a driver over capture files. With neither Files nor Out it is a sink.
type Config struct {
	Files    []string // received, one after the other; "-" is standard input, in stream mode once
	Out      string   // what Tx writes; "": packets sent are counted and their frames freed
	Mode     Mode     // where packets wait
	Laps     int      // how often Files are received; 0 is once, negative without end
	Rate     Rate     // the zero value is as fast as possible
	Headroom int      // bytes left free in front of each packet in its frame; 0 in resident mode
	DropLong bool     // a packet longer than a frame counts as RxInvalid instead of spanning several
	StampNow bool     // packets arrive at now instead of at their capture time
	Epoch    int64    // ns since the Unix epoch at clock zero: Tx writes now + Epoch

	// OnPacket, where it is set, is called by Rx for each packet that it returns, in their order, with the bytes that the
	// packet had before the capturing program cut it, synthesized header included. Stream mode only.
	OnPacket func(size int)

	// FillLengths sets IP lengths that are 0 (capture.FillLength), as hosts whose devices cut segments capture them.
	FillLengths bool

	// Keep, where it is set, is asked for each record of the files, with the link header of the capture. One for which it
	// returns false is counted as Filtered and not received.
	Keep func(rec *capture.Record) bool
}

// RecordStats counts the records of the files by result, so that every record is accounted for: received or one of the
// reasons. A file that is preloaded is counted once, however many laps it makes. RxInvalid is Unsupported + NotIP + Empty +
// TooLong.
type RecordStats struct {
	Records     uint64 // read
	Truncated   uint64 // cut by the capturing program (snap length), received as they are
	Unsupported uint64 // of a link type that carries neither Ethernet nor IP
	NotIP       uint64 // without an EtherType in their link header, or ending in it
	Empty       uint64 // without a byte
	Filtered    uint64 // refused by Config.Keep
	TooLong     uint64 // longer than a frame, with DropLong, or than the pool or batch can ever hold
}

// Driver is a driver over capture files: Rx replays Files, Tx writes Out. Packets of other link
// types get an Ethernet header (capture.Replace).
//
// Unless StampNow is set, packets arrive at their capture time: Rx sets Base to that of the first
// packet, in ns since the Unix epoch, and ends a batch before a packet more than 2 s away, so that
// Batch.Time returns the capture time of each. A batch that is not empty keeps its Base and gets only
// packets within those 2 s.
//
// After the last packet Rx returns io.EOF, and at damage in a file the error of package capture, after all
// packets before it.
type Driver struct {
	cfg      Config
	pool     *ring.Pool
	perFrame int // bytes of a packet in one frame
	src      source
	next     sourcePacket // borrowed from src until its next call
	ready    bool         // next has not been received yet
	pace     pacer
	lap      lapState
	res      *resident       // nil but in Resident mode
	out      *capture.Writer // nil without Config.Out
	gather   []byte          // a packet of several frames, for out
	sent     capture.Record  // reused by Tx
	count    pmd.Counters
	records  recordCounters
	err      error // the end of Rx, returned from then on by every call without a packet
	closed   bool
}

// lapState counts laps. Packets of a lap are counted too: without that, endless laps over files without packets would
// never return from Rx.
type lapState struct {
	left int
	n    uint64 // packets of this lap
}

// recordCounters are a RecordStats while it runs: the loop adds, any goroutine loads. A record that cannot be received has
// one reason, so that the sum of the reasons is RxInvalid.
type recordCounters struct {
	records, truncated, unsupported, notIP, empty, filtered, tooLong atomic.Uint64
}

// stampRange is the distance from a batch's Base within which a Stamp is valid, ns, with a margin: a Stamp has the low 32 bits of a time, so
// that Batch.Time finds the rest within 2^31 ns of the Base.
const stampRange = 2_000_000_000

// Open opens the files. It borrows pool until Close. A file that cannot be opened, or whose
// header cannot be read, is an error here; in the modes other than Stream all are read here.
func Open(pool *ring.Pool, cfg Config) (*Driver, error) {
	p := &Driver{cfg: cfg, pool: pool, lap: lapState{left: max(cfg.Laps, 1)}}
	if cfg.Laps < 0 {
		p.lap.left = -1
	}
	size := pool.Arena().FrameSize()
	p.perFrame = min(size-cfg.Headroom, 65535)
	if err := p.check(size); err != nil {
		return nil, p.fail("open", err)
	}
	if err := p.load(); err != nil {
		return nil, p.fail("open", errors.Join(err, p.Close()))
	}
	if err := p.create(); err != nil {
		return nil, p.fail("open", errors.Join(err, p.Close()))
	}
	return p, nil
}

// check rejects a configuration that cannot work, before a file is opened or created. Frames must hold 64 bytes of a
// packet, so that its headers are in the first one.
func (p *Driver) check(frameSize int) error {
	switch {
	case int(p.cfg.Mode) >= len(modeNames):
		return fmt.Errorf("unknown mode %d", p.cfg.Mode)
	case p.cfg.Headroom < 0 || p.perFrame < 64:
		return fmt.Errorf("headroom of %d bytes in frames of %d", p.cfg.Headroom, frameSize)
	case p.cfg.OnPacket != nil && p.cfg.Mode != Stream:
		return fmt.Errorf("sizes of packets are reported in stream mode, not in %v mode", p.cfg.Mode)
	case p.cfg.Mode == Stream && p.lap.left != 1 && slices.Contains(p.cfg.Files, "-"):
		return errors.New("standard input can be read once: preload it for several laps")
	}
	return p.cfg.Rate.check()
}

// create creates Out, after the input was opened: a wrong name of an input must not truncate an output file.
func (p *Driver) create() (err error) {
	if p.cfg.Out == "" {
		return nil
	}
	p.out, err = capture.Create(p.cfg.Out, capture.WriterConfig{
		Interfaces:  []capture.Interface{{LinkType: capture.LinkTypeEthernet, Name: "millrace"}},
		Application: "millrace",
	})
	return err
}

// load prepares the source of packets for the mode: the files, their packets in memory, or those packets in frames. Each
// is made from the one before.
func (p *Driver) load() error {
	files := &fileSource{paths: p.cfg.Files, count: &p.records, invalid: &p.count.RxInvalid, keep: p.cfg.Keep, fill: p.cfg.FillLengths}
	if err := files.rewind(); err != nil {
		return err
	}
	p.src = files
	if p.cfg.Mode == Stream {
		return nil
	}
	mem, err := preload(files)
	if err != nil {
		return err
	}
	p.src = mem
	if p.cfg.Mode == Resident {
		p.res, err = p.makeResident(mem)
	}
	return err
}

// device names the driver in Info and errors by its files, as others are by their interface. A driver without input has
// the name of its output.
func (p *Driver) device() string {
	if len(p.cfg.Files) == 0 {
		return p.cfg.Out
	}
	return strings.Join(p.cfg.Files, ",")
}

// fail wraps an error with the device. Queue is 0: a driver over files has one.
func (p *Driver) fail(op string, err error) error {
	return &pmd.OpError{Op: op, Device: p.device(), Err: err}
}

// Rx implements pmd.Driver.
func (p *Driver) Rx(now clock.Time, b *packet.Batch) (int, error) {
	if p.closed {
		return 0, p.fail("rx", pmd.ErrClosed)
	}
	first := len(b.D)
	if p.res != nil {
		p.appendResident(now, b)
	} else {
		for p.due(now) && p.copyNext(now, b) {
			p.ready = false
		}
	}
	got := b.D[first:]
	if len(got) == 0 {
		return 0, p.err
	}
	p.count.Rx(got)
	return len(got), nil
}

// due reads the next packet unless one is waiting, and reports whether it is due by the rate. False is also the end: then
// p.err says why.
func (p *Driver) due(now clock.Time) bool {
	if !p.ready && !p.fetch() {
		return false
	}
	return p.pace.due(&p.cfg.Rate, now)
}

// fetch reads the next packet, of the next lap where this one is over. The pacer counts it once, however
// often Rx has to wait for room.
func (p *Driver) fetch() bool {
	for p.err == nil {
		err := p.src.next(&p.next)
		if err == nil {
			p.ready = true
			p.pace.add(&p.cfg.Rate, p.next.size(), p.next.time)
			return true
		}
		p.endLap(err)
	}
	return false
}

// endLap starts the next lap, or ends receiving: after the last lap, at damage, and where a lap of endlessly
// many had no packet, because Rx would then loop for ever.
func (p *Driver) endLap(err error) {
	if err != io.EOF {
		p.err = p.fail("rx", err)
		return
	}
	if p.lap.left--; p.lap.left == 0 || p.lap.n == 0 {
		p.err = io.EOF
		return
	}
	p.lap.n = 0
	p.pace.lap()
	if err := p.src.rewind(); err != nil {
		p.err = p.fail("rx", err)
	}
}

// copyNext copies the next packet into frames and appends it; false means that b or the pool has no room, or that the
// packet is too far from b.Base: it stays the next one. A packet that could never fit is dropped and counted, or the
// replay would stop at it for ever.
func (p *Driver) copyNext(now clock.Time, b *packet.Batch) bool {
	size := p.next.size()
	frames := 1
	if size > p.perFrame {
		frames = (size + p.perFrame - 1) / p.perFrame
		if p.cfg.DropLong || frames > min(cap(b.D), p.pool.Size()) {
			p.records.tooLong.Add(1)
			p.count.RxInvalid.Add(1)
			return true
		}
	}
	p.lap.n++ // also where it has to wait: the lap is not empty
	// All frames or none: a chain that is cut would be a malformed packet.
	if frames > b.Room() || frames > p.pool.Free() || !p.stamp(now, b) {
		return false
	}
	at := p.next.time
	if p.cfg.StampNow {
		at = int64(now)
	}
	if p.cfg.OnPacket != nil {
		p.cfg.OnPacket(p.next.original)
	}
	for from := 0; frames > 0; frames-- {
		n := min(size-from, p.perFrame)
		off, _ := p.pool.Get()
		off += uint32(p.cfg.Headroom)
		p.next.copyTo(b.Arena.Mem[off:off+uint32(n)], from)
		d := packet.Desc{Off: off, Len: uint16(n), Stamp: uint32(at)}
		if frames > 1 {
			d.Flags = packet.FlagMore
		}
		b.Append(d)
		from += n
	}
	return true
}

// stamp sets b.Base where b is empty, and reports whether the next packet may join b: its time must be one that a Stamp
// can express relative to the Base.
func (p *Driver) stamp(now clock.Time, b *packet.Batch) bool {
	if p.cfg.StampNow {
		b.Base = int64(now)
		return true
	}
	if len(b.D) == 0 {
		b.Base = p.next.time
		return true
	}
	return withinStamp(p.next.time, b.Base)
}

// withinStamp reports whether a and b are at most stampRange apart, also where their difference overflows.
func withinStamp(a, b int64) bool {
	d := a - b
	return d >= -stampRange && d <= stampRange
}

// Tx implements pmd.Driver: packets go to Out, at now + Epoch.
func (p *Driver) Tx(now clock.Time, b *packet.Batch) (int, error) {
	if p.closed {
		return 0, p.fail("tx", pmd.ErrClosed)
	}
	n := packet.Whole(b.D, len(b.D))
	// An error of the output ends the batch before the packet that met it. The packets before are taken, so
	// the error is returned only where there are none: the next call meets it again.
	for done := 0; p.out != nil && done < n; {
		chain := packet.Chain(b.D[done:n])
		if err := p.write(now, b, b.D[done:done+chain]); err != nil {
			n = done
			if n == 0 {
				return 0, p.fail("tx", err)
			}
			break
		}
		done += chain
	}
	p.count.Tx(b.D[:n])
	for i := range b.D[:n] {
		p.free(b.D[i].Off)
	}
	return n, nil
}

// write writes the packet whose descriptors are d. What the format cannot hold counts as TxInvalid.
func (p *Driver) write(now clock.Time, b *packet.Batch, d []packet.Desc) error {
	data := b.Arena.Bytes(&d[0])
	if len(d) > 1 {
		p.gather = b.Arena.Gather(p.gather[:0], d, capture.MaxRecord)
		data = p.gather
	}
	_, size := packet.Count(d)
	p.sent = capture.Record{Data: data, Time: int64(now) + p.cfg.Epoch, Len: int(size)}
	err := p.out.Write(&p.sent)
	if errors.Is(err, capture.ErrRange) {
		p.count.Refuse(d)
		return nil
	}
	return err
}

// Release takes the frames of b back and empties it. It is right for batches of every mode.
func (p *Driver) Release(b *packet.Batch) {
	for i := range b.D {
		p.free(b.D[i].Off)
	}
	b.Reset()
}

// free puts a frame into the pool, unless it is resident: the driver still owns that.
func (p *Driver) free(off uint32) {
	if p.res == nil || !p.res.owns(off) {
		p.pool.Put(off)
	}
}

// Info implements pmd.Driver.
func (p *Driver) Info() pmd.Info {
	caps := pmd.CapMultiBuf
	if p.cfg.Rate != (Rate{}) {
		caps |= pmd.CapTimed
	}
	modes := p.cfg.Mode.String() + ", rate " + p.cfg.Rate.String()
	if p.cfg.Out == "" {
		modes += ", no output: what is sent is counted and freed"
	} else {
		modes += ", writes " + p.cfg.Out
	}
	return pmd.Info{Driver: "pcap", Device: p.device(), Caps: caps, FD: -1, Negotiated: modes, Stats: p.count.Stats()}
}

// Records returns the counters of the records. Any goroutine may call it, also while Rx runs; the counters are then each
// correct, but not of one moment.
func (p *Driver) Records() RecordStats {
	c := &p.records
	return RecordStats{
		Records: c.records.Load(), Truncated: c.truncated.Load(), Unsupported: c.unsupported.Load(),
		NotIP: c.notIP.Load(), Empty: c.empty.Load(), Filtered: c.filtered.Load(), TooLong: c.tooLong.Load(),
	}
}

// Packets returns how many packets one lap has, 0 where the mode is Stream: there it is not known before the end.
func (p *Driver) Packets() int {
	if m, ok := p.src.(*memorySource); ok {
		return len(m.index)
	}
	return 0
}

// Close implements pmd.Driver. It completes Out and returns the error of that, and puts resident frames
// into the pool: no batch with them may be used any more.
func (p *Driver) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	if p.res != nil {
		p.res.close(p.pool)
	}
	var err error
	if p.src != nil {
		err = p.src.close()
	}
	if p.out != nil {
		err = errors.Join(err, p.out.Close())
	}
	if err != nil {
		return p.fail("close", err)
	}
	return nil
}

// Holds implements ring.Holder: the resident frames, also those whose packets a caller is using, because the driver stays
// their owner. In other modes the driver holds none between two calls: Rx passes each frame on and Tx frees it.
func (p *Driver) Holds(visit func(off uint32)) {
	if p.res != nil {
		p.res.Holds(visit)
	}
}
