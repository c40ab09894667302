package ebpf

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// Numbers in network byte order are shown as they are meant, and are written back as they were.
func TestNumbersInNetworkOrder(t *testing.T) {
	number := func(size uint32) btf.Type { return &btf.Int{Name: "n", Size: size} }
	for _, c := range []struct {
		t    btf.Type
		b    []byte
		want string
	}{
		{&btf.Typedef{Name: "__be16", Type: number(2)}, []byte{0, 80}, "80"},
		{&btf.Typedef{Name: "__be32", Type: number(4)}, []byte{198, 18, 0, 1}, `"198.18.0.1"`},
		{&btf.Array{Type: &btf.Typedef{Name: "__be32", Type: number(4)}, Nelems: 4}, []byte{0x20, 1, 0xd, 0xb8, 15: 1}, `"2001:db8::1"`},
		{&btf.Array{Type: &btf.Typedef{Name: "__be32", Type: number(4)}, Nelems: 2}, []byte{198, 18, 0, 1, 192, 0, 2, 1}, `["198.18.0.1","192.0.2.1"]`},
		{&btf.Typedef{Name: "__be64", Type: number(8)}, []byte{0, 0, 0, 0, 0, 0, 1, 0}, "256"},
		{&btf.Const{Type: &btf.Typedef{Name: "address", Type: &btf.Typedef{Name: "__be16", Type: number(2)}}}, []byte{1, 0}, "256"},
	} {
		text, err := json.Marshal(decode(c.t, c.b))
		if err != nil || string(text) != c.want {
			t.Errorf("%v: %s, %v, want %s", c.t, text, err, c.want)
		}
		v, err := parseJSON(text)
		back := make([]byte, len(c.b))
		if err == nil {
			err = encode(c.t, v, back, "value")
		}
		if err != nil || !bytes.Equal(back, c.b) {
			t.Errorf("%v: written back as %x, %v, want %x", c.t, back, err, c.b)
		}
	}
	if text, _ := json.Marshal(decode(&btf.Typedef{Name: "__u16", Type: number(2)}, []byte{1, 0})); littleEndian && string(text) != "1" {
		t.Errorf("a number of the host: %s", text)
	}
}

// Addresses may be written as numbers and lists too; what is neither is refused with what is wanted.
func TestAddressesAreReadInSeveralForms(t *testing.T) {
	v4 := &btf.Typedef{Name: "__be32", Type: &btf.Int{Size: 4}}
	v6 := &btf.Array{Type: v4, Nelems: 4}
	for _, c := range []struct {
		t          btf.Type
		text, want string // want: hexadecimal digits, or a part of the error, with a blank
	}{
		{v4, `"198.18.0.1"`, "c6120001"},
		{v4, `3323068417`, "c6120001"},
		{v4, `"0xc6120001"`, "c6120001"},
		{v4, `"198.18.0"`, `value: "198.18.0", and an IPv4 address or a number is wanted`},
		{v4, `"::ffff:198.18.0.1"`, "an IPv4 address or a number is wanted"},
		{v4, `4294967296`, "a number of 32 bits"},
		{v6, `"2001:db8::1"`, "20010db8000000000000000000000001"},
		{v6, `["32.1.13.184", 0, 0, 1]`, "20010db8000000000000000000000001"},
		{v6, `"198.18.0.1"`, "an IPv6 address or a list of 4 is wanted"},
		{v6, `"fe80::1%eth0"`, "an IPv6 address or a list of 4 is wanted"},
	} {
		v, err := parseJSON([]byte(c.text))
		b := make([]byte, 4)
		if c.t == v6 {
			b = make([]byte, 16)
		}
		if err == nil {
			err = encode(c.t, v, b, "value")
		}
		got := hex.EncodeToString(b)
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != c.want || err != nil && (!strings.Contains(c.want, " ") || !strings.Contains(got, c.want) || !errors.Is(err, ErrValue)) {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
}
