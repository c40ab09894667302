package proxyproto

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRoundTrip appends what was parsed: a receiver reads the same of it.
func TestRoundTrip(t *testing.T) {
	for _, test := range accepted {
		h, n, err := Parse([]byte(test.in), 0)
		if err != nil {
			continue // TestAccepted says so
		}
		out, err := h.Append([]byte("before"))
		if err != nil || !bytes.HasPrefix(out, []byte("before")) {
			t.Errorf("%s: %q, %v", test.name, out, err)
			continue
		}
		out = out[len("before"):]
		again, m, err := Parse(out, 0)
		if err != nil || m != len(out) || !cmp.Equal(h, again, addresses) {
			t.Errorf("%s: %q is read as %+v, %v", test.name, out, again, err)
		}
		if h.Relays() && string(out) != strings.Replace(test.in[:n], "DB8", "db8", 1) {
			t.Errorf("%s:\n%q, want\n%q", test.name, out, test.in)
		}
	}
}

func TestTCP(t *testing.T) {
	for _, test := range []struct{ source, destination, want string }{
		{"198.18.0.1:1", "198.18.0.2:2", "PROXY TCP4 198.18.0.1 198.18.0.2 1 2\r\n"},
		{"[::ffff:198.18.0.1]:1", "198.18.0.2:2", "PROXY TCP4 198.18.0.1 198.18.0.2 1 2\r\n"},
		{"[2001:db8::1]:1", "198.18.0.2:2", "PROXY TCP6 2001:db8::1 ::ffff:198.18.0.2 1 2\r\n"},
		{"198.18.0.1:1", "[2001:db8::2]:2", "PROXY TCP6 ::ffff:198.18.0.1 2001:db8::2 1 2\r\n"},
		{"[fe80::1%eth0]:1", "[fe80::2%eth0]:2", "PROXY TCP6 fe80::1 fe80::2 1 2\r\n"},
	} {
		h := TCP(1, endpoint(test.source), endpoint(test.destination))
		if out, err := h.Append(nil); err != nil || string(out) != test.want {
			t.Errorf("%s to %s: %q, %v", test.source, test.destination, out, err)
		}
	}
	h := TCP(2, netip.AddrPort{}, endpoint("198.18.0.1:1"))
	if _, err := h.Append(nil); !errors.Is(err, ErrAddress) {
		t.Errorf("without a source: %v", err)
	}
}

func TestVersion1HasNoWords(t *testing.T) {
	local := tcp(1, IPv4, "198.18.0.1:1", "198.18.0.2:2")
	local.Local = true
	for _, h := range []Header{
		{Version: 1},
		{Version: 1, Family: Unix, Transport: Stream, UnixSource: []byte("/a")},
		udp(tcp(1, IPv4, "198.18.0.1:1", "198.18.0.2:2")),
		local,
	} {
		if out, err := h.Append(nil); err != nil || string(out) != "PROXY UNKNOWN\r\n" {
			t.Errorf("%+v: %q, %v", h, out, err)
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	for _, test := range []struct {
		h    Header
		want error
	}{
		{Header{Version: 2, Family: IPv4, Transport: Stream, Source: endpoint("198.18.0.1:1")}, ErrAddress},
		{tcp(2, IPv6, "198.18.0.1:1", "[2001:db8::1]:1"), ErrAddress},
		{tcp(2, IPv4, "198.18.0.1:1", "[2001:db8::1]:1"), ErrAddress},
		{Header{Version: 2, Family: Unix, UnixSource: make([]byte, unixName+1)}, ErrAddress},
		{Header{Version: 2, Family: Unix + 1}, ErrAddress},
		{with(tcp(2, IPv4, "198.18.0.1:1", "198.18.0.2:2"), tlv(TypeNoop, strings.Repeat("x", 0xFFFF))), ErrTooLong},
	} {
		if out, err := test.h.Append([]byte("before")); !errors.Is(err, test.want) || string(out) != "before" {
			t.Errorf("%+v: %q, %v", test.h, out, err)
		}
	}
}

// TestUnknownTransport has the addresses of an unknown transport, which are ignored but take their place.
func TestUnknownTransport(t *testing.T) {
	in := v2(0x21, 0x20, v6Block, tlv(TypeALPN, "h3"))
	h, _, err := Parse([]byte(in), 0)
	if alpn, _ := h.TLVs.Find(TypeALPN); err != nil || h.Relays() || string(alpn) != "h3" {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestTLVs makes the TLVs of a client with a certificate and reads them.
func TestTLVs(t *testing.T) {
	var sub, all TLVs
	sub, _ = sub.Append(SubtypeVersion, []byte("TLSv1.3"))
	sub, _ = sub.Append(SubtypeCommonName, []byte("client.example"))
	all, err1 := all.Append(TypeAuthority, []byte("www.example"))
	all, err2 := all.AppendSSL(SSL{Client: ClientSSL | ClientCertConn, Verify: 7, TLVs: sub})
	all, err3 := all.Append(TypeUniqueID, bytes.Repeat([]byte("i"), 128))
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	h := TCP(2, endpoint("198.18.0.1:1"), endpoint("198.18.0.2:2"))
	h.TLVs, h.Checksum = all, true
	out, _ := h.Append(nil)
	h, _, err := Parse(out, 0)
	if err != nil || !h.Checksum {
		t.Fatal(h, err)
	}
	var types []Type
	for typ := range h.TLVs.All() {
		types = append(types, typ)
	}
	if want := []Type{TypeAuthority, TypeSSL, TypeUniqueID, TypeCRC32C}; !slices.Equal(types, want) {
		t.Errorf("types %v, want %v", types, want)
	}
	ssl, ok := h.TLVs.SSL()
	name, _ := ssl.TLVs.Find(SubtypeCommonName)
	if !ok || ssl.Client != 3 || ssl.Verify != 7 || string(name) != "client.example" {
		t.Errorf("%+v %q", ssl, name)
	}
	if _, ok := ssl.TLVs.SSL(); ok {
		t.Error("TLS inside of TLS")
	}
}

func TestTLVBounds(t *testing.T) {
	for typ, size := range map[Type]int{TypeUniqueID: 129, TypeNoop: 0x10000} {
		if out, err := (TLVs{}).Append(typ, make([]byte, size)); !errors.Is(err, ErrTooLong) || len(out) != 0 {
			t.Errorf("%#x of %d bytes: %v", typ, size, err)
		}
	}
	if _, err := (TLVs{}).AppendSSL(SSL{TLVs: make(TLVs, 0xFFFF-4)}); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
	if out, err := (TLVs{}).AppendSSL(SSL{TLVs: make(TLVs, 0xFFFF-5)}); err != nil || len(out) != 3+0xFFFF {
		t.Error(len(out), err)
	}
	if _, ok := TLVs(tlv(TypeSSL, "abcd")).SSL(); ok {
		t.Error("TLS of four bytes")
	}
}

// TestNoAllocations parses and appends every accepted header.
func TestNoAllocations(t *testing.T) {
	out := make([]byte, 0, 4096)
	for _, test := range accepted {
		in := []byte(test.in)
		if n := testing.AllocsPerRun(100, func() {
			h, _, err := Parse(in, 0)
			if err != nil {
				t.Fatal(err)
			}
			h.TLVs.SSL()
			if out, err = h.Append(out[:0]); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", test.name, n)
		}
	}
}
