package applayer

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
	id    string // FileId, or the FID of SMB 1
	name  []byte
	files [2]File // by direction: what is written, and read; nil where nothing is
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

// Parse reads frames.
func (f *smbFlow) Parse(c *Context, b []byte) {
	s := &f.sides[c.side()]
	most := c.Limit + MaxHead
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
				f.message(c, rest[4:min(end, len(rest))])
			}
			s.skip = max(end-len(rest), 0)
			rest = rest[min(end, len(rest)):]
		}
		if len(rest) < len(s.held) {
			s.held = append([]byte(nil), rest...) // not a part of what was
		}
	}
}

// message reads a message, or several that are compound (MS-SMB2 3.2.4.1.4).
func (f *smbFlow) message(c *Context, b []byte) {
	if len(b) >= smb1Header && string(b[:4]) == "\xffSMB" {
		f.smb1(c, b)
		return
	}
	var related *smbFile
	for len(b) >= smb2Header && string(b[:4]) == "\xfeSMB" {
		next := int(binary.LittleEndian.Uint32(b[20:]))
		one := b
		if next >= smb2Header && next <= len(b) {
			one = b[:next]
		}
		f.smb2(c, one, &related)
		if len(one) == len(b) {
			return
		}
		b = b[next:]
	}
}

// smb2Header is the length of a header of SMB 2 (MS-SMB2 2.2.1.2), whose numbers are little-endian:
//
//	 0 | fe "SMB" | size 16 | credits 16 | status 32 | command 16 | credits 16 | flags 32 | next 32 |
//	24 | MessageId 64 | reserved 32 | TreeId 32 | SessionId 64 | signature 128 |
//
// next is the offset of the next message of a compound, 0 in the last. Encrypted messages (fd "SMB", 2.2.41) have no such header.
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
//
// Replies name neither the file nor the offset: they are those of the call with the same MessageId. Offsets of buffers count from
// the begin of the header, those of fields here from its end.
func (f *smbFlow) smb2(c *Context, m []byte, related **smbFile) {
	command, id := binary.LittleEndian.Uint16(m[12:]), binary.LittleEndian.Uint64(m[24:])
	b := little{m[smb2Header:]}
	if c.Dir == signature.ToClient {
		call, ok := f.answered(id)
		status := binary.LittleEndian.Uint32(m[8:])
		switch {
		case !ok || status != 0 && status != smbMore:
		case call.opens != nil && command == smb2Create:
			f.opened(c, call.opens, string(b.at(64, 16)))
		case call.reads != nil && command == smb2Read:
			if n := int(b.byte(2)); n >= smb2Header {
				f.data(c, call.reads, call.offset, little{m}.at(n, int(b.uint32(4))))
			}
		}
		return
	}
	switch command {
	case smb2Tree:
		smbShare(c, utf16Text(little{m}.at(int(b.uint16(4)), int(b.uint16(6)))))
	case smb2Create:
		*related = &smbFile{}
		f.opening(id, *related, utf16Text(little{m}.at(int(b.uint16(44)), int(b.uint16(46)))))
	case smb2Close:
		f.closed(c, f.smb2File(c, b.at(8, 16), *related))
	case smb2Read:
		f.call(smbCall{id: id, reads: f.smb2File(c, b.at(16, 16), *related), offset: b.uint64(8)})
	case smb2Write:
		data := little{m}.at(int(b.uint16(2)), int(b.uint32(4)))
		f.data(c, f.smb2File(c, b.at(16, 16), *related), b.uint64(8), data)
	}
}

// smbMore is STATUS_BUFFER_OVERFLOW: there is more than was read (MS-ERREF 2.3).
const smbMore = 0x80000005

// smb2File returns the file of an identifier. All bits are set in that of a file which is opened in the same frame.
func (f *smbFlow) smb2File(c *Context, id []byte, related *smbFile) *smbFile {
	if related != nil && len(id) == 16 && bytes.Count(id, []byte{0xff}) == 16 {
		return related
	}
	return f.file(c, string(id))
}

// file returns an open file, made where its opening was not seen.
func (f *smbFlow) file(c *Context, id string) *smbFile {
	for _, o := range f.files {
		if o.id == id {
			return o
		}
	}
	o := &smbFile{}
	f.opened(c, o, id)
	return o
}

// opened adds a file to those that are open. The oldest makes room, evaluated as far as it came.
func (f *smbFlow) opened(c *Context, o *smbFile, id string) {
	for _, old := range f.files {
		if old.id == id { // closed where it was not seen
			f.closed(c, old)
			break
		}
	}
	if len(f.files) == maxSMBFiles {
		f.closed(c, f.files[0])
	}
	o.id = id
	f.files = append(f.files, o)
}

// opening notes that a file is being opened. Its identifier comes with the reply. Its name is evaluated with its first bytes.
func (f *smbFlow) opening(id uint64, o *smbFile, name []byte) {
	o.name = name
	f.call(smbCall{id: id, opens: o})
}

// closed evaluates a file that is closed.
func (f *smbFlow) closed(c *Context, o *smbFile) {
	for i := range f.files {
		if f.files[i] == o {
			f.files = append(f.files[:i], f.files[i+1:]...)
			break
		}
	}
	o.end()
}

// end evaluates what was written to a file and read from it.
func (o *smbFile) end() {
	for i, file := range o.files {
		if file != nil {
			file.End(signature.DirectionOf(i))
		}
	}
}

// data takes bytes of a file, which may come in any order.
func (f *smbFlow) data(c *Context, o *smbFile, offset uint64, b []byte) {
	if len(b) == 0 || offset >= uint64(c.Limit) {
		return
	}
	file := &o.files[c.side()]
	if *file == nil {
		*file = c.Host.NewFile()
		(*file).Describe(o.name, nil)
	}
	(*file).WriteAt(c.Dir, offset, b)
}

// smbShare evaluates the share that a client asks for. That of named pipes has one name (MS-SRVS 3.1.4.7).
func smbShare(c *Context, path []byte) {
	if len(path) == 0 {
		return
	}
	b := signature.SMBShare
	if ascii.IsWord(path[bytes.LastIndexByte(path, '\\')+1:], "ipc$") {
		b = signature.SMBNamedPipe
	}
	c.Message.Reset()
	c.Message.Put(b, path)
	c.Message.Text = path
	c.inspect()
}

// call keeps a call until its reply comes.
func (f *smbFlow) call(call smbCall) {
	if len(f.pending) == maxSMBCalls {
		f.pending = append(f.pending[:0], f.pending[1:]...)
	}
	f.pending = append(f.pending, call)
}

// answered returns the call of a reply.
func (f *smbFlow) answered(id uint64) (call smbCall, ok bool) {
	for i := range f.pending {
		if f.pending[i].id == id {
			call = f.pending[i]
			f.pending = append(f.pending[:i], f.pending[i+1:]...)
			return call, true
		}
	}
	return call, false
}

// Finish evaluates the files that are open.
func (f *smbFlow) Finish(*Context) {
	for _, o := range f.files {
		o.end()
	}
	f.files = nil
}

// Close implements Parser.
func (f *smbFlow) Close(*Context) {}

// utf16Text returns text of SMB as UTF-8, in which rules are written.
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

// Size implements Parser.
func (f *smbFlow) Size() int {
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

// size returns how many bytes an open file holds.
func (o *smbFile) size() int {
	n := len(o.id) + smbFileSize + cap(o.name)
	for _, file := range o.files {
		if file != nil {
			n += file.Size()
		}
	}
	return n
}

const (
	smbSize     = 128
	smbCallSize = 32
	smbFileSize = 128 // an smbFile, and its places in lists
)
