package fec

import "encoding/binary"

// horizon is the number of the latest source symbols that a decoder keeps: the window of a repair symbol,
// and as many again for reordering. It divides 2^32, so that ESIs may wrap.
const horizon = 2 * MaxWindow

// maxEquations bounds the repair symbols that wait for more.
const maxEquations = 64

// DecoderStats are counters of a Decoder.
type DecoderStats struct {
	Sources   uint64 // source symbols that were new
	Recovered uint64 // datagrams from repair symbols
	Repairs   uint64 // repair symbols
	Late      uint64 // source symbols that came twice, too late or after their recovery
	Dropped   uint64 // repair symbols that were of no use, or given up
}

// Decoder recovers datagrams. It holds at most 256 datagrams and 64 repair symbols: about 0.5 MiB with
// the default MaxSize.
type Decoder struct {
	c         Config
	begun     bool
	newest    uint32 // the largest ESI seen
	known     [horizon][]byte
	has       [horizon]bool
	equations []*equation
	stats     DecoderStats
	deliver   func(datagram []byte)
}

// equation is a repair symbol without what is known of it: the sum of coefficients times unknown
// symbols. The unknown symbol of its pivot has the coefficient 1, and 0 in all other equations.
type equation struct {
	coefficients [horizon]byte // by ESI modulo horizon
	unknowns     int
	pivot        int
	first        uint32 // no older symbol is in it
	sum          []byte
}

// NewDecoder returns a decoder. deliver gets each datagram, which it borrows.
func NewDecoder(c Config, deliver func(datagram []byte)) (*Decoder, error) {
	c, err := c.filled()
	return &Decoder{c: c, deliver: deliver}, err
}

// Stats returns the counters.
func (d *Decoder) Stats() DecoderStats { return d.stats }

// Receive takes a symbol as it arrived, and delivers what follows from it. It copies b. After an
// error the decoder works on.
func (d *Decoder) Receive(b []byte) error {
	if len(b) == 0 {
		return ErrMalformed
	}
	if b[0] == 0 {
		return d.source(b)
	}
	return d.repair(b)
}

func (d *Decoder) source(b []byte) error {
	if len(b) < sourceHeader || len(b)-sourceHeader > d.c.MaxSize {
		return ErrMalformed
	}
	esi := binary.BigEndian.Uint32(b[1:])
	payload := b[sourceHeader:]
	if d.c.Scheme == None {
		d.stats.Sources++
		d.deliver(payload)
		return nil
	}
	if !d.advance(esi) || d.has[esi%horizon] {
		d.stats.Late++
		return nil
	}
	d.stats.Sources++
	d.learn(esi, append(binary.BigEndian.AppendUint16(d.known[esi%horizon][:0], uint16(len(payload))), payload...))
	d.solve()
	return nil
}

// advance moves the horizon for a symbol, and reports whether it is within.
func (d *Decoder) advance(esi uint32) bool {
	if !d.begun {
		d.begun, d.newest = true, esi
	}
	ahead := int32(esi - d.newest) // RFC 1982: which of two is later
	if ahead <= 0 {
		return -ahead < horizon
	}
	for i := range min(uint32(ahead), horizon) {
		d.has[(esi-i)%horizon] = false
	}
	d.newest = esi
	d.forget()
	return true
}

// forget drops the equations of which a symbol is behind the horizon.
func (d *Decoder) forget() {
	kept := d.equations[:0]
	for _, e := range d.equations {
		if int32(d.newest-e.first) < horizon {
			kept = append(kept, e)
		} else {
			d.stats.Dropped++
		}
	}
	clear(d.equations[len(kept):])
	d.equations = kept
}

// learn delivers a symbol and removes it from all equations.
func (d *Decoder) learn(esi uint32, symbol []byte) {
	at := int(esi % horizon)
	d.known[at], d.has[at] = symbol, true
	d.deliver(symbol[lengthField:])
	var unpivoted []*equation
	kept := d.equations[:0]
	for _, e := range d.equations {
		e.substitute(at, symbol)
		if e.pivot == at && e.unknowns > 0 {
			unpivoted = append(unpivoted, e)
		} else {
			kept = append(kept, e)
		}
	}
	d.equations = kept
	for _, e := range unpivoted {
		d.add(e)
	}
}

// substitute removes a known symbol.
func (e *equation) substitute(at int, symbol []byte) {
	if c := e.coefficients[at]; c != 0 {
		e.grow(len(symbol))
		addScaled(e.sum, symbol, c)
		e.coefficients[at] = 0
		e.unknowns--
	}
}

// grow makes the sum at least n bytes: shorter symbols count as if zeros followed.
func (e *equation) grow(n int) {
	if len(e.sum) < n {
		e.sum = append(e.sum, make([]byte, n-len(e.sum))...)
	}
}

func (d *Decoder) repair(b []byte) error {
	r, sum, err := parseRepair(b)
	if err != nil || len(sum) > d.c.MaxSize+lengthField {
		return ErrMalformed
	}
	if r.scheme != d.c.Scheme {
		return ErrScheme
	}
	d.stats.Repairs++
	if !d.advance(r.first+uint32(r.count)-1) || int32(d.newest-r.first) >= horizon || len(d.equations) >= maxEquations {
		d.stats.Dropped++
		return nil
	}
	e := &equation{first: r.first, sum: append(make([]byte, 0, d.c.MaxSize+lengthField), sum...)}
	for i := range r.count {
		at := int((r.first + uint32(i)) % horizon)
		e.coefficients[at] = r.coefficient(i)
		e.unknowns++
		if d.has[at] {
			e.substitute(at, d.known[at])
		}
	}
	d.add(e)
	d.solve()
	return nil
}

// add eliminates the pivots of the other equations from e, and e's pivot from them (Gauss-Jordan).
func (d *Decoder) add(e *equation) {
	for _, o := range d.equations {
		e.subtract(o, e.coefficients[o.pivot])
	}
	if e.unknowns == 0 {
		d.stats.Dropped++ // it says nothing new
		return
	}
	e.normalize()
	for _, o := range d.equations {
		o.subtract(e, o.coefficients[e.pivot])
	}
	d.equations = append(d.equations, e)
}

// normalize chooses a pivot and makes its coefficient 1.
func (e *equation) normalize() {
	for at, c := range e.coefficients {
		if c != 0 {
			e.pivot = at
			scale(e.coefficients[:], inverses[c])
			scale(e.sum, inverses[c])
			return
		}
	}
}

// subtract subtracts c times o, which in GF(2^8) is to add it.
func (e *equation) subtract(o *equation, c byte) {
	if c == 0 {
		return
	}
	e.grow(len(o.sum))
	addScaled(e.sum, o.sum, c)
	addScaled(e.coefficients[:], o.coefficients[:], c)
	e.first = earlier(e.first, o.first)
	e.unknowns = 0
	for _, k := range e.coefficients {
		if k != 0 {
			e.unknowns++
		}
	}
}

func earlier(a, b uint32) uint32 {
	if int32(a-b) < 0 {
		return a
	}
	return b
}

// solve takes the symbols of all equations with one unknown.
func (d *Decoder) solve() {
	for i := 0; i < len(d.equations); {
		e := d.equations[i]
		if e.unknowns > 1 {
			i++
			continue
		}
		last := len(d.equations) - 1
		d.equations[i], d.equations[last] = d.equations[last], nil
		d.equations = d.equations[:last]
		if e.unknowns == 1 && d.recover(e) {
			i = 0 // others may have one unknown less
		}
	}
}

// recover learns the only unknown symbol of e.
func (d *Decoder) recover(e *equation) bool {
	length := int(binary.BigEndian.Uint16(e.sum))
	if length > len(e.sum)-lengthField {
		d.stats.Dropped++ // no sender makes that
		return false
	}
	esi := d.newest - (d.newest-uint32(e.pivot))%horizon
	d.stats.Recovered++
	d.learn(esi, e.sum[:lengthField+length])
	return true
}
