package inspect

import (
	"github.com/millrace/millrace/filter/signature"
)

// file is a file that a protocol transfers: its rules see file.data and file.name. Inline, they are evaluated as it grows, since
// its end may come when the receiver has all of it.
type file struct {
	name    []byte // nil where it is not known
	command []byte // of FTP
	body    []byte // up to the bound
	sent    bool   // it was evaluated: its bound was reached, or it has ended
	early   earlyMessage
}

// fileBytes takes bytes of a file.
func (e *Engine) fileBytes(p *packet, f *file, b []byte) {
	if f.sent || len(b) == 0 {
		return
	}
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
		e.fileEnds(p, f)
	case e.cfg.Inline:
		e.bodyGrown(p, &f.early, f.body, func() { e.fileBuffers(p, f) })
	}
}

// fileEnds evaluates a file of which no more is inspected, and forgets its bytes.
func (e *Engine) fileEnds(p *packet, f *file) {
	if f.sent || len(f.body) == 0 {
		return
	}
	e.fileBuffers(p, f)
	if f.early.stage > earlyNothing {
		e.tx.early = &f.early
	}
	e.transact(p)
	e.tx.early = nil
	f.sent, f.body, f.early = true, nil, earlyMessage{}
}

// fileBuffers fills the buffers of a file.
func (e *Engine) fileBuffers(p *packet, f *file) {
	e.tx.reset(p.flow.app)
	e.tx.put(signature.FileName, f.name)
	e.tx.put(signature.FTPDataCommand, f.command)
	if len(f.body) > 0 {
		e.tx.put(signature.FileData, f.body)
	}
	e.tx.text = f.body
}

// fileSize is the size of a file without its bytes.
const fileSize = 192

// size returns how many bytes are held.
func (f *file) size() int {
	return fileSize + cap(f.name) + cap(f.body) + cap(f.early.waiting)*refSize + cap(f.early.matched)*keySize
}
