package qpack

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

// FuzzDecoder takes instructions and sections in turn, whole and cut. Whatever comes, memory is bounded, and
// cutting the encoder stream changes nothing.
func FuzzDecoder(f *testing.F) {
	e := NewEncoder(EncoderOptions{})
	e.SetPeer(4096, 16)
	section := e.Encode(nil, 0, browser("/"))
	f.Add(e.AppendStream(nil), section)
	f.Add([]byte("\x3f\xbd\x01\x41a\x011\x00\x80\x012"), []byte("\x04\x00\x80\x81\x10"))
	f.Add([]byte("\x3f\xe1\x1f"), []byte("\x00\x00\x51\x0b/index.html"))
	f.Fuzz(func(t *testing.T, instructions, section []byte) {
		o := DecoderOptions{MaxCapacity: 4096, MaxBlocked: 1, MaxSectionSize: 10000}
		whole, pieces := NewDecoder(o), NewDecoder(o)
		err := whole.Instructions(bytes.Clone(instructions))
		var other error
		for i := 0; i < len(instructions) && other == nil; i++ {
			other = pieces.Instructions(instructions[i : i+1])
		}
		if err != other { //nolint:errorlint // the same sentinel
			t.Fatalf("whole: %v; in pieces: %v", err, other)
		}
		if err != nil {
			return
		}
		var a, b Section
		done, err := whole.Decode(0, section, &a)
		done2, err2 := pieces.Decode(0, section, &b)
		if done != done2 || err != err2 { //nolint:errorlint // the same sentinel
			t.Fatalf("%v, %v; in pieces %v, %v", done, err, done2, err2)
		}
		if !bytes.Equal(whole.AppendStream(nil), pieces.AppendStream(nil)) {
			t.Fatal("the decoder streams differ")
		}
		if whole.table.size > 4096 || len(whole.in) > 4096*5 || a.Size > 10000+4096*5 {
			t.Fatalf("%d bytes in the table, %d kept, a section of %d", whole.table.size, len(whole.in), a.Size)
		}
		if !done {
			return
		}
		// What was decoded, encoded again, is the same.
		again := NewEncoder(EncoderOptions{}).Encode(nil, 0, a.Fields)
		var c Section
		if done, err := NewDecoder(o).Decode(0, again, &c); !done || err != nil || len(c.Fields) != len(a.Fields) {
			t.Fatal(done, err)
		}
		for i := range c.Fields {
			if c.Fields[i] != a.Fields[i] {
				t.Fatalf("%v became %v", a.Fields[i], c.Fields[i])
			}
		}
	})
}

// FuzzEncoder takes any acknowledgments between sections: the encoder refuses them or stays consistent with
// a decoder that really got everything.
func FuzzEncoder(f *testing.F) {
	f.Add([]byte{0x80, 0x01, 0x84}, uint64(1))
	f.Add([]byte{0x3f, 0x00, 0x48}, uint64(2))
	f.Fuzz(func(t *testing.T, acks []byte, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		e, d := NewEncoder(EncoderOptions{MaxCapacity: 600}), NewDecoder(DecoderOptions{MaxCapacity: 600, MaxBlocked: 100})
		e.SetPeer(600, 100)
		var s Section
		for stream := uint64(0); stream < 400; stream += 4 {
			section := e.Encode(nil, stream, randomFields(rng))
			if err := d.Instructions(e.AppendStream(nil)); err != nil {
				t.Fatal(err)
			}
			if done, err := d.Decode(stream, section, &s); !done || err != nil {
				t.Fatal(done, err)
			}
			n := rng.IntN(min(len(acks), 8) + 1)
			if err := e.Acknowledgments(acks[:n]); err != nil {
				if errors.As(err, new(*Error)) {
					return
				}
				t.Fatal(err)
			}
			acks = acks[n:]
		}
	})
}

// FuzzPair runs an encoder against a decoder with the schedule of a seed.
func FuzzPair(f *testing.F) {
	f.Add(uint64(100))
	f.Fuzz(func(t *testing.T, seed uint64) { runPair(t, seed, 500) })
}
