package role

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func example() Message {
	return Message{
		State: Yielding, Index: 1, Priority: 7, Able: true, Synced: true, Wants: true, Leaving: true, CutOff: true, Reaches: true, Number: 9,
		From: Incarnation{1, 2}, To: Incarnation{3, 4}, Sent: 55, Echo: 44, Term: 12, Lease: 700 * time.Millisecond,
		Addrs: Addresses{Count: 3, Digest: 1 << 63, Sample: []netip.Addr{netip.MustParseAddr("198.18.1.1"), netip.MustParseAddr("2001:db8::1")}},
	}
}

// sameAddr has cmp compare addresses.
var sameAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestMessages(t *testing.T) {
	key, err := Key(bytes.Repeat([]byte{5}, 32))
	if err != nil {
		t.Fatal(err)
	}
	want := example()
	b := want.Append(nil, key)
	got, err := Parse(b, key)
	if diff := cmp.Diff(want, got, sameAddr); err != nil || diff != "" {
		t.Fatal(err, diff)
	}
	for i := range b { // each bit is authenticated
		for bit := range 8 {
			c := bytes.Clone(b)
			c[i] ^= 1 << bit
			if _, err := Parse(c, key); err == nil {
				t.Fatalf("octet %d, bit %d: it is taken", i, bit)
			}
		}
	}
	for n := range b {
		if _, err := Parse(b[:n], key); err == nil {
			t.Fatalf("%d octets are taken", n)
		}
	}
	other, _ := Key(bytes.Repeat([]byte{6}, 32))
	if _, err := Parse(b, other); !errors.Is(err, ErrCode) {
		t.Errorf("another key: %v", err)
	}
	if bytes.Equal(key, bytes.Repeat([]byte{5}, 32)) {
		t.Error("the key of the sync is used as it is")
	}
}

// A message of a later version is longer, and has the same beginning.
func TestAMessageOfALaterVersion(t *testing.T) {
	key, _ := Key(make([]byte, 32))
	m := example()
	b := m.Append(nil, key)
	body := append(bytes.Clone(b[:len(b)-codeLen]), "more of version 3"...)
	body[4] = 3
	got, err := Parse(append(body, code(key, body)...), key)
	if diff := cmp.Diff(m, got, sameAddr); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for _, change := range []func([]byte){
		func(b []byte) { b[4] = 0 }, func(b []byte) { b[5] = byte(states) }, func(b []byte) { copy(b[72:], []byte{0, 0, 0, 1}) },
		func(b []byte) { copy(b[72:], []byte{0xff, 0, 0, 1}) }, func(b []byte) { b[0] = 'X' },
	} {
		body := bytes.Clone(b[:len(b)-codeLen])
		change(body)
		if _, err := Parse(append(body, code(key, body)...), key); !errors.Is(err, ErrMessage) {
			t.Errorf("%x: %v", body, err)
		}
	}
}

// A message of version 1 ends with the lease.
func TestAMessageOfVersion1(t *testing.T) {
	key, _ := Key(make([]byte, 32))
	m := example()
	body := bytes.Clone(m.Append(nil, key)[:bodyLen])
	if _, err := Parse(append(body, code(key, body)...), key); !errors.Is(err, ErrMessage) {
		t.Errorf("version 2 without addresses: %v", err)
	}
	body[4] = 1
	m.Addrs = Addresses{}
	for _, more := range []string{"", "more"} {
		b := append(bytes.Clone(body), more...)
		got, err := Parse(append(b, code(key, b)...), key)
		if diff := cmp.Diff(m, got, sameAddr); err != nil || diff != "" {
			t.Error(err, diff)
		}
	}
}

// A sample is as long as it says, and bounded.
func TestTheSampleOfAMessage(t *testing.T) {
	key, _ := Key(make([]byte, 32))
	m := example()
	for i := range 2 * MaxSample {
		m.Addrs.Sample = append(m.Addrs.Sample, netip.AddrFrom4([4]byte{198, 18, 2, byte(i)}))
	}
	b := m.Append(nil, key)
	if got, err := Parse(b, key); err != nil || len(got.Addrs.Sample) != MaxSample || len(b) > MaxMessage {
		t.Errorf("%v, %d addresses, %d octets", err, len(got.Addrs.Sample), len(b))
	}
	m.Addrs.Sample = m.Addrs.Sample[:2]
	for _, n := range []byte{3, MaxSample + 1, 255} {
		body := m.Append(nil, key)
		body = append(body[:len(body)-codeLen], make([]byte, 300)...)
		if n == 3 {
			body = body[:len(body)-300]
		}
		body[bodyLen+addrsLen-1] = n
		if _, err := Parse(append(body, code(key, body)...), key); !errors.Is(err, ErrMessage) {
			t.Errorf("a sample of %d that is not there: %v", n, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	key, _ := Key(make([]byte, 32))
	m := example()
	f.Add(m.Append(nil, key))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = Parse(b, key)
		if len(b) < bodyLen {
			return
		}
		body := b[:len(b):len(b)]
		if m, err := Parse(append(body, code(key, body)...), key); err == nil && (m.State >= states || m.Lease < MinLease) {
			t.Errorf("%+v", m)
		}
	})
}
