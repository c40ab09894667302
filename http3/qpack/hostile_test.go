package qpack

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/http2/hpack"
)

// wantCode checks that an error is a violation with the code.
func wantCode(t *testing.T, name string, err error, code uint64) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%s: %v, want the code %#x", name, err, code)
	}
}

// filled returns a decoder with a table of 220 bytes that has a=1, b=2 and c=3.
func filled(t *testing.T) *Decoder {
	d := NewDecoder(DecoderOptions{MaxCapacity: 220, MaxBlocked: 2})
	for _, p := range []string{"\x3f\xbd\x01", "\x41a\x011", "\x41b\x012", "\x41c\x013"} {
		if err := d.Instructions([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// RFC 9204 2.2.3, 4.5, 6: what cannot be decoded.
func TestBadSections(t *testing.T) {
	long := strings.Repeat("\xff", 12)
	for name, p := range map[string]string{
		"nothing":                            "",
		"no Base":                            "\x00",
		"a cut Required Insert Count":        "\xff",
		"a Required Insert Count of 70 bits": long,
		"a Base of 70 bits":                  "\x00\x7f" + long,
		"a Required Insert Count above twice the entries": "\x0e\x00",
		"a Required Insert Count of long ago":             "\x0b\x00\x80",
		"a negative Base":                                 "\x04\x83\x80",
		"a Base of -1 without references":                 "\x00\x80\xd1",
		"a static index of 99":                            "\x00\x00\xff\x24",
		"a static name of 99":                             "\x00\x00\x5f\x54\x01a",
		"a relative index at the Base":                    "\x04\x00\x83",
		"a relative name at the Base":                     "\x04\x00\x43\x01a",
		"a dynamic reference with Required 0":             "\x00\x03\x80",
		"a post-base reference with Required 0":           "\x00\x00\x10",
		"a post-base reference at Required":               "\x04\x80\x11",
		"a post-base name at Required":                    "\x04\x80\x01\x01a",
		"a post-base index of 62 bits":                    "\x04\x00\x1f\xf0\xff\xff\xff\xff\xff\xff\xff\x3f",
		"an index of 70 bits":                             "\x00\x00\xff" + long,
		"a post-base index of 70 bits":                    "\x00\x00\x1f" + long,
		"a cut index":                                     "\x00\x00\xff",
		"a cut name":                                      "\x00\x00\x23a",
		"a cut value":                                     "\x00\x00\x51\x02a",
		"no value":                                        "\x00\x00\x51",
		"a value of 2^62 bytes":                           "\x00\x00\x51\x7f\x80\xff\xff\xff\xff\xff\xff\xff\x3f",
		"EOS in a value":                                  "\x00\x00\x51\x84\xff\xff\xff\xff",
		"EOS in a name":                                   "\x00\x00\x2c\xff\xff\xff\xff\x01a",
		"8 bits of padding":                               "\x00\x00\x51\x82\x1f\xff",
	} {
		var s Section
		_, err := filled(t).Decode(0, []byte(p), &s)
		wantCode(t, name, err, CodeDecompressionFailed)
	}
}

// References to entries that were evicted.
func TestEvictedReferences(t *testing.T) {
	d := filled(t)
	if err := d.Instructions([]byte("\x3f\x30")); err != nil { // a capacity of 79: two entries of 34 go
		t.Fatal(err)
	}
	var s Section
	if done, err := d.Decode(0, []byte("\x04\x00\x80"), &s); !done || err != nil || s.Fields[0].Name != "c" {
		t.Fatal(done, err, s.Fields)
	}
	_, err := d.Decode(0, []byte("\x04\x00\x82"), &s)
	wantCode(t, "an evicted entry", err, CodeDecompressionFailed)
	wantCode(t, "a duplicate of one", d.Instructions([]byte("\x02")), CodeEncoderStreamError)
	wantCode(t, "a name of one", filledSmall(t).Instructions([]byte("\x82\x01a")), CodeEncoderStreamError)
}

func filledSmall(t *testing.T) *Decoder {
	d := filled(t)
	if err := d.Instructions([]byte("\x3f\x30")); err != nil {
		t.Fatal(err)
	}
	return d
}

// RFC 9204 3.2, 4.3: instructions that cannot be.
func TestBadInstructions(t *testing.T) {
	long := strings.Repeat("\xff", 12)
	for name, p := range map[string]string{
		"a capacity above the setting":            "\x3f\xbe\x01",
		"a capacity of 70 bits":                   "\x3f" + long,
		"a static name of 99":                     "\xff\x24\x01a",
		"a name index of 70 bits":                 "\xff" + long,
		"a dynamic name that is not there":        "\x83\x01a",
		"a duplicate of what is not there":        "\x03",
		"a duplicate index of 70 bits":            "\x1f" + long,
		"a value longer than the table":           "\xc1\x7f\x5e",
		"a value longer than the table, coded":    "\xc1\xff\xff\x7f",
		"a name longer than the table":            "\x5f\xff\x7f",
		"a name length of 70 bits":                "\x5f" + long,
		"a value length of 70 bits":               "\x41a\x7f" + long,
		"an entry that exceeds it with its 32":    "\xc1\x7f\x41" + strings.Repeat("a", 192),
		"EOS in a value":                          "\xc1\x84\xff\xff\xff\xff",
		"EOS in a name":                           "\x64\xff\xff\xff\xff\x01a",
		"padding of zeros":                        "\xc1\x81\x18",
		"an entry after the capacity became 0":    "\x20\x41a\x01b",
		"an entry whose parts fit but not itself": "\x5f\x41" + strings.Repeat("a", 96) + "\x60" + strings.Repeat("b", 96),
	} {
		wantCode(t, name, filled(t).Instructions([]byte(p)), CodeEncoderStreamError)
		d := filled(t)
		var err error
		for i := 0; i < len(p) && err == nil; i++ {
			err = d.Instructions([]byte{p[i]})
		}
		wantCode(t, name+", byte by byte", err, CodeEncoderStreamError)
	}
	d := NewDecoder(DecoderOptions{})
	wantCode(t, "an entry without a table", d.Instructions([]byte("\x41a\x01b")), CodeEncoderStreamError)
}

// RFC 9204 4.4: acknowledgments that cannot be.
func TestBadAcknowledgments(t *testing.T) {
	for name, p := range map[string]string{
		"a section that was not sent":           "\x80",
		"a section without references":          "\x84",
		"a section twice":                       "\x88\x88",
		"an increment of 0":                     "\x00",
		"an increment beyond what was inserted": "\x3f\x20",
		"a stream of 70 bits":                   "\xff" + strings.Repeat("\xff", 12),
		"a cancelled stream of 70 bits":         "\x7f" + strings.Repeat("\xff", 12),
		"an increment of 70 bits":               "\x3f" + strings.Repeat("\xff", 12),
		"a section after its cancellation":      "\x48\x88",
	} {
		e := NewEncoder(EncoderOptions{})
		e.SetPeer(4096, 100)
		e.Encode(nil, 4, []Field{{Name: ":method", Value: "GET"}})
		e.Encode(nil, 8, browser("/"))
		wantCode(t, name, e.Acknowledgments([]byte(p)), CodeDecoderStreamError)
	}
	e := NewEncoder(EncoderOptions{})
	if err := e.Acknowledgments([]byte("\x48")); err != nil {
		t.Errorf("the cancellation of a stream without references: %v", err)
	}
}

// Attack: a section of few bytes that refers to a large entry again and again.
func TestBomb(t *testing.T) {
	d := NewDecoder(DecoderOptions{MaxCapacity: 1 << 16, MaxSectionSize: 1 << 18})
	value := strings.Repeat("a", 60000)
	p := hpack.AppendInteger(nil, 0x20, 5, 1<<16)
	p = append(hpack.AppendInteger(append(p, 0x41, 'x'), 0, 7, 60000), value...)
	if err := d.Instructions(p); err != nil {
		t.Fatal(err)
	}
	section := []byte{2, 0}
	for range 10000 {
		section = append(section, 0x80)
	}
	var s Section
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := d.Decode(0, section, &s)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrTooLarge) {
		t.Fatalf("600 MB of fields: %v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 16<<10 {
		t.Errorf("%d bytes were allocated", n)
	}
	// The message is lost, the connection is not.
	if done, err := d.Decode(4, section[:3], &s); !done || err != nil {
		t.Errorf("the next section: %v, %v", done, err)
	}
}

// Attack: streams that wait for entries which never come.
func TestBlockedStreams(t *testing.T) {
	d := filled(t)
	var s Section
	for stream := range uint64(2) {
		if done, err := d.Decode(stream, []byte("\x05\x00\x80"), &s); done || err != nil {
			t.Fatal(done, err)
		}
	}
	_, err := d.Decode(8, []byte("\x05\x00\x80"), &s)
	wantCode(t, "a third", err, CodeDecompressionFailed)
	_, err = d.Decode(0, []byte("\x05\x00\x80"), &s)
	wantCode(t, "one that is blocked", err, CodeDecompressionFailed)
	d.Cancel(0)
	if done, err := d.Decode(8, []byte("\x05\x00\x80"), &s); done || err != nil {
		t.Errorf("one was cancelled, and another: %v, %v", done, err)
	}
}

// Attack: instructions without end, of which nobody makes use, whole or cut.
func TestFlood(t *testing.T) {
	d := filled(t)
	flood := slices.Repeat([]byte{0}, 1<<17) // duplicates
	wantCode(t, "duplicates", d.Instructions(flood), CodeExcessiveLoad)
	if n := len(d.table.entries); n > 16 {
		t.Errorf("a ring of %d entries", n)
	}
	d = filled(t)
	// A name that is cut never becomes larger than an entry.
	if err := d.Instructions([]byte("\x5f\xb0\x01")); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if err := d.Instructions([]byte("a")); err != nil {
			t.Fatal(err)
		}
	}
	if cap(d.in) > 2000 {
		t.Errorf("%d bytes are kept", cap(d.in))
	}
}

// Attack: acknowledgments that nobody fetches.
func TestPendingAcknowledgments(t *testing.T) {
	d := filled(t)
	var s Section
	var err error
	for i := 0; err == nil && i < 1<<20; i++ {
		_, err = d.Decode(1<<40, []byte("\x04\x00\x80"), &s)
	}
	wantCode(t, "acknowledgments", err, CodeExcessiveLoad)
	if n := len(d.out); n > maxPending+20 {
		t.Errorf("%d bytes wait", n)
	}
}

// The encoder's memory is bounded when the peer acknowledges nothing.
func TestSilentPeer(t *testing.T) {
	e := NewEncoder(EncoderOptions{})
	e.SetPeer(1<<20, 1<<20)
	for i := range uint64(5000) {
		fields := append(browser("/"), Field{Name: "x", Value: strings.Repeat("v", int(i))})
		e.Encode(nil, i, fields)
	}
	if len(e.outstanding) > maxOutstanding || e.table.size > DefaultCapacity || len(e.out) > 2*maxInstructions {
		t.Errorf("%d sections, %d bytes in the table, %d bytes of instructions", len(e.outstanding), e.table.size, len(e.out))
	}
}
