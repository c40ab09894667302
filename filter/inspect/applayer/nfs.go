package applayer

import (
	"bytes"

	"github.com/millrace/millrace/filter/signature"
)

// nfsFlow is calls of NFS 2, 3 and 4 (RFC 1094, RFC 1813, RFC 7530, RFC 8881) in ONC RPC (RFC 5531).
type nfsFlow struct {
	stateless
	sides [2]nfsSide
	calls []nfsCall // whose replies give a handle to a name
	files []nfsFile // by handle, the one that was named first comes first
}

// nfsSide is one direction of a stream of records (RFC 5531 11), each of which is sent in fragments:
//
//	| last 1 | length 31 | bytes of a message |
type nfsSide struct {
	mark []byte // an incomplete mark of a fragment
	held []byte // an incomplete record
	need int    // bytes of the fragment
	last bool   // it is the last of its record
}

// nfsCall is a call that was not answered.
type nfsCall struct {
	xid  uint32
	name []byte
	made bool // the handle of the reply is optional
}

// nfsFile is a file whose handle is known.
type nfsFile struct{ handle, name []byte }

// Bounds of what is kept: calls and names of a flow, and the bytes of a record that have names in them.
const (
	maxNFSCalls  = 64
	maxNFSFiles  = 256
	maxNFSRecord = 16 << 10
	maxNFSNames  = 64
)

// nfsProgram is the number of NFS (RFC 1813 2.1).
const nfsProgram = 100003

// isNFSCall reports whether b begins with a call of NFS (RFC 5531 9):
//
//	| xid 32 | 0 32: call | 2 32: version of RPC | program 32 | version 32 | procedure 32 | credentials | verifier | arguments |
//
// Four of the first five numbers are nearly fixed: they tell it from other protocols without a look at ports.
func isNFSCall(b []byte) bool {
	r := fields{b: b}
	r.uint32()
	kind, version, program := r.uint32(), r.uint32(), r.uint32()
	n := r.uint32()
	return !r.failed && kind == 0 && version == 2 && program == nfsProgram && n >= 2 && n <= 4
}

// isNFSOverTCP reports whether b begins with a record of a call.
func isNFSOverTCP(b []byte) bool {
	r := fields{b: b}
	n := r.uint32() &^ (1 << 31)
	return n >= 40 && isNFSCall(r.b)
}

// Parse reads records. Of a long one the begin is kept: names come before the bytes of files.
func (f *nfsFlow) Parse(c *Context, b []byte) {
	s := &f.sides[c.side()]
	for len(b) > 0 {
		if s.need == 0 {
			n := min(len(b), 4-len(s.mark))
			s.mark, b = append(s.mark, b[:n]...), b[n:]
			if len(s.mark) < 4 {
				return
			}
			r := fields{b: s.mark}
			mark := r.uint32()
			s.need, s.last, s.mark = int(mark&^(1<<31)), mark>>31 == 1, nil
		}
		n := min(len(b), s.need)
		s.held = append(s.held, b[:min(n, max(maxNFSRecord-len(s.held), 0))]...)
		s.need, b = s.need-n, b[n:]
		if s.need == 0 && s.last {
			record := s.held
			s.held = nil
			f.message(c, record)
		}
	}
}

// message reads a call or a reply. Credentials and verifier are | flavour 32 | length 32 | bytes |.
func (f *nfsFlow) message(c *Context, b []byte) {
	r := fields{b: b}
	xid := r.uint32()
	if r.uint32() == 1 {
		f.reply(&r, xid)
		return
	}
	r.take(4)
	program, version, procedure := r.uint32(), r.uint32(), r.uint32()
	for range 2 { // credentials and verifier
		r.take(4)
		r.opaque()
	}
	if r.failed || program != nfsProgram {
		return
	}
	c.Message.Reset()
	c.Message.Put(signature.NFSVersion, bigEndian(uint64(version)))
	c.Message.Put(signature.NFSProcedure, bigEndian(uint64(procedure)))
	c.Message.Text = b
	names := 0
	f.names(&r, version, procedure, xid, func(name []byte) {
		if name != nil && names < maxNFSNames {
			names++
			c.Message.Put(signature.FileName, name)
		}
	})
	c.inspect()
}

// opaque reads bytes behind their length, and the bytes that fill a word (RFC 4506 4.10).
func (r *fields) opaque() []byte {
	n := int(r.uint32())
	b := r.take(n)
	if fill := -n & 3; fill > 0 && !r.failed {
		r.take(min(fill, len(r.b)))
	}
	return b
}

// names calls found for each name in a call. A file is named once, when it is looked up or made; reads and writes have its handle
// alone, which the reply to that call has given. So the names of handles are kept, or rules would see no name where the bytes
// are.
func (f *nfsFlow) names(r *fields, version, procedure, xid uint32, found func([]byte)) {
	handle := r.opaque
	if version == 2 {
		handle = func() []byte { return r.take(32) }
	}
	switch {
	case version == 4 && procedure == 1:
		r.compound(found)
		return
	case version == 4:
		return
	}
	lookup, made, named, twice := nfsKinds(version, procedure)
	h := handle()
	switch {
	case r.failed:
	case named:
		name := r.opaque()
		found(name)
		if version == 3 && (lookup || made) && !r.failed {
			f.called(nfsCall{xid, bytes.Clone(name), made})
		}
		if twice {
			handle()
			found(r.opaque())
		}
	default: // of a handle: attributes, reads and writes
		for i := range f.files {
			if bytes.Equal(f.files[i].handle, h) {
				found(f.files[i].name)
				break
			}
		}
	}
}

// nfsKinds returns what the arguments of a procedure are: those with a name behind the handle of a folder. In version 2 these are
// LOOKUP 4, CREATE 9, REMOVE 10, RENAME 11, SYMLINK 13, MKDIR 14 and RMDIR 15 (RFC 1094 2.2), in version 3 LOOKUP 3 and CREATE 8
// to RENAME 14 (RFC 1813 3). RENAME has two of each.
func nfsKinds(version, procedure uint32) (lookup, made, named, twice bool) {
	if version == 2 {
		lookup, made = procedure == 4, false
		return lookup, made, procedure == 4 || procedure >= 9 && procedure <= 11 || procedure >= 13 && procedure <= 15, procedure == 11
	}
	lookup, made = procedure == 3, procedure >= 8 && procedure <= 11
	return lookup, made, lookup || procedure >= 8 && procedure <= 14, procedure == 14
}

// called keeps a call until its reply comes.
func (f *nfsFlow) called(c nfsCall) {
	if len(f.calls) == maxNFSCalls {
		f.calls = append(f.calls[:0], f.calls[1:]...)
	}
	f.calls = append(f.calls, c)
}

// reply learns the handle that a name has (RFC 5531 9, RFC 1813 3.3.3, 3.3.8):
//
//	| reply: accepted 32 | verifier | status of RPC 32 | status of NFS 32 | [it follows 32] | handle |
//
// Calls that make a file have the handle in their reply only if the server chooses so.
func (f *nfsFlow) reply(r *fields, xid uint32) {
	for i, c := range f.calls {
		if c.xid != xid {
			continue
		}
		f.calls = append(f.calls[:i], f.calls[i+1:]...)
		r.take(8) // accepted, flavour of the verifier
		r.opaque()
		accepted, status := r.uint32(), r.uint32()
		if c.made && r.uint32() == 0 {
			return
		}
		if h := r.opaque(); !r.failed && accepted == 0 && status == 0 && len(h) > 0 {
			if len(f.files) == maxNFSFiles {
				f.files = append(f.files[:0], f.files[1:]...)
			}
			f.files = append(f.files, nfsFile{bytes.Clone(h), c.name})
		}
		return
	}
}

// compound reads the operations of a COMPOUND (RFC 7530 14.2) up to one that is not known: its length is not known either. Clients begin
// with operations of these kinds, up to the one that names the file (numbers: RFC 7530 16, RFC 8881 18).
func (r *fields) compound(found func([]byte)) {
	r.opaque()
	r.take(4)
	for range min(r.uint32(), maxNFSNames) {
		op := r.uint32()
		switch op {
		case 3: // ACCESS
			r.take(4)
		case 9: // GETATTR
			r.take(4 * int(min(r.uint32(), 1<<16)))
		case 10, 16, 24, 31, 32: // GETFH, LOOKUPP, PUTROOTFH, RESTOREFH, SAVEFH
		case 15, 28: // LOOKUP, REMOVE
			found(r.opaque())
		case 18:
			found(r.open())
		case 22: // PUTFH
			r.opaque()
		case 29: // RENAME
			found(r.opaque())
			found(r.opaque())
		case 53: // SEQUENCE
			r.take(32)
		default:
			return
		}
		if r.failed {
			return
		}
	}
}

// open reads an OPEN, with the attributes or the verifier of a file that it makes, and returns the name of the file that it claims
// (RFC 7530 16.16.1).
func (r *fields) open() []byte {
	r.take(20) // sequence, access, deny, client
	r.opaque()
	if r.uint32() == 1 {
		switch mode := r.uint32(); mode {
		case 0, 1, 3:
			if mode == 3 {
				r.take(8)
			}
			r.take(4 * int(min(r.uint32(), 1<<16)))
			r.opaque()
		default:
			r.take(8)
		}
	}
	if r.uint32() != 0 {
		return nil
	}
	return r.opaque()
}

// Size implements Parser.
func (f *nfsFlow) Size() int {
	n := nfsSize + cap(f.calls)*nfsCallSize + cap(f.files)*2*sliceSize
	for i := range f.sides {
		n += cap(f.sides[i].held) + cap(f.sides[i].mark)
	}
	for _, c := range f.calls {
		n += cap(c.name)
	}
	for _, c := range f.files {
		n += cap(c.name) + cap(c.handle)
	}
	return n
}

const (
	nfsSize     = 160
	nfsCallSize = 40
)
