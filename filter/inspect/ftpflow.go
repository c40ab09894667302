package inspect

import (
	"bytes"
	"net/netip"
	"strconv"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// ftpFlow is a control connection of FTP (RFC 959 4).
type ftpFlow struct {
	lines    [2][]byte    // incomplete
	skips    [2]bool      // the rest of a line that was too long
	transfer *ftpTransfer // the one that was announced last
	secure   bool         // behind AUTH: TLS, or commands where the server has refused (RFC 4217 4)
}

// ftpTransfer is the file of a data connection. The control connection and that one share it: the file's name may be known only
// when the data connection is there.
type ftpTransfer struct {
	key     ftpKey
	name    []byte // nil where no file is transferred
	command []byte
}

// ftpKey is what is known of a data connection before its first packet.
type ftpKey struct {
	from, to netip.Addr // who opens it, and where to
	port     uint16     // there
}

// ftpData is a data connection.
type ftpData struct {
	transfer *ftpTransfer
	files    [2]file // by direction
}

// maxFTPLine bounds a line of a control connection.
const maxFTPLine = 8 << 10

// ftp reads lines.
func (e *Engine) ftp(p *packet, b []byte) {
	f := p.flow.proto.ftp
	side := sideOf(p.dir)
	for len(b) > 0 {
		if p.dir == signature.ToServer && f.secure && len(f.lines[0]) == 0 && b[0] == tlsHandshake {
			e.forgetTransfer(f)
			p.flow.app, p.flow.proto = signature.AppTLS, &protocol{tls: &tlsFlow{}}
			e.tls(p, b)
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
		case p.dir == signature.ToServer:
			e.ftpCommand(p, f, line)
		default:
			e.ftpReply(p, f, line)
		}
	}
}

// ftpCommand reads a command (RFC 959 5.3), and evaluates it.
func (e *Engine) ftpCommand(p *packet, f *ftpFlow, line []byte) {
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
			e.expectTransfer(f, ftpKey{p.dst, mapped(to.Addr()), to.Port()})
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
	e.tx.reset(signature.AppFTP)
	e.tx.put(signature.FTPCommand, verb)
	if has {
		e.tx.put(signature.FTPCommandData, rest)
	}
	e.tx.text = line
	e.transact(p)
}

// ftpReply reads where a server waits for a data connection: in 227 (RFC 959 4.2) and 229 (RFC 2428 3).
func (e *Engine) ftpReply(p *packet, f *ftpFlow, line []byte) {
	code, text, _ := bytes.Cut(line, []byte{' '})
	switch string(code) {
	case "227":
		if at := bytes.IndexAny(text, "0123456789"); at >= 0 {
			if to, ok := hostPort(text[at:]); ok { // clients go to the host that they know: the one in the reply may be behind NAT
				e.expectTransfer(f, ftpKey{p.dst, p.src, to.Port()})
			}
		}
	case "229":
		_, rest, _ := bytes.Cut(text, []byte{'('})
		if to, ok := extendedPort(rest); ok {
			e.expectTransfer(f, ftpKey{p.dst, p.src, to.Port()})
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

// expectTransfer waits for the data connection of a control connection. Each has one at a time (RFC 959 3.2), so that there are no
// more than flows.
func (e *Engine) expectTransfer(f *ftpFlow, k ftpKey) {
	e.forgetTransfer(f)
	if e.transfers[k] != nil {
		return // of another control connection, which has announced it before
	}
	f.transfer = &ftpTransfer{key: k}
	e.transfers[k] = f.transfer
}

// forgetTransfer stops waiting for a data connection.
func (e *Engine) forgetTransfer(f *ftpFlow) {
	if t := f.transfer; t != nil && e.transfers[t.key] == t {
		delete(e.transfers, t.key)
	}
	f.transfer = nil
}

// isTransfer makes a new flow the data connection that a control connection has announced.
func (e *Engine) isTransfer(f *flow, p *packet) {
	if len(e.transfers) == 0 || p.proto != wire.ProtoTCP {
		return
	}
	k := ftpKey{p.src, p.dst, p.dstPort}
	if p.tcp != nil && p.tcp.Flags().Has(wire.FlagSYN|wire.FlagACK) {
		k = ftpKey{p.dst, p.src, p.srcPort}
	}
	if t := e.transfers[k]; t != nil {
		delete(e.transfers, k)
		f.app, f.appFinal = signature.AppFTPData, true
		f.proto = &protocol{ftpData: &ftpData{transfer: t}}
	}
}

// ftpBytes takes bytes of a data connection.
func (e *Engine) ftpBytes(p *packet, b []byte) {
	d := p.flow.proto.ftpData
	f := &d.files[sideOf(p.dir)]
	f.name, f.command = d.transfer.name, d.transfer.command
	e.fileBytes(p, f, b)
}

// size returns how many bytes the parser holds.
func (f *ftpFlow) size() int {
	n := ftpSize + cap(f.lines[0]) + cap(f.lines[1])
	if f.transfer != nil {
		n += ftpSize + cap(f.transfer.name)
	}
	return n
}

// size returns how many bytes the parser holds.
func (d *ftpData) size() int { return d.files[0].size() + d.files[1].size() }

const ftpSize = 128
