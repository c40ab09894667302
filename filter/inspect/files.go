package inspect

import (
	"github.com/millrace/millrace/filter/signature"
)

// file is a file that a protocol transfers: its rules see file.data and file.name. Inline, they are evaluated as it grows, since
// its end may come when the receiver has all of it.
type file struct {
	h       *host
	name    []byte // nil where it is not known
	command []byte // of FTP
	body    []byte // up to the bound
	sent    bool   // it was evaluated: its bound was reached, or it has ended
	early   earlyMessage
}

// Describe implements applayer.File.
func (f *file) Describe(name, command []byte) { f.name, f.command = name, command }

// Write implements applayer.File.
func (f *file) Write(d signature.Direction, b []byte) {
	if f.sent || len(b) == 0 {
		return
	}
	e, p := f.h.e, f.h.packetOf(d)
	if e.cfg.Inline && f.early.stage == earlyNothing {
		e.fileBuffers(p, f)
		e.tx.early = &f.early
		e.transact(p)
		e.tx.early = nil
		f.early.stage = earlyHead
	}
	limit := e.cfg.bodyBytes()
	f.body = append(f.body, b[:min(len(b), max(limit-len(f.body), 0))]...)
	switch {
	case len(f.body) >= limit:
		f.End(d)
	case e.cfg.Inline:
		e.bodyGrown(p, &f.early, f.body, func() { e.fileBuffers(p, f) })
	}
}

// WriteAt implements applayer.File. Bytes that are missing before the offset are zeros until they come.
func (f *file) WriteAt(d signature.Direction, offset uint64, b []byte) {
	e := f.h.e
	if f.sent || len(b) == 0 || offset >= uint64(e.cfg.bodyBytes()) {
		return
	}
	at := int(offset)
	if at > len(f.body) {
		f.body = append(f.body, make([]byte, at-len(f.body))...)
	}
	if n := copy(f.body[at:], b); n > 0 {
		f.early.scanned = 0 // what was searched has changed
		if b = b[n:]; len(b) == 0 && e.cfg.Inline {
			p := f.h.packetOf(d)
			e.bodyGrown(p, &f.early, f.body, func() { e.fileBuffers(p, f) })
		}
	}
	f.Write(d, b)
}

// End implements applayer.File.
func (f *file) End(d signature.Direction) {
	if f.sent || len(f.body) == 0 {
		return
	}
	e, p := f.h.e, f.h.packetOf(d)
	e.fileBuffers(p, f)
	e.ended(p, &f.early, f.body)
	f.sent, f.body, f.early = true, nil, earlyMessage{}
}

// fileBuffers fills the buffers of a file.
func (e *Engine) fileBuffers(p *packet, f *file) {
	e.tx.Reset()
	e.tx.Put(signature.FileName, f.name)
	e.tx.Put(signature.FTPDataCommand, f.command)
	if len(f.body) > 0 {
		e.tx.Put(signature.FileData, f.body)
	}
	e.tx.Text = f.body
}

// fileSize is the size of a file without its bytes.
const fileSize = 192

// Size implements applayer.File.
func (f *file) Size() int {
	return fileSize + cap(f.name) + cap(f.body) + cap(f.early.waiting)*refSize + cap(f.early.matched)*keySize
}
