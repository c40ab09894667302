package capture

import (
	"encoding/binary"
	"fmt"
	"math"
)

// le is the byte order that is written.
var le = binary.LittleEndian

// ngEncoder writes pcapng: one section, its interfaces first, an enhanced packet block per record,
// statistics at the end.
type ngEncoder struct {
	first, last int64 // times of the earliest and latest record, ns; 0 before there are any
	any         bool  // there are
}

// optionWriter appends options to b; err is the error of the first value that does not fit.
type optionWriter struct {
	b   []byte
	err error
}

func (o *optionWriter) bytes(code uint16, v []byte) {
	if len(v) > math.MaxUint16 {
		o.err = fmt.Errorf("%w: option of %d bytes, %d is the most", ErrRange, len(v), math.MaxUint16)
		return
	}
	o.b = le.AppendUint16(o.b, code)
	o.b = le.AppendUint16(o.b, uint16(len(v)))
	o.b = pad(append(o.b, v...), len(v))
}

// text writes an option unless it is empty.
func (o *optionWriter) text(code uint16, s string) {
	if s != "" {
		o.bytes(code, []byte(s))
	}
}

func (o *optionWriter) u32(code uint16, v uint32) {
	o.b = le.AppendUint32(o.b, uint32(code)|4<<16)
	o.b = le.AppendUint32(o.b, v)
}

func (o *optionWriter) u64(code uint16, v uint64) {
	o.b = le.AppendUint32(o.b, uint32(code)|8<<16)
	o.b = le.AppendUint64(o.b, v)
}

// stamp writes a time: the high 32 bits first, in either byte order.
func (o *optionWriter) stamp(code uint16, ns int64) {
	o.u64(code, uint64(ns)<<32|uint64(ns)>>32)
}

// end closes the options, where there are any behind start.
func (o *optionWriter) end(start int) {
	if len(o.b) > start {
		o.b = le.AppendUint32(o.b, optEnd)
	}
}

// pad appends the zeros that bring n bytes to a multiple of 4.
func pad(b []byte, n int) []byte { return append(b, make([]byte, padded(n)-n)...) }

// open begins a block whose length close fills in.
func open(b []byte, kind uint32) []byte {
	b = le.AppendUint32(b, kind)
	return le.AppendUint32(b, 0)
}

// closeBlock ends the block that began at start.
func closeBlock(b []byte, start int) []byte {
	n := uint32(len(b) - start + 4)
	le.PutUint32(b[start+4:], n)
	return le.AppendUint32(b, n)
}

func (e *ngEncoder) header(w *Writer) error {
	if len(w.cfg.Interfaces) == 0 || len(w.cfg.Interfaces) > maxInterfaces {
		return fmt.Errorf("%w: pcapng with %d interfaces, from 1 to %d can be", ErrRange, len(w.cfg.Interfaces), maxInterfaces)
	}
	b := open(w.buf, blockSection)
	b = le.AppendUint32(b, byteOrderMagic)
	b = le.AppendUint32(b, 1) // version 1.0
	b = le.AppendUint64(b, math.MaxUint64)
	o := optionWriter{b: b}
	o.text(optComment, w.cfg.Comment)
	o.text(optHardware, w.cfg.Hardware)
	o.text(optOS, w.cfg.OS)
	o.text(optApplication, w.cfg.Application)
	o.end(len(b))
	w.buf = closeBlock(o.b, 0)
	for i := range w.cfg.Interfaces {
		if err := e.iface(w, &w.cfg.Interfaces[i]); err != nil {
			return err
		}
	}
	return o.err
}

// iface writes an interface description block with a resolution of 1 ns.
func (e *ngEncoder) iface(w *Writer, in *Interface) error {
	const nanoseconds = 9
	start := len(w.buf)
	b := open(w.buf, blockInterface)
	b = le.AppendUint32(b, uint32(in.LinkType))
	snap := w.cfg.SnapLen
	if in.SnapLen > 0 {
		snap = min(snap, in.SnapLen)
	}
	o := optionWriter{b: le.AppendUint32(b, uint32(snap))}
	o.text(optIfName, in.Name)
	o.text(optIfDescription, in.Description)
	o.bytes(optIfResolution, []byte{nanoseconds})
	if in.Filter != "" {
		o.bytes(optIfFilter, append([]byte{0}, in.Filter...))
	}
	o.text(optIfOS, in.OS)
	if in.FCSLen > 0 {
		o.bytes(optIfFCSLen, []byte{uint8(in.FCSLen)})
	}
	o.text(optIfHardware, in.Hardware)
	o.end(start)
	w.buf = closeBlock(o.b, start)
	return o.err
}

func (e *ngEncoder) record(w *Writer, r *Record, data []byte) error {
	if r.Time < 0 {
		return fmt.Errorf("%w: time %d ns is before 1970", ErrRange, r.Time)
	}
	if n := max(len(r.Meta.Comment), len(r.Meta.Verdict)); n > math.MaxUint16 {
		return fmt.Errorf("%w: option of %d bytes, %d is the most", ErrRange, n, math.MaxUint16)
	}
	if in := &w.cfg.Interfaces[r.Interface]; in.SnapLen > 0 {
		data = data[:min(len(data), in.SnapLen)]
	}
	start := len(w.buf)
	b := open(w.buf, blockEnhanced)
	b = le.AppendUint32(b, uint32(r.Interface))
	b = le.AppendUint64(b, uint64(r.Time)<<32|uint64(r.Time)>>32)
	b = le.AppendUint32(b, uint32(len(data)))
	b = le.AppendUint32(b, wireLen(r))
	b = pad(append(b, data...), len(data))
	if r.Meta.Has != 0 {
		b = appendMeta(b, &r.Meta)
	}
	w.buf = closeBlock(b, start)
	if !e.any || r.Time < e.first {
		e.first, e.any = r.Time, true
	}
	e.last = max(e.last, r.Time)
	return nil
}

// appendMeta writes the options of a packet block.
func appendMeta(b []byte, m *Meta) []byte {
	o := optionWriter{b: b}
	if m.Has&HasComment != 0 {
		o.bytes(optComment, m.Comment)
	}
	if m.Has&HasFlags != 0 {
		o.u32(optFlags, uint32(m.Flags))
	}
	if m.Has&HasDrops != 0 {
		o.u64(optDrops, m.Drops)
	}
	if m.Has&HasPacketID != 0 {
		o.u64(optPacketID, m.PacketID)
	}
	if m.Has&HasQueue != 0 {
		o.u32(optQueue, m.Queue)
	}
	if m.Has&HasVerdict != 0 {
		o.bytes(optVerdict, m.Verdict)
	}
	o.end(len(b))
	return o.b
}

// trailer writes an interface statistics block for each interface that has counters.
func (e *ngEncoder) trailer(w *Writer) {
	for i := range w.cfg.Interfaces {
		c := w.cfg.Interfaces[i].Counters
		if c == nil {
			continue
		}
		start := len(w.buf)
		b := open(w.buf, blockStatistics)
		b = le.AppendUint32(b, uint32(i))
		end := c.End
		if end == 0 {
			end = e.last
		}
		o := optionWriter{b: le.AppendUint64(b, uint64(end)<<32|uint64(end)>>32)}
		begin := c.Start
		if begin == 0 {
			begin = e.first
		}
		o.stamp(optStart, begin)
		o.stamp(optEndTime, end)
		o.u64(optReceived, c.Received)
		o.u64(optDropped, c.Dropped)
		o.u64(optAccepted, c.Accepted)
		o.u64(optOSDropped, c.OSDropped)
		o.u64(optDelivered, c.Delivered)
		o.end(start)
		w.buf = closeBlock(o.b, start)
	}
}
