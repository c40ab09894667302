package inspect

import (
	"bytes"
	"encoding/binary"
	"unicode/utf16"

	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/signature"
)

// smbFlow is the messages of SMB 1 to 3 of one flow (MS-CIFS, MS-SMB2), as far as they are not encrypted: the shares that a
// client asks for, and the files that it reads and writes.
type smbFlow struct {
	sides   [2]smbSide
	files   []*smbFile // that are open, the oldest first
	pending []smbCall  // calls whose replies say what is opened or read
}

// smbSide is one direction, in the frames of NetBIOS (RFC 1002 4.3.1):
//
//	| type 8 | length 24 | message |
type smbSide struct {
	held []byte // an incomplete frame
	skip int    // bytes of a frame that was evaluated at the bound
	done bool   // no SMB any more
}

// smbFile is an open file.
type smbFile struct {
	id    string  // FileId, or the FID of SMB 1
	files [2]file // by direction: what is written, and read
}

// smbCall is a call that has no reply yet.
type smbCall struct {
	id     uint64 // MessageId, or PID and MID
	opens  *smbFile
	reads  *smbFile
	offset uint64
}

// Bounds of a flow.
const (
	maxSMBFiles = 256
	maxSMBCalls = 256
)

// Types of NetBIOS frames.
const (
	netbiosMessage = 0
	netbiosRequest = 0x81
	netbiosGranted = 0x82
)

// smb reads frames.
func (e *Engine) smb(p *packet, b []byte) {
	s := &p.flow.proto.smb.sides[sideOf(p.dir)]
	most := e.cfg.bodyBytes() + maxHead
	for len(b) > 0 && !s.done {
		n := min(len(b), s.skip)
		s.skip, b = s.skip-n, b[n:]
		s.held, b = append(s.held, b...), nil
		rest := s.held
		for len(rest) >= 4 {
			end := 4 + (int(rest[1])<<16 | int(rest[2])<<8 | int(rest[3]))
			if len(rest) < min(end, most) {
				break
			}
			if rest[0] == netbiosMessage {
				e.smbMessage(p, rest[4:min(end, len(rest))])
			}
			s.skip = max(end-len(rest), 0)
			rest = rest[min(end, len(rest)):]
		}
		if len(rest) < len(s.held) {
			s.held = append([]byte(nil), rest...) // not a part of what was
		}
	}
}

// smbMessage reads a message, or several that are compound (MS-SMB2 3.2.4.1.4).
func (e *Engine) smbMessage(p *packet, b []byte) {
	if len(b) >= smb1Header && string(b[:4]) == "\xffSMB" {
		e.smb1(p, b)
		return
	}
	var related *smbFile
	for len(b) >= smb2Header && string(b[:4]) == "\xfeSMB" {
		next := int(binary.LittleEndian.Uint32(b[20:]))
		one := b
		if next >= smb2Header && next <= len(b) {
			one = b[:next]
		}
		e.smb2(p, one, &related)
		if len(one) == len(b) {
			return
		}
		b = b[next:]
	}
}

// smb2Header is the length of a header of SMB 2 (MS-SMB2 2.2.1).
const smb2Header = 64

// Commands of SMB 2 (MS-SMB2 2.2.1).
const (
	smb2Tree   = 3
	smb2Create = 5
	smb2Close  = 6
	smb2Read   = 8
	smb2Write  = 9
)

// smb2 reads one message of SMB 2. related is the file that one before it in its frame has opened.
func (e *Engine) smb2(p *packet, m []byte, related **smbFile) {
	f := p.flow.proto.smb
	command, id := binary.LittleEndian.Uint16(m[12:]), binary.LittleEndian.Uint64(m[24:])
	b := little{m[smb2Header:]}
	if p.dir == signature.ToClient {
		c, ok := f.answered(id)
		status := binary.LittleEndian.Uint32(m[8:])
		switch {
		case !ok || status != 0 && status != smbMore:
		case c.opens != nil && command == smb2Create:
			e.smbOpened(p, c.opens, string(b.at(64, 16)))
		case c.reads != nil && command == smb2Read:
			if n := int(b.byte(2)); n >= smb2Header {
				e.smbData(p, c.reads, c.offset, little{m}.at(n, int(b.uint32(4))))
			}
		}
		return
	}
	switch command {
	case smb2Tree:
		e.smbShare(p, utf16Text(little{m}.at(int(b.uint16(4)), int(b.uint16(6)))))
	case smb2Create:
		*related = &smbFile{}
		f.opening(id, *related, utf16Text(little{m}.at(int(b.uint16(44)), int(b.uint16(46)))))
	case smb2Close:
		e.smbClose(p, e.smb2File(p, b.at(8, 16), *related))
	case smb2Read:
		f.call(smbCall{id: id, reads: e.smb2File(p, b.at(16, 16), *related), offset: b.uint64(8)})
	case smb2Write:
		data := little{m}.at(int(b.uint16(2)), int(b.uint32(4)))
		e.smbData(p, e.smb2File(p, b.at(16, 16), *related), b.uint64(8), data)
	}
}

// smbMore is STATUS_BUFFER_OVERFLOW: there is more than was read (MS-ERREF 2.3).
const smbMore = 0x80000005

// smb2File returns the file of an identifier. All bits are set in that of a file which is opened in the same frame.
func (e *Engine) smb2File(p *packet, id []byte, related *smbFile) *smbFile {
	if related != nil && len(id) == 16 && bytes.Count(id, []byte{0xff}) == 16 {
		return related
	}
	return e.smbFile(p, string(id))
}

// smbFile returns an open file, made where its opening was not seen.
func (e *Engine) smbFile(p *packet, id string) *smbFile {
	f := p.flow.proto.smb
	for _, o := range f.files {
		if o.id == id {
			return o
		}
	}
	o := &smbFile{}
	e.smbOpened(p, o, id)
	return o
}

// smbOpened adds a file to those that are open. The oldest makes room, evaluated as far as it came.
func (e *Engine) smbOpened(p *packet, o *smbFile, id string) {
	f := p.flow.proto.smb
	for _, old := range f.files {
		if old.id == id { // closed where it was not seen
			e.smbClose(p, old)
			break
		}
	}
	if len(f.files) == maxSMBFiles {
		e.smbClose(p, f.files[0])
	}
	o.id = id
	f.files = append(f.files, o)
}

// opening notes that a file is being opened. Its name is evaluated with its first bytes.
func (f *smbFlow) opening(id uint64, o *smbFile, name []byte) {
	for i := range o.files {
		o.files[i].name = name
	}
	f.call(smbCall{id: id, opens: o})
}

// smbClose evaluates a file that is closed.
func (e *Engine) smbClose(p *packet, o *smbFile) {
	f := p.flow.proto.smb
	for i := range f.files {
		if f.files[i] == o {
			f.files = append(f.files[:i], f.files[i+1:]...)
			break
		}
	}
	e.smbEnds(p, o)
}

// smbEnds evaluates what was written to a file and read from it.
func (e *Engine) smbEnds(p *packet, o *smbFile) {
	for i := range o.files {
		q := p
		if d := directionOf(i); d != p.dir {
			q = packetOf(p.flow, d)
		}
		e.fileEnds(q, &o.files[i])
	}
}

// smbData takes bytes of a file, which may come in any order.
func (e *Engine) smbData(p *packet, o *smbFile, offset uint64, b []byte) {
	f := &o.files[sideOf(p.dir)]
	limit := e.cfg.bodyBytes()
	if f.sent || len(b) == 0 || offset >= uint64(limit) {
		return
	}
	at := int(offset)
	if at > len(f.body) {
		f.body = append(f.body, make([]byte, at-len(f.body))...)
	}
	if n := copy(f.body[at:], b); n > 0 {
		f.early.scanned = 0 // what was searched has changed
		if b = b[n:]; len(b) == 0 && e.cfg.Inline {
			e.bodyGrown(p, &f.early, f.body, func() { e.fileBuffers(p, f) })
		}
	}
	e.fileBytes(p, f, b)
}

// smbShare evaluates the share that a client asks for. That of named pipes has one name (MS-SRVS 3.1.4.7).
func (e *Engine) smbShare(p *packet, path []byte) {
	if len(path) == 0 {
		return
	}
	b := signature.SMBShare
	if ascii.IsWord(path[bytes.LastIndexByte(path, '\\')+1:], "ipc$") {
		b = signature.SMBNamedPipe
	}
	e.tx.reset(signature.AppSMB)
	e.tx.put(b, path)
	e.tx.text = path
	e.transact(p)
}

// call keeps a call until its reply comes.
func (f *smbFlow) call(c smbCall) {
	if len(f.pending) == maxSMBCalls {
		f.pending = append(f.pending[:0], f.pending[1:]...)
	}
	f.pending = append(f.pending, c)
}

// answered returns the call of a reply.
func (f *smbFlow) answered(id uint64) (c smbCall, ok bool) {
	for i := range f.pending {
		if f.pending[i].id == id {
			c = f.pending[i]
			f.pending = append(f.pending[:i], f.pending[i+1:]...)
			return c, true
		}
	}
	return c, false
}

// smbFinish evaluates the files that are open when a flow ends.
func (e *Engine) smbFinish(f *flow) {
	for _, o := range f.proto.smb.files {
		e.smbEnds(packetOf(f, signature.ToServer), o)
	}
	f.proto.smb.files = nil
}

// utf16Text returns text of SMB as UTF-8.
func utf16Text(b []byte) []byte {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return []byte(string(utf16.Decode(units)))
}

// little reads numbers at offsets; those behind the end are 0.
type little struct{ b []byte }

func (l little) at(offset, n int) []byte {
	if offset < 0 || n < 0 || offset > len(l.b) {
		return nil
	}
	return l.b[offset:min(len(l.b), offset+n)]
}

func (l little) uint64(offset int) uint64 {
	var full [8]byte
	copy(full[:], l.at(offset, 8))
	return binary.LittleEndian.Uint64(full[:])
}

func (l little) uint32(offset int) uint32 { return uint32(l.uint64(offset)) }
func (l little) uint16(offset int) uint16 { return uint16(l.uint64(offset)) }
func (l little) byte(offset int) byte     { return byte(l.uint64(offset)) }

// size returns how many bytes the parser holds.
func (f *smbFlow) size() int {
	n := smbSize + cap(f.sides[0].held) + cap(f.sides[1].held) + cap(f.files)*8 + cap(f.pending)*smbCallSize
	for _, o := range f.files {
		n += o.size()
	}
	for i := range f.pending {
		if o := f.pending[i].opens; o != nil {
			n += o.size()
		}
	}
	return n
}

func (o *smbFile) size() int { return len(o.id) + 2*sliceSize + o.files[0].size() + o.files[1].size() }

const (
	smbSize     = 128
	smbCallSize = 32
)
