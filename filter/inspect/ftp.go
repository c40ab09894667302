package inspect

import (
	"bytes"
	"net/netip"
	"strconv"

	"github.com/millrace/millrace/filter/inspect/ascii"
)

// bounces reports whether a client of FTP asks for data at another host than its own: a whole line "PORT h1,h2,h3,h4,p1,p2"
// (RFC 959 4.1.2) with an address that is not the client's, as IPv4-mapped.
func bounces(text []byte, client netip.Addr) bool {
	for {
		line, rest, whole := bytes.Cut(text, []byte{'\n'})
		if !whole {
			return false
		}
		text = rest
		if len(line) < 5 || !ascii.EqualFold(line[:4], []byte("port")) || line[4] != ' ' && line[4] != '\t' {
			continue
		}
		if a, ok := portAddress(line[5:]); ok && a != client.Unmap() {
			return true
		}
	}
}

// portAddress reads the address of a PORT command: numbers with commas, and blanks around them, which servers skip.
func portAddress(b []byte) (a netip.Addr, ok bool) {
	var octets [4]byte
	for i := range octets {
		word, rest, found := bytes.Cut(b, []byte{','})
		n, err := strconv.ParseUint(string(bytes.TrimSpace(word)), 10, 8)
		if !found || err != nil {
			return a, false
		}
		octets[i], b = byte(n), rest
	}
	return netip.AddrFrom4(octets), true
}
