package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func endpoint(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// tcp is the header of a connection.
func tcp(version uint8, f Family, source, destination string) Header {
	return Header{Version: version, Family: f, Transport: Stream, Source: endpoint(source), Destination: endpoint(destination)}
}

// v2 makes a header of version 2 from its parts, whatever they are.
func v2(command, family byte, block ...string) string {
	b := strings.Join(block, "")
	return signature2 + string(binary.BigEndian.AppendUint16([]byte{command, family}, uint16(len(b)))) + b
}

func tlv(typ Type, value string) string { return string(appendTLV(nil, typ, []byte(value))) }

const (
	v4Block = "\xc6\x12\x00\x01\xc6\x12\x00\x02\xdc\x04\x01\xbb" // 198.18.0.1:56324 to 198.18.0.2:443
	v6Block = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" + "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02" + "\x00\x01\xff\xff"
)

// summed puts the checksum of the whole into the last four bytes. The oracle is another way to compute it.
func summed(header string) string {
	b := []byte(header)
	copy(b[len(b)-4:], "\x00\x00\x00\x00")
	binary.BigEndian.PutUint32(b[len(b)-4:], slowCRC32C(b))
	return string(b)
}

// slowCRC32C goes bit by bit, with the reflected polynomial of RFC 3720 B.4.
func slowCRC32C(b []byte) uint32 {
	crc := ^uint32(0)
	for _, c := range b {
		crc ^= uint32(c)
		for range 8 {
			crc = crc>>1 ^ 0x82F63B78&-(crc&1)
		}
	}
	return ^crc
}

func TestSlowCRC32C(t *testing.T) {
	if got, want := slowCRC32C([]byte("123456789")), uint32(0xE3069283); got != want || crc32.Checksum([]byte("123456789"), castagnoli) != want {
		t.Errorf("%#x, want %#x", got, want)
	}
}

// accepted has the examples and the extremes of the specification.
var accepted = []struct {
	name, in string
	want     Header
}{
	{"the example of section 2.1", "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", tcp(1, IPv4, "192.168.0.1:56324", "192.168.0.11:443")},
	{"longest TCP4", "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", tcp(1, IPv4, "255.255.255.255:65535", "255.255.255.255:65535")},
	{
		"longest TCP6", "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
		tcp(1, IPv6, "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"),
	},
	{"TCP6 in both cases, a mapped address", "PROXY TCP6 2001:DB8::a ::ffff:198.18.0.1 0 1\r\n", tcp(1, IPv6, "[2001:db8::a]:0", "[::ffff:198.18.0.1]:1")},
	{"UNKNOWN", "PROXY UNKNOWN\r\n", Header{Version: 1}},
	{"UNKNOWN of 107 bytes", "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", Header{Version: 1}},
	{"UNKNOWN and anything", "PROXY UNKNOWN  \x00 what?\r\n", Header{Version: 1}},

	{"LOCAL", v2(0x20, 0), Header{Version: 2, Local: true}},
	{"LOCAL with a block", v2(0x20, 0x11, v4Block, "not TLVs"), Header{Version: 2, Local: true}},
	{"LOCAL of an unknown family", v2(0x20, 0xFF, "?"), Header{Version: 2, Local: true}},
	{"UNSPEC", v2(0x21, 0), Header{Version: 2, TLVs: TLVs{}}},
	{"UNSPEC with a name", v2(0x21, 0, tlv(TypeAuthority, "a.example")), Header{Version: 2, TLVs: TLVs(tlv(TypeAuthority, "a.example"))}},
	{"IPv4 without a transport", v2(0x21, 0x10, v4Block), Header{Version: 2, TLVs: TLVs{}}},
	{"TCP over IPv4", v2(0x21, 0x11, v4Block), with(tcp(2, IPv4, "198.18.0.1:56324", "198.18.0.2:443"), "")},
	{"UDP over IPv4", v2(0x21, 0x12, v4Block), udp(with(tcp(2, IPv4, "198.18.0.1:56324", "198.18.0.2:443"), ""))},
	{"TCP over IPv6", v2(0x21, 0x21, v6Block), with(tcp(2, IPv6, "[2001:db8::1]:1", "[2001:db8::2]:65535"), "")},
	{"UDP over IPv6", v2(0x21, 0x22, v6Block), udp(with(tcp(2, IPv6, "[2001:db8::1]:1", "[2001:db8::2]:65535"), ""))},
	{
		"a path and an abstract name", v2(0x21, 0x31, padded("/run/a\x00rest"), padded("\x00abstract")),
		Header{Version: 2, Family: Unix, Transport: Stream, UnixSource: []byte("/run/a"), UnixDestination: []byte("\x00abstract"), TLVs: TLVs{}},
	},
	{
		"no name and a whole one", v2(0x21, 0x32, padded(""), strings.Repeat("n", unixName)),
		Header{Version: 2, Family: Unix, Transport: Datagram, UnixSource: []byte{}, UnixDestination: bytes.Repeat([]byte("n"), unixName), TLVs: TLVs{}},
	},
	{"TLVs", v2(0x21, 0x11, v4Block, tlvs), with(tcp(2, IPv4, "198.18.0.1:56324", "198.18.0.2:443"), tlvs)},
	{
		"checksum", summed(v2(0x21, 0x11, v4Block, tlv(TypeCRC32C, "0000"))),
		checked(with(tcp(2, IPv4, "198.18.0.1:56324", "198.18.0.2:443"), summed(v2(0x21, 0x11, v4Block, tlv(TypeCRC32C, "0000")))[28:])),
	},
}

const tlvs = "\x01\x00\x02h2" + "\x04\x00\x00" + "\x05\x00\x03id!" + "\x20\x00\x0d\x01\x00\x00\x00\x00\x21\x00\x05TLSv1" + "\xe0\x00\x01x"

func with(h Header, tlvs string) Header {
	h.TLVs = TLVs(tlvs)
	return h
}

func udp(h Header) Header {
	h.Transport = Datagram
	return h
}

func checked(h Header) Header {
	h.Checksum = true
	return h
}

func padded(name string) string { return name + strings.Repeat("\x00", unixName-len(name)) }

var addresses = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

// TestAccepted parses each header before other bytes, and says that it needs more for all that it begins with.
func TestAccepted(t *testing.T) {
	for _, test := range accepted {
		h, n, err := Parse([]byte(test.in+"PROXY of the connection itself"), 0)
		if err != nil || n != len(test.in) {
			t.Errorf("%s: %d of %d bytes, %v", test.name, n, len(test.in), err)
		}
		if diff := cmp.Diff(test.want, h, addresses); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		for i := range test.in {
			if _, n, err := Parse([]byte(test.in[:i]), 0); n != 0 || err != nil {
				t.Errorf("%s: %d bytes of it make %d, %v", test.name, i, n, err)
			}
		}
	}
}

// refused is what a connection must be closed for.
var refused = []struct {
	name, in string
	want     error
}{
	{"HTTP", "GET / HTTP/1.1\r\n", ErrSignature},
	{"an HTTP request of the same first letter", "PUT ", ErrSignature},
	{"other case", "Proxy TCP4 ", ErrSignature},
	{"no space", "PROXY\r\n", ErrSignature},
	{"two empty lines", "\r\n\r\nGET", ErrSignature},
	{"the preface of HTTP/2", "PRI * HTTP/2.0", ErrSignature},

	{"LF alone", "PROXY TCP4 198.18.0.1 198.18.0.2 1 2\n", ErrMalformed},
	{"CR alone", "PROXY TCP4 198.18.0.1 198.18.0.2 1 2\r", nil},
	{"CR and more", "PROXY TCP4 198.18.0.1 198.18.0.2 1 2\rx", ErrMalformed},
	{"CR inside of UNKNOWN", "PROXY UNKNOWN \rx\r\n", ErrMalformed},
	{"107 bytes without an end", "PROXY UNKNOWN " + strings.Repeat("x", 93), ErrTooLong},
	{"106 bytes without an end", "PROXY UNKNOWN " + strings.Repeat("x", 92), nil},
	{"CR as byte 107", "PROXY UNKNOWN " + strings.Repeat("x", 92) + "\r\n", ErrTooLong},
	{"another protocol", "PROXY UDP4 198.18.0.1 198.18.0.2 1 2\r\n", ErrMalformed},
	{"letters after UNKNOWN", "PROXY UNKNOWNS\r\n", ErrMalformed},
	{"nothing", "PROXY \r\n", ErrMalformed},
	{"TCP4 alone", "PROXY TCP4\r\n", ErrMalformed},
	{"a port missing", "PROXY TCP4 198.18.0.1 198.18.0.2 1\r\n", ErrMalformed},
	{"an empty port", "PROXY TCP4 198.18.0.1 198.18.0.2 1 \r\n", ErrMalformed},
	{"a field more", "PROXY TCP4 198.18.0.1 198.18.0.2 1 2 3\r\n", ErrMalformed},
	{"two spaces", "PROXY TCP4  198.18.0.1 198.18.0.2 1 2\r\n", ErrMalformed},
	{"a space at the end", "PROXY TCP4 198.18.0.1 198.18.0.2 1 2 \r\n", ErrMalformed},
	{"an IPv6 address in TCP4", "PROXY TCP4 2001:db8::1 198.18.0.2 1 2\r\n", ErrMalformed},
	{"an IPv4 address in TCP6", "PROXY TCP6 2001:db8::1 198.18.0.2 1 2\r\n", ErrMalformed},
	{"zeros in front of an address", "PROXY TCP4 198.018.0.1 198.18.0.2 1 2\r\n", ErrMalformed},
	{"a number over 255", "PROXY TCP4 198.18.0.256 198.18.0.2 1 2\r\n", ErrMalformed},
	{"three numbers", "PROXY TCP4 198.18.1 198.18.0.2 1 2\r\n", ErrMalformed},
	{"a zone", "PROXY TCP6 fe80::1%eth0 2001:db8::1 1 2\r\n", ErrMalformed},
	{"zeros in front of a port", "PROXY TCP4 198.18.0.1 198.18.0.2 01 2\r\n", ErrMalformed},
	{"a port over 65535", "PROXY TCP4 198.18.0.1 198.18.0.2 1 65536\r\n", ErrMalformed},
	{"a port of six digits", "PROXY TCP4 198.18.0.1 198.18.0.2 1 100000\r\n", ErrMalformed},
	{"a sign", "PROXY TCP4 198.18.0.1 198.18.0.2 +1 2\r\n", ErrMalformed},

	{"version 1 in binary", v2(0x11, 0x11, v4Block), ErrMalformed},
	{"version 3", v2(0x31, 0x11, v4Block)[:13], ErrMalformed},
	{"command 2", v2(0x22, 0x11, v4Block)[:13], ErrMalformed},
	{"family 4", v2(0x21, 0x41, v4Block)[:16], ErrMalformed},
	{"transport 3", v2(0x21, 0x13, v4Block)[:16], ErrMalformed},
	{"too short for IPv4", v2(0x21, 0x11, v4Block[1:])[:16], ErrMalformed},
	{"too short for IPv6", v2(0x21, 0x21, v6Block[1:])[:16], ErrMalformed},
	{"too short for Unix", v2(0x21, 0x31, padded("a"), padded("b")[1:])[:16], ErrMalformed},
	{"longer than the limit", v2(0x21, 0x11, v4Block, tlv(TypeNoop, strings.Repeat("x", 5000)))[:16], ErrTooLong},
	{"LOCAL longer than the limit", v2(0x20, 0, strings.Repeat("x", 5000))[:16], ErrTooLong},
	{"half a TLV", v2(0x21, 0x11, v4Block, "\x04\x00"), ErrMalformed},
	{"a TLV that is cut off", v2(0x21, 0x11, v4Block, "\x04\x00\x05abc"), ErrMalformed},
	{"a byte after the TLVs", v2(0x21, 0x11, v4Block, tlvs, "\x04"), ErrMalformed},
	{"a checksum of 3 bytes", v2(0x21, 0x11, v4Block, tlv(TypeCRC32C, "abc")), ErrMalformed},
	{"two checksums", summed(v2(0x21, 0x11, v4Block, tlv(TypeCRC32C, "0000"), tlv(TypeCRC32C, "0000"))), ErrMalformed},
	{"a wrong checksum", v2(0x21, 0x11, v4Block, tlv(TypeCRC32C, "0000")), ErrChecksum},
	{"an ID of 129 bytes", v2(0x21, 0x11, v4Block, tlv(TypeUniqueID, strings.Repeat("x", 129))), ErrMalformed},
	{"TLS of 4 bytes", v2(0x21, 0x11, v4Block, tlv(TypeSSL, "abcd")), ErrMalformed},
	{"half a TLV of TLS", v2(0x21, 0x11, v4Block, tlv(TypeSSL, "abcde\x21\x00\x01")), ErrMalformed},
}

func TestRefused(t *testing.T) {
	for _, test := range refused {
		h, n, err := Parse([]byte(test.in), 0)
		if !errors.Is(err, test.want) || n != 0 || !cmp.Equal(h, Header{}, addresses) {
			t.Errorf("%s: %d, %v, want %v", test.name, n, err, test.want)
		}
	}
}

func TestLimit(t *testing.T) {
	in := []byte(v2(0x21, 0x11, v4Block, tlvs))
	if _, n, err := Parse(in, len(in)); n != len(in) || err != nil {
		t.Errorf("at the limit: %d, %v", n, err)
	}
	if _, _, err := Parse(in, len(in)-1); !errors.Is(err, ErrTooLong) {
		t.Errorf("over the limit: %v", err)
	}
}

// TestChecksumCovers changes each bit of a header: its checksum or its form is wrong then.
func TestChecksumCovers(t *testing.T) {
	in := []byte(summed(v2(0x21, 0x11, v4Block, tlvs, tlv(TypeCRC32C, "0000"))))
	for i := range in {
		for bit := range 8 {
			in[i] ^= 1 << bit
			if h, n, _ := Parse(append(in, make([]byte, 300)...), 0); n > 0 && !h.Local && h.Checksum {
				t.Errorf("bit %d of byte %d makes no difference", bit, i)
			}
			in[i] ^= 1 << bit
		}
	}
}
