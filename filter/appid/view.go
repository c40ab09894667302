package appid

import (
	"bytes"
	"encoding/binary"
)

// verdict is the result of a recogniser on a payload.
type verdict uint8

const (
	no    verdict = iota // the flow is something else
	maybe                // another payload may tell
	yes
)

// is returns yes or no.
func is(b bool) verdict {
	if b {
		return yes
	}
	return no
}

// perhaps returns yes or maybe.
func perhaps(b bool) verdict {
	if b {
		return yes
	}
	return maybe
}

// perhapsOnly returns maybe or no.
func perhapsOnly(b bool) verdict {
	if b {
		return maybe
	}
	return no
}

// view is a payload with what is known of its flow. A number that is not whole in the payload reads as 0.
type view struct {
	p                   []byte
	nth                 int // payloads that this direction has had before
	replies             int // payloads that the other direction has had
	source, destination uint16
	reply               bool
	mine, other         *payload // the last payloads before, of this direction and of the other
	began, answers      *payload // the first ones
}

func (v *view) port(ports ...uint16) bool {
	for _, p := range ports {
		if v.source == p || v.destination == p {
			return true
		}
	}
	return false
}

func (v *view) u8(at int) int {
	if at < 0 || at >= len(v.p) {
		return 0
	}
	return int(v.p[at])
}

func (v *view) u16(at int) int {
	if at < 0 || at+2 > len(v.p) {
		return 0
	}
	return int(binary.BigEndian.Uint16(v.p[at:]))
}

func (v *view) u24(at int) int { return v.u8(at)<<16 | v.u16(at+1) }

func (v *view) u32(at int) uint32 {
	if at < 0 || at+4 > len(v.p) {
		return 0
	}
	return binary.BigEndian.Uint32(v.p[at:])
}

func (v *view) u64(at int) uint64 { return uint64(v.u32(at))<<32 | uint64(v.u32(at+4)) }

func (v *view) le16(at int) int {
	if at < 0 || at+2 > len(v.p) {
		return 0
	}
	return int(binary.LittleEndian.Uint16(v.p[at:]))
}

func (v *view) le32(at int) uint32 {
	if at < 0 || at+4 > len(v.p) {
		return 0
	}
	return binary.LittleEndian.Uint32(v.p[at:])
}

func (v *view) has(prefix string) bool {
	return len(v.p) >= len(prefix) && string(v.p[:len(prefix)]) == prefix
}

// hasAny reports whether the payload begins with one of the words.
func (v *view) hasAny(prefixes ...string) bool {
	for _, s := range prefixes {
		if v.has(s) {
			return true
		}
	}
	return false
}

func (v *view) hasAt(at int, s string) bool {
	return at >= 0 && at+len(s) <= len(v.p) && string(v.p[at:at+len(s)]) == s
}

// hasFold is has whatever the case of letters. prefix is in upper case.
func (v *view) hasFold(prefix string) bool {
	return len(v.p) >= len(prefix) && bytes.EqualFold(v.p[:len(prefix)], []byte(prefix))
}

func (v *view) contains(s string) bool { return bytes.Contains(v.p, []byte(s)) }

// line returns the first line, without its end, and whether it is complete.
func (v *view) line() ([]byte, bool) {
	i := bytes.IndexByte(v.p, '\n')
	if i < 0 {
		return v.p, false
	}
	return bytes.TrimSuffix(v.p[:i], []byte("\r")), true
}

// printable reports whether the first n bytes are text.
func (v *view) printable(n int) bool {
	for _, c := range v.p[:min(n, len(v.p))] {
		if c < ' ' && c != '\r' && c != '\n' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// containsIn reports whether s is in the first n bytes.
func (v *view) containsIn(n int, s string) bool {
	return bytes.Contains(v.p[:min(n, len(v.p))], []byte(s))
}

// printableFrom reports whether all from an offset to the last byte, a zero, is text.
func (v *view) printableFrom(at int) bool {
	for _, c := range v.p[at : len(v.p)-1] {
		if c < ' ' && c != 0 || c >= 0x7f {
			return false
		}
	}
	return true
}

// digits returns how many decimal digits are at an offset.
func (v *view) digits(at int) int {
	n := 0
	for c := v.u8(at); c >= '0' && c <= '9'; c = v.u8(at + n) {
		n++
	}
	return n
}

// code reports whether a server's line begins with one of the three-digit codes, and a space or a hyphen.
func (v *view) code(codes ...string) bool {
	return len(v.p) >= 4 && (v.p[3] == ' ' || v.p[3] == '-') && v.hasAny(codes...)
}

// command reports whether a line begins with one of the commands of a text protocol, whatever their case.
func (v *view) command(words ...string) bool {
	for _, w := range words {
		if v.hasFold(w) && (len(v.p) == len(w) || v.p[len(w)] == ' ' || v.p[len(w)] == '\r' || v.p[len(w)] == '\n') {
			return true
		}
	}
	return false
}

// containsFold reports whether word, in upper case, is in the payload whatever the case of letters there.
func (v *view) containsFold(word string) bool {
	for i := 0; i+len(word) <= len(v.p); i++ {
		if c := v.p[i]; (c == word[0] || c == word[0]|0x20) && bytes.EqualFold(v.p[i:i+len(word)], []byte(word)) {
			return true
		}
	}
	return false
}

// is reports whether a payload began with s, of up to 24 bytes.
func (p *payload) is(s string) bool { return p.size >= len(s) && string(p.head[:len(s)]) == s }

func (p *payload) u16(at int) int { return int(p.head[at])<<8 | int(p.head[at+1]) }

// textAt reports whether n bytes at an offset are printable.
func (v *view) textAt(at, n int) bool {
	if at+n > len(v.p) {
		return false
	}
	for _, c := range v.p[at : at+n] {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// items reports whether a payload is filled, from an offset on, by items of a type, a length and as many bytes. Types are from
// least to most.
func (v *view) items(at, least, most int) bool {
	for at+4 <= len(v.p) && v.u16(at) >= least && v.u16(at) <= most {
		at += 4 + v.u16(at+2)
	}
	return at == len(v.p)
}

// dense reports whether fewer than a quarter of n bytes at an offset are zero, as of a key or of what is encrypted.
func (v *view) dense(at, n int) bool {
	return at+n <= len(v.p) && 4*bytes.Count(v.p[at:at+n], []byte{0}) < n
}

func (v *view) containsFrom(at int, s string) bool {
	return at < len(v.p) && bytes.Contains(v.p[at:], []byte(s))
}
