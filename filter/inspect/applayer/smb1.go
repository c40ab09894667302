package applayer

import (
	"bytes"

	"github.com/millrace/millrace/filter/signature"
)

// smb1Header is the length of a header of SMB 1 (MS-CIFS 2.2.3.1), whose numbers are little-endian:
//
//	 0 | ff "SMB" | command 8 | status 32 | flags 8 | flags2 16 | PID high 16 | signature 64 | 0 16 |
//	24 | TID 16 | PID low 16 | UID 16 | MID 16 |
//
// Bit 15 of flags2 says that texts are UTF-16. Parameters and data of the command follow (2.2.3.2, 2.2.3.3):
//
//	| words 8 | words of 16 bits | bytes 16 | bytes |
const smb1Header = 32

// Commands of SMB 1 (MS-CIFS 2.2.2.1).
const (
	smb1Close      = 0x04
	smb1Write      = 0x0b
	smb1Locking    = 0x24
	smb1OpenAndX   = 0x2d
	smb1ReadAndX   = 0x2e
	smb1WriteAndX  = 0x2f
	smb1Setup      = 0x73
	smb1Logoff     = 0x74
	smb1Tree       = 0x75
	smb1CreateAndX = 0xa2
)

// maxSMB1Chain bounds the commands of one message (MS-CIFS 3.2.4.1.4).
const maxSMB1Chain = 8

// smb1Block is the parameters and the data of one command of a message.
type smb1Block struct {
	message little
	words   little
	data    []byte
	from    int // where data begins in the message
	unicode bool
	id      uint64 // of the message: PID and MID
}

// smb1 reads the commands of a message. Each but the last says where the next one is: commands whose names end in AndX have the number
// of the next, a zero, and its offset in the message as their first words (MS-CIFS 2.2.3.4). The offset has to grow, or a message
// could lead in a circle.
func (f *smbFlow) smb1(c *Context, m []byte) {
	l := little{m}
	command, at := m[4], smb1Header
	id := uint64(l.uint16(26))<<16 | uint64(l.uint16(30))
	for range maxSMB1Chain {
		count := int(l.byte(at))
		b := smb1Block{message: l, words: little{l.at(at+1, 2*count)}, from: at + 3 + 2*count, unicode: l.uint16(10)>>15 == 1, id: id}
		b.data = l.at(b.from, int(l.uint16(b.from-2)))
		if c.Dir == signature.ToServer {
			f.smb1Request(c, command, &b)
		} else if l.uint32(5) == 0 || l.uint32(5) == smbMore {
			f.smb1Reply(c, command, &b)
		}
		switch command {
		case smb1Locking, smb1Setup, smb1Logoff, smb1Tree, smb1OpenAndX, smb1CreateAndX, smb1ReadAndX, smb1WriteAndX:
		default:
			return
		}
		next := int(b.words.uint16(2))
		if command = b.words.byte(0); command == 0xff || next <= at || next >= len(m) {
			return
		}
		at = next
	}
}

// smb1Request reads a command of a client. Offsets here are in bytes, where the document counts words: w.uint16(4) is the third. The
// upper half of an offset in a file is at the end of the words, and missing in the commands of old clients.
func (f *smbFlow) smb1Request(c *Context, command byte, b *smb1Block) {
	w := b.words
	file := func(at int) *smbFile { return f.file(c, string(w.at(at, 2))) }
	switch command {
	case smb1Tree:
		smbShare(c, b.text(int(w.uint16(6))))
	case smb1CreateAndX, smb1OpenAndX:
		f.opening(b.id, &smbFile{}, b.text(0))
	case smb1Close:
		f.closed(c, file(0))
	case smb1ReadAndX:
		f.call(smbCall{id: b.id, reads: file(4), offset: uint64(w.uint32(6)) | uint64(w.uint32(20))<<32})
	case smb1Write:
		if len(b.data) > 3 {
			f.data(c, file(0), uint64(w.uint32(4)), b.data[3:])
		}
	case smb1WriteAndX:
		n := int(w.uint16(18))<<16 | int(w.uint16(20))
		f.data(c, file(4), uint64(w.uint32(6))|uint64(w.uint32(24))<<32, b.message.at(int(w.uint16(22)), n))
	}
}

// smb1Reply reads a command's reply. It names no file: the call does, which has the same PID and MID.
func (f *smbFlow) smb1Reply(c *Context, command byte, b *smb1Block) {
	w := b.words
	switch command {
	case smb1CreateAndX, smb1OpenAndX:
		at := 4 // the FID of OPEN_ANDX; CREATE_ANDX has the level of the lock before it
		if command == smb1CreateAndX {
			at = 5
		}
		if call, ok := f.answered(b.id); ok && call.opens != nil && len(w.at(at, 2)) == 2 {
			f.opened(c, call.opens, string(w.at(at, 2)))
		}
	case smb1ReadAndX:
		if call, ok := f.answered(b.id); ok && call.reads != nil {
			n := int(w.uint16(14))<<16 | int(w.uint16(10))
			f.data(c, call.reads, call.offset, b.message.at(int(w.uint16(12)), n))
		}
	}
}

// text returns a text of the data behind so many bytes, up to its zero. One in UTF-16 begins at an even byte of the message.
func (b *smb1Block) text(skip int) []byte {
	if skip > len(b.data) {
		return nil
	}
	text := b.data[skip:]
	if !b.unicode {
		text, _, _ = bytes.Cut(text, []byte{0})
		return bytes.Clone(text)
	}
	if (b.from+skip)%2 == 1 && len(text) > 0 {
		text = text[1:]
	}
	for i := 0; i+1 < len(text); i += 2 {
		if text[i] == 0 && text[i+1] == 0 {
			text = text[:i]
			break
		}
	}
	return utf16Text(text)
}
