package qpack

import "github.com/millrace/millrace/http2/hpack"

// The instructions of the encoder stream (RFC 9204 4.3):
//
//	1 T index(6), value       insert with the name of an entry: static if T, else relative
//	01 H length(5), value     insert with a literal name
//	001 capacity(5)           set the capacity
//	000 index(5)              duplicate

// Instructions takes bytes of the peer's encoder stream, cut anywhere. It borrows them. An *Error ends
// the connection.
func (d *Decoder) Instructions(p []byte) error {
	if len(d.in) > 0 {
		d.in = append(d.in, p...)
		p = d.in
	}
	for len(p) > 0 {
		n, st, err := d.instruction(p)
		if err != nil {
			return err
		}
		if st == cut {
			break
		}
		if d.idle++; d.idle > maxIdleInstructions {
			return errFlood
		}
		p = p[n:]
	}
	if len(p) == 0 || len(d.in) > 0 {
		d.in = d.in[:copy(d.in, p)]
		return nil
	}
	d.in = append(d.in, p...)
	return nil
}

// instruction executes the instruction at the start of p and returns its size, unless it is cut.
func (d *Decoder) instruction(p []byte) (n int, st status, err error) {
	t := &d.table
	switch b := p[0]; {
	case b&0x80 != 0:
		return d.insertNamed(p)
	case b&0x40 != 0:
		return d.insertLiteral(p)
	case b&0x20 != 0:
		capacity, n, st := hpack.Integer(p, 5)
		switch {
		case st == invalid:
			return 0, st, errStreamInteger
		case st == ok && capacity > d.options.MaxCapacity:
			return 0, st, errStreamCapacity
		case st == ok:
			t.setCapacity(capacity)
		}
		return n, st, nil
	}
	index, n, st := hpack.Integer(p, 5)
	if st != ok {
		return 0, st, streamError(st)
	}
	if index >= t.next {
		return 0, ok, errStreamDynamic
	}
	e := t.at(t.next - index - 1)
	if e == nil {
		return 0, ok, errStreamDynamic
	}
	return n, ok, d.insert(e.Field)
}

// insertNamed is Insert with Name Reference (RFC 9204 4.3.2).
func (d *Decoder) insertNamed(p []byte) (int, status, error) {
	index, n, st := hpack.Integer(p, 6)
	if st != ok {
		return 0, st, streamError(st)
	}
	var name string
	switch {
	case p[0]&0x40 != 0 && index >= uint64(len(static)):
		return 0, ok, errStreamStatic
	case p[0]&0x40 != 0:
		name = static[index].Name
	default:
		if index >= d.table.next || d.table.at(d.table.next-index-1) == nil {
			return 0, ok, errStreamDynamic
		}
		name = d.table.at(d.table.next - index - 1).Name
	}
	d.text = d.text[:0]
	m, st, err := d.instructionString(p[n:], 7)
	if st != ok || err != nil {
		return 0, st, err
	}
	return n + m, ok, d.insert(Field{Name: name, Value: string(d.text)})
}

// insertLiteral is Insert with Literal Name (RFC 9204 4.3.3).
func (d *Decoder) insertLiteral(p []byte) (int, status, error) {
	d.text = d.text[:0]
	n, st, err := d.instructionString(p, 5)
	if st != ok || err != nil {
		return 0, st, err
	}
	name := len(d.text)
	m, st, err := d.instructionString(p[n:], 7)
	if st != ok || err != nil {
		return 0, st, err
	}
	both := string(d.text) // one allocation
	return n + m, ok, d.insert(Field{Name: both[:name], Value: both[name:]})
}

// instructionString appends a string literal to d.text. One that no entry could have is an error before
// it has arrived, which bounds what is kept of a cut instruction.
func (d *Decoder) instructionString(p []byte, bits uint) (n int, st status, err error) {
	length, _, st := hpack.Integer(p, bits)
	if st != ok {
		return 0, st, streamError(st)
	}
	coded := p[0]>>bits&1 == 1
	if length > d.table.capacity && (!coded || length > d.table.capacity*hpack.LongestCode/8+1) {
		return 0, ok, errStreamEntry
	}
	text, _, n, st := hpack.ParseString(p, bits)
	if st != ok {
		return 0, st, nil
	}
	if !coded {
		d.text = append(d.text, text...)
		return n, ok, nil
	}
	var valid bool
	if d.text, valid = hpack.AppendDecoded(d.text, text); !valid {
		return 0, ok, errStreamHuffman
	}
	return n, ok, nil
}

func (d *Decoder) insert(f Field) error {
	if f.Size() > d.table.capacity {
		return errStreamEntry // RFC 9204 3.2.2
	}
	d.table.insert(f)
	return nil
}

// streamError returns the error of an integer in an instruction; a cut one has none.
func streamError(st status) error {
	if st == invalid {
		return errStreamInteger
	}
	return nil
}
