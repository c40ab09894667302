package applayer

import (
	"bytes"
	"net/netip"
	"strconv"

	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/signature"
)

// ftpFlow is a control connection of FTP (RFC 959 4).
type ftpFlow struct {
	lines    [2][]byte // incomplete
	skips    [2]bool   // the rest of a line that was too long
	transfer *Transfer // the one that was announced last
	secure   bool      // behind AUTH: TLS, or commands where the server has refused (RFC 4217 4)
}

// Transfers holds the data connections of FTP that control connections have announced, and that have not come.
type Transfers struct{ expected map[transferKey]*Transfer }

// Transfer is the file of a data connection. The control connection and that one share it: the file's name may be known only
// when the data connection is there.
type Transfer struct {
	key     transferKey
	name    []byte // nil where no file is transferred
	command []byte
}

// transferKey identifies a data connection before its first packet.
type transferKey struct {
	from, to netip.Addr // who opens it, and where to
	port     uint16     // there
}

// ftpData is a data connection.
type ftpData struct {
	transfer *Transfer
	files    [2]File // by direction; nil without bytes
}

// maxFTPLine bounds a line of a control connection.
const maxFTPLine = 8 << 10

// Parse reads lines.
func (f *ftpFlow) Parse(c *Context, b []byte) {
	side := c.side()
	for len(b) > 0 {
		if c.Dir == signature.ToServer && f.secure && len(f.lines[0]) == 0 && b[0] == tlsHandshake {
			c.Transfers.forget(f)
			c.Host.Secure(b)
			return
		}
		at := bytes.IndexByte(b, '\n') + 1
		end := at
		if at == 0 {
			end = len(b)
		}
		if !f.skips[side] {
			f.lines[side] = append(f.lines[side], b[:end]...)
		}
		b = b[end:]
		if at == 0 && len(f.lines[side]) < maxFTPLine {
			return
		}
		line := bytes.TrimRight(f.lines[side], "\r\n")
		skipped := f.skips[side]
		f.lines[side], f.skips[side] = nil, at == 0
		switch {
		case skipped:
		case c.Dir == signature.ToServer:
			f.command(c, line)
		default:
			f.reply(c, line)
		}
	}
}

// command reads a command (RFC 959 5.3), and evaluates it.
func (f *ftpFlow) command(c *Context, line []byte) {
	verb, rest, has := bytes.Cut(bytes.TrimLeft(line, " \t"), []byte{' '})
	rest = bytes.TrimSpace(rest)
	f.secure = false
	switch word := string(bytes.ToUpper(verb)); word {
	case "PORT", "EPRT": // the server opens the connection
		read := hostPort
		if word == "EPRT" {
			read = extendedPort
		}
		if to, ok := read(rest); ok {
			c.Transfers.expect(f, transferKey{c.Dst, mapped(to.Addr()), to.Port()})
		}
	case "RETR", "STOR", "STOU", "APPE":
		if f.transfer != nil {
			f.transfer.name, f.transfer.command = bytes.Clone(rest), []byte("STOR")
			if word == "RETR" {
				f.transfer.command = []byte("RETR")
			}
		}
	case "AUTH":
		f.secure = true
	}
	if len(verb) == 0 {
		return
	}
	c.Message.Reset()
	c.Message.Put(signature.FTPCommand, verb)
	if has {
		c.Message.Put(signature.FTPCommandData, rest)
	}
	c.Message.Text = line
	c.inspect()
}

// reply reads where a server waits for a data connection: in 227 (RFC 959 4.2) and 229 (RFC 2428 3).
func (f *ftpFlow) reply(c *Context, line []byte) {
	code, text, _ := bytes.Cut(line, []byte{' '})
	switch string(code) {
	case "227":
		if at := bytes.IndexAny(text, "0123456789"); at >= 0 {
			if to, ok := hostPort(text[at:]); ok { // clients go to the host that they know: the one in the reply may be behind NAT
				c.Transfers.expect(f, transferKey{c.Dst, c.Src, to.Port()})
			}
		}
	case "229":
		_, rest, _ := bytes.Cut(text, []byte{'('})
		if to, ok := extendedPort(rest); ok {
			c.Transfers.expect(f, transferKey{c.Dst, c.Src, to.Port()})
		}
	}
}

// hostPort reads h1,h2,h3,h4,p1,p2 (RFC 959 4.1.2).
func hostPort(b []byte) (to netip.AddrPort, ok bool) {
	a, ok := portAddress(b)
	words := bytes.Split(b, []byte{','})
	if !ok || len(words) < 6 {
		return to, false
	}
	high, err1 := strconv.ParseUint(string(bytes.TrimSpace(words[4])), 10, 8)
	low := words[5]
	if end := bytes.IndexFunc(low, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		low = low[:end]
	}
	n, err2 := strconv.ParseUint(string(low), 10, 8)
	return netip.AddrPortFrom(a, uint16(high<<8|n)), err1 == nil && err2 == nil
}

// extendedPort reads |1|192.0.2.1|port| or |||port| with any delimiter (RFC 2428 2, 3).
func extendedPort(b []byte) (to netip.AddrPort, ok bool) {
	if len(b) == 0 {
		return to, false
	}
	words := bytes.Split(b[1:], b[:1])
	if len(words) < 3 {
		return to, false
	}
	port, err := strconv.ParseUint(string(words[2]), 10, 16)
	a, err2 := netip.ParseAddr(string(words[1]))
	if err2 != nil {
		a = netip.IPv4Unspecified() // of 229
	}
	return netip.AddrPortFrom(a, uint16(port)), err == nil && (err2 == nil || len(words[1]) == 0)
}

// mapped returns an address as IPv6, as those of packets are.
func mapped(a netip.Addr) netip.Addr { return netip.AddrFrom16(a.As16()) }

// expect waits for the data connection of a control connection. Each has one at a time (RFC 959 3.2), so that there are no
// more than flows.
func (t *Transfers) expect(f *ftpFlow, k transferKey) {
	t.forget(f)
	if t.expected[k] != nil {
		return // of another control connection, which has announced it before
	}
	if t.expected == nil {
		t.expected = map[transferKey]*Transfer{}
	}
	f.transfer = &Transfer{key: k}
	t.expected[k] = f.transfer
}

// forget stops waiting for a data connection.
func (t *Transfers) forget(f *ftpFlow) {
	if x := f.transfer; x != nil && t.expected[x.key] == x {
		delete(t.expected, x.key)
	}
	f.transfer = nil
}

// Len returns how many data connections are expected.
func (t *Transfers) Len() int { return len(t.expected) }

// Take returns the parser of a data connection that was announced, opened from an address to another and its port; nil for
// another connection.
func (t *Transfers) Take(from, to netip.Addr, port uint16) Parser {
	k := transferKey{from, to, port}
	x := t.expected[k]
	if x == nil {
		return nil
	}
	delete(t.expected, k)
	return &ftpData{transfer: x}
}

// Parse takes bytes of a data connection. The name of the file may come after the first of them.
func (d *ftpData) Parse(c *Context, b []byte) {
	f := &d.files[c.side()]
	if *f == nil {
		*f = c.Host.NewFile()
	}
	(*f).Describe(d.transfer.name, d.transfer.command)
	(*f).Write(c.Dir, b)
}

// Finish implements Parser.
func (d *ftpData) Finish(*Context) {
	for i, f := range d.files {
		if f != nil {
			f.End(signature.DirectionOf(i))
		}
	}
}

// Close implements Parser.
func (d *ftpData) Close(*Context) {}

// Finish implements Parser.
func (f *ftpFlow) Finish(*Context) {}

// Close implements Parser: what was announced will not be recognised.
func (f *ftpFlow) Close(c *Context) { c.Transfers.forget(f) }

// Size implements Parser.
func (f *ftpFlow) Size() int {
	n := ftpSize + cap(f.lines[0]) + cap(f.lines[1])
	if f.transfer != nil {
		n += ftpSize + cap(f.transfer.name)
	}
	return n
}

// Size implements Parser.
func (d *ftpData) Size() (n int) {
	for _, f := range d.files {
		if f != nil {
			n += f.Size()
		}
	}
	return n
}

const ftpSize = 128

// Bounces reports whether a client of FTP asks for data at another host than its own: a whole line "PORT h1,h2,h3,h4,p1,p2"
// (RFC 959 4.1.2) with an address that is not the client's, as IPv4-mapped.
func Bounces(text []byte, client netip.Addr) bool {
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
