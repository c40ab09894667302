package clienthello

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
)

// Features are the properties of a ClientHello that fingerprints are made of, whatever parsed it.
// Lists are in the order of the hello; values of GREASE are left out of fingerprints.
type Features struct {
	Version       uint16 // legacy_version
	MaxVersion    uint16 // the highest version offered
	HasServerName bool
	FirstALPN     []byte // nil without ALPN
	Suites        []uint16
	Extensions    []uint16
	Groups        []uint16
	PointFormats  []byte
	Signatures    []uint16
}

// maxOnStack is the number of values of a list that fingerprints keep on the stack; beyond, they allocate.
const maxOnStack = 128

// JA4 returns the fingerprint JA4 of a hello over TCP, 36 characters.
func (h *Hello) JA4() string {
	var b [36]byte
	return string(h.AppendJA4(b[:0], 't'))
}

// AppendJA4 appends JA4 to dst. The transport is 't' for TCP and 'q' for QUIC.
func (h *Hello) AppendJA4(dst []byte, transport byte) []byte {
	var suites, extensions, signatures [maxOnStack]uint16
	f := Features{
		MaxVersion:    h.MaxVersion(),
		HasServerName: h.HasServerName,
		Suites:        h.Suites.appendTo(suites[:0]),
		Extensions:    h.appendExtensions(extensions[:0]),
		Signatures:    h.Signatures.appendTo(signatures[:0]),
	}
	f.FirstALPN, _ = h.ALPN.Next()
	return f.appendJA4(dst, transport)
}

// JA3 returns the fingerprint JA3, 32 hexadecimal digits of an MD5.
func (h *Hello) JA3() string {
	var b [32]byte
	return string(h.AppendJA3(b[:0]))
}

// AppendJA3 appends JA3 to dst.
func (h *Hello) AppendJA3(dst []byte) []byte {
	var suites, extensions, groups [maxOnStack]uint16
	f := h.ja3Features(suites[:0], extensions[:0], groups[:0])
	return f.appendJA3(dst)
}

// AppendJA3Text appends the text that JA3 is the MD5 of.
func (h *Hello) AppendJA3Text(dst []byte) []byte {
	var suites, extensions, groups [maxOnStack]uint16
	f := h.ja3Features(suites[:0], extensions[:0], groups[:0])
	return f.appendJA3Text(dst)
}

// ja3Features returns what JA3 is made of, in lists that are appended to.
func (h *Hello) ja3Features(suites, extensions, groups []uint16) Features {
	return Features{
		Version: h.Version, Suites: h.Suites.appendTo(suites), Extensions: h.appendExtensions(extensions),
		Groups: h.Groups.appendTo(groups), PointFormats: h.PointFormats,
	}
}

// AppendJA4 appends JA4 to dst: see Hello.AppendJA4.
func (f *Features) AppendJA4(dst []byte, transport byte) []byte {
	g := *f
	g.Suites, g.Extensions, g.Signatures = withoutGREASE(f.Suites), withoutGREASE(f.Extensions), withoutGREASE(f.Signatures)
	return g.appendJA4(dst, transport)
}

// AppendJA3 appends JA3 to dst: see Hello.AppendJA3.
func (f *Features) AppendJA3(dst []byte) []byte {
	g := *f
	g.Suites, g.Extensions, g.Groups = withoutGREASE(f.Suites), withoutGREASE(f.Extensions), withoutGREASE(f.Groups)
	return g.appendJA3(dst)
}

// withoutGREASE returns a copy of a list.
func withoutGREASE(l []uint16) []uint16 {
	return slices.DeleteFunc(slices.Clone(l), isGREASE)
}

// appendJA4 appends a_b_c; the lists have no GREASE, and are sorted in place.
//
//	a: transport, version, d(omain) or i(p), number of suites, number of extensions, ALPN
//	b: hash of the suites, sorted
//	c: hash of the extensions, sorted, without server_name and ALPN, and of signature_algorithms as sent
func (f *Features) appendJA4(dst []byte, transport byte) []byte {
	dst = append(dst, transport)
	dst = append(dst, ja4Version(f.MaxVersion)...)
	if f.HasServerName {
		dst = append(dst, 'd')
	} else {
		dst = append(dst, 'i')
	}
	dst = append2(dst, len(f.Suites))
	dst = append2(dst, len(f.Extensions))
	dst = appendALPN(dst, f.FirstALPN)

	var text [2*maxOnStack*5 + 1]byte
	slices.Sort(f.Suites)
	dst = appendHash(append(dst, '_'), appendHexList(text[:0], f.Suites))

	dst = append(dst, '_')
	if len(f.Extensions) == 0 {
		return append(dst, noHash...)
	}
	slices.Sort(f.Extensions)
	hashed := f.Extensions[:0]
	for _, t := range f.Extensions {
		if t != extServerName && t != extALPN {
			hashed = append(hashed, t)
		}
	}
	b := appendHexList(text[:0], hashed)
	if len(f.Signatures) > 0 {
		b = appendHexList(append(b, '_'), f.Signatures)
	}
	return appendHash(dst, b)
}

// ja4Version returns the two characters of a version.
func ja4Version(v uint16) string {
	switch v {
	case 0x0304:
		return "13"
	case 0x0303:
		return "12"
	case 0x0302:
		return "11"
	case 0x0301:
		return "10"
	case 0x0300:
		return "s3"
	case 0x0002:
		return "s2"
	}
	return "00"
}

// append2 appends a number in two digits, 99 at most.
func append2(dst []byte, n int) []byte {
	n = min(n, 99)
	return append(dst, '0'+byte(n/10), '0'+byte(n%10))
}

// appendALPN appends the first and the last character of a protocol's name, or of its bytes in
// hexadecimal if one of the two is no letter or digit.
func appendALPN(dst, name []byte) []byte {
	const digits = "0123456789abcdef"
	if len(name) == 0 {
		return append(dst, '0', '0')
	}
	first, last := name[0], name[len(name)-1]
	if isAlnum(first) && isAlnum(last) {
		return append(dst, first, last)
	}
	return append(dst, digits[first>>4], digits[last&15])
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// noHash stands for the hash of an empty list.
const noHash = "000000000000"

// appendHash appends the first 12 hexadecimal digits of the SHA-256 of a list.
func appendHash(dst, list []byte) []byte {
	if len(list) == 0 {
		return append(dst, noHash...)
	}
	sum := sha256.Sum256(list)
	return hex.AppendEncode(dst, sum[:6])
}

// appendHexList appends values in four digits each, separated by commas.
func appendHexList(dst []byte, l []uint16) []byte {
	const digits = "0123456789abcdef"
	for i, v := range l {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, digits[v>>12], digits[v>>8&15], digits[v>>4&15], digits[v&15])
	}
	return dst
}

// appendJA3 appends the MD5 of what appendJA3Text appends.
func (f *Features) appendJA3(dst []byte) []byte {
	var text [3 * maxOnStack * 6]byte
	sum := md5.Sum(f.appendJA3Text(text[:0]))
	return hex.AppendEncode(dst, sum[:])
}

// appendJA3Text appends "version,suites,extensions,groups,formats", each a list of decimal numbers; the lists have no
// GREASE.
func (f *Features) appendJA3Text(b []byte) []byte {
	b = strconv.AppendUint(b, uint64(f.Version), 10)
	for _, l := range [...][]uint16{f.Suites, f.Extensions, f.Groups} {
		b = append(b, ',')
		for i, v := range l {
			if i > 0 {
				b = append(b, '-')
			}
			b = strconv.AppendUint(b, uint64(v), 10)
		}
	}
	b = append(b, ',')
	for i, v := range f.PointFormats {
		if i > 0 {
			b = append(b, '-')
		}
		b = strconv.AppendUint(b, uint64(v), 10)
	}
	return b
}
